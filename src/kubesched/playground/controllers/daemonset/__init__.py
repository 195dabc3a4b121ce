"""DaemonSets: one pod on every eligible node.

eligibility  which nodes are eligible, and which tolerations daemon pods get
controller   creating, replacing and counting the pods
"""
