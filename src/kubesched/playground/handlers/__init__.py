"""Requests into answers: paths, bodies, verbs over HTTP, discovery, OpenAPI and tables.

Handlers know HTTP's grammar as Kubernetes uses it; what a write does is `registry`, what exists is
`storage`.
"""
