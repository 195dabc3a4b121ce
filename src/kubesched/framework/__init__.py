"""The scheduling framework: the contract between the scheduler and its plugins.

A plugin author imports from here. The names below are the stable surface: they change only with a major version, and
deprecated ones stay for two minor versions. Modules inside the package, and everything they hold besides these names, are
private.
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
from kubesched.framework.handle import Handle, Lister, Listers
from kubesched.framework.interfaces import (
    MAX_NODE_SCORE,
    MIN_NODE_SCORE,
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
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.rules import (
    Premise,
    Rule,
    Scope,
    Together,
    VersionedPremise,
    this_attempt_only,
    unconditional,
)
from kubesched.framework.status import (
    SKIP,
    Code,
    NodeToStatus,
    Status,
    error_status,
    unresolvable,
    unschedulable,
)
from kubesched.framework.traits import Trait
from kubesched.framework.verdicts import Verdicts
from kubesched.snapshot.node_info import NodeInfo
from kubesched.snapshot.pods import PodInfo
from kubesched.snapshot.views import NodeColumns

__all__ = [
    "MAX_NODE_SCORE",
    "MIN_NODE_SCORE",
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
    "Lister",
    "Listers",
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
    "Premise",
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
    "Together",
    "Trait",
    "Verdicts",
    "VersionedPremise",
    "Wait",
    "default_normalize",
    "error_status",
    "on_event",
    "this_attempt_only",
    "unconditional",
    "unresolvable",
    "unschedulable",
]
