"""Request handlers: paths, bodies, verbs over HTTP, discovery, OpenAPI and tables.

Handlers implement HTTP as Kubernetes uses it; `registry` implements writes, `storage` the store.
"""
