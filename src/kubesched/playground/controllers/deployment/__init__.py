"""Deployments: one ReplicaSet per version of the pod template, replaced step by step.

strategy    next size of each ReplicaSet (pure arithmetic)
revisions   which ReplicaSet belongs to the current template, and revision numbers
progress    status and conditions, as `kubectl rollout status` reads them
controller  reads, decides, writes
"""
