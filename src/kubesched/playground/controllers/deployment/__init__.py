"""Deployments: one ReplicaSet per version of the pod template, replaced step by step.

strategy    how many replicas each ReplicaSet may have next (pure arithmetic)
revisions   which ReplicaSet belongs to the current template, and their numbering
progress    status and conditions, as `kubectl rollout status` reads them
controller  reads, decides, writes
"""

from kubesched.playground.controllers.deployment.controller import (
    DeploymentController as DeploymentController,
)
