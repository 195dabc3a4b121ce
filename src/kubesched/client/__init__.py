"""The Kubernetes API client: transport, credentials, typed REST verbs, watches, leader election, events.

From the outside in:

    rest             verbs for every kind; `retry` repeats what is safe, `rate_limit` is QPS and burst, `patch`, `watch`
    transport        the one-method seam: requests and responses, credentials, where the server is
    pool             the seam over sockets: kept-alive connections made by `dialer` (TLS, `proxy`),
                     each a `connection` that carries one `exchange` at a time
    client_config    where the server is and who we are: `kubeconfig`, `in_cluster`, `credentials`, ...

The embedded cluster plugs into the same seam without sockets. Nothing here decides about pods, and
nothing here caches objects: that is `informers`.
"""
