"""Local caches of API objects, kept current by watches, with client-go's names.

    reflector   keeps list and watch going despite failures, and passes changes to one sink
    store       the objects by key, and by namespace
    informer    applies the reflector's changes to its store and calls handlers, in order
    lister      read access to a store
    factory     one informer per kind; starts, waits for and stops all of them

Handlers are plain callables on the event loop: they see each revision of an object at most once,
after the store has it. Decisions and API writes do not belong here.
"""
