"""Cluster state in columns: the node table, its pods, and the counters derived from them.

Arrays are indexed by *row*, the slot of a node while it exists. Strings are interned as small
integers. The tables change only between scheduling cycles, so the live table doubles as the
snapshot; it is never copied.
"""
