"""State in columns: the node table, the pods on it, and the counters kept beside them.

Arrays are indexed by *row*, the slot a node owns while it exists. Strings become small integers at
the border. The tables change only between scheduling cycles, so the live table doubles as the
snapshot; it is never copied.
"""
