"""The verbs on stored objects: create, update, patch, delete, bind, evict, scale.

Independent of HTTP: handlers and in-process callers (`client`) share this package. Behavior
specific to a kind is passed in as a `Strategy`.
"""
