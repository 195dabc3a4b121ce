"""The verbs on stored objects: create, update, patch, delete, bind, evict, scale.

Independent of HTTP and of any kind: handlers and in-process callers (`client`) share this package,
and what is particular to a kind comes in as a `Strategy`.
"""
