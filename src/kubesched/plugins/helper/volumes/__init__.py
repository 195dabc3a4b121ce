"""What the storage plugins share: claims of pods, CSI migration, node masks, and what is attached where.

claims            from a pod's volumes to claims, and what a claim or volume says about itself
csi_migration     in-tree volumes in the terms of the CSI driver that took them over
node_masks        conditions on node labels over whole columns, kept per condition
first_match       for every node the first objects of a list that its labels reach
csi_nodes         what CSINode objects say, as columns
live_groups       objects of a lister grouped by some value, kept current by its changes
pod_followers     which pods of interest are on which rows, told as they come and go
attached_volumes  how many volumes of each CSI driver every node holds
shared_disks      which nodes have an inline disk that is not to be shared
"""
