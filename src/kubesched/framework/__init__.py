"""The scheduling framework: the contract between the scheduler and its plugins.

Plugin authors import from this module, and API records from `kubesched.framework.api`. The names in
these two modules are the stable API: they change only with a major version, and deprecated names
stay for two minor versions. All other modules are private, including `kubesched.framework.engine`,
which holds optional fast paths of in-tree plugins.
"""

from kubesched.framework.cycle_state import CycleState, StateNotFound
from kubesched.framework.events import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Hint,
    Resource,
    on_event,
)
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import (
    MAX_NODE_SCORE,
    BindPlugin,
    EnqueueExtensions,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreBindPreFlightResult,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
    SignPlugin,
    Wait,
    default_normalize,
)
from kubesched.framework.nodes.node_info import NodeInfo
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.status import (
    SKIP,
    Code,
    NodeToStatus,
    Status,
    error_status,
    unresolvable,
    unschedulable,
)
from kubesched.framework.verdicts import Verdicts

__all__ = [
    "MAX_NODE_SCORE",
    "SKIP",
    "Action",
    "BindPlugin",
    "ClusterEvent",
    "ClusterEventWithHint",
    "Code",
    "CycleState",
    "EnqueueExtensions",
    "FilterPlugin",
    "Handle",
    "Hint",
    "NodeColumns",
    "NodeInfo",
    "NodeToStatus",
    "NominatingInfo",
    "PermitPlugin",
    "Plugin",
    "PodInfo",
    "PostBindPlugin",
    "PostFilterPlugin",
    "PostFilterResult",
    "PreBindPlugin",
    "PreBindPreFlightResult",
    "PreEnqueuePlugin",
    "PreFilterPlugin",
    "PreFilterResult",
    "PreScorePlugin",
    "QueueSortPlugin",
    "QueuedPodInfo",
    "ReservePlugin",
    "Resource",
    "Rule",
    "Scope",
    "ScorePlugin",
    "SignPlugin",
    "StateNotFound",
    "Status",
    "Verdicts",
    "Wait",
    "default_normalize",
    "error_status",
    "on_event",
    "unresolvable",
    "unschedulable",
]
