"""The Kubernetes API client: transport, credentials, typed REST verbs, watches, leader election, events.

From the outside in: `rest.RestClient` knows verbs, kinds, retries and the `Status` errors; it speaks through
the one-method seam `transport.Transport`, which is either `pool.HttpTransport` (sockets, TLS, proxies) or the
embedded cluster's in-memory twin. `transport.Credentials` is what loaders of kubeconfig files and service
accounts hand to the transport. Nothing here decides about pods, and nothing here caches objects: that is
`informers`.
"""
