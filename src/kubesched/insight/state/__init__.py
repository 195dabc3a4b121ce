"""The objects that scheduling reads, from a live cluster, dumps or a snapshot archive.

Every source produces a `ClusterState`. It is plain data: `memory.in_memory_scheduler` builds a
scheduler over it.
"""
