"""The Kubernetes API client: transport, credentials, REST verbs, watches, election, events.

From the outside in:

    rest             verbs for every kind, with `retry`, `rate_limit`, `patch` and `watch`
    transport        the one-method seam: requests and responses, credentials, server address
    pool             the seam over sockets: kept-alive connections made by `dialer` (TLS,
                     `proxy`), each a `connection` that carries one `exchange` at a time
    client_config    server address and identity: `kubeconfig`, `in_cluster`, `credentials`, ...

The embedded cluster plugs into the same seam without sockets. Nothing here makes scheduling
decisions; only `informers` caches objects.
"""
