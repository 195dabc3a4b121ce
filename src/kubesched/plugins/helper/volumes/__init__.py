"""Shared by the storage plugins: claims of pods, CSI migration, node masks, and attached volumes.

claims            the claims behind a pod's volumes, and accessors for claims and volumes
csi_migration     in-tree volumes translated to their CSI driver
node_masks        conditions on node labels over columns
first_match       per node, the first objects of a ranked list that its labels match
csi_nodes         CSINode objects as columns
volume_names      unique names of CSI volumes
attached_volumes  number of volumes of each CSI driver per node
hints             queueing hints of several storage plugins
wiring            access to listers
"""
