"""The verbs on stored objects, whoever asks: create, update, patch, delete, bind, evict, scale.

Independent of HTTP: handlers and in-process callers (`local`) share this package.
"""
