"""Secure serving: health, metrics, configuration and debugging over HTTPS, for authorized clients.

    secure_server     one request: authentication, authorization, then the page
    health, pages,    the pages
    metrics_pages,
    profiling
    tls, trust        the serving certificate and client authorities, reloaded while running

Connections, their limits and HTTP itself are in `kubesched.base.http_server`. Nothing here may
block the event loop: pages are built in slices, and whatever an unauthorized client can trigger is
bounded.
"""
