"""The verbs on stored objects: create, update, patch, delete, bind, evict, scale.

Independent of HTTP: handlers and in-process callers (`local`) share this package.
"""
