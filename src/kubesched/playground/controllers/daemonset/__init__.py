"""DaemonSets: one pod on every node that qualifies.

eligibility  which nodes qualify, and what a daemon pod is allowed to bear
controller   placing, replacing and counting the pods
"""

from kubesched.playground.controllers.daemonset.controller import (
    DaemonSetController as DaemonSetController,
)
