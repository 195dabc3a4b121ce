"""Secure serving: health, metrics, configuration and debugging over HTTPS, for those who may see them.

    listener          sockets, TLS, limits against slow and hostile clients
    secure_server     one request: who is it (authentication), may they (authorization), what do they get (routes)
    health, pages,    what there is to see
    metrics_pages,
    profiling
    tls, trust        certificates: ours, and the authorities of others; both reloaded while running

Nothing here decides anything about pods, and nothing here may hold up the event loop: pages are built in slices, and
what a stranger can cause is bounded.
"""
