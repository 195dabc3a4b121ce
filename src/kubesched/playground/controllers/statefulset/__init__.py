"""StatefulSets: pods with a stable name, an ordinal and their own storage.

identity    the pod of each ordinal, and its required fields
claims      the volume claims of each pod, and their owners
controller  the order in which pods are created, deleted and replaced
"""
