"""Arithmetic on node resources, shared by NodeResourcesFit and NodeResourcesBalancedAllocation.

Every formula exists twice: over columns (all nodes at once) and for one row (the few nodes that
changed since the last pod of a class). Both give exactly upstream's integers.
"""
