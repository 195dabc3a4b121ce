"""The objects that scheduling reads, from a live cluster, from dumps or from a snapshot archive.

`ClusterState` is the result of every source. It is plain data: `memory.in_memory_scheduler` builds
a scheduler over it.
"""
