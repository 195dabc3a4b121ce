"""The extension points: what a plugin may implement, and what its answers mean.

A plugin is a class with a `name` that derives from any of the `…Plugin` classes below. Points that
evaluate nodes come in two forms; a plugin implements one of them per point:

    columns    `filter_nodes` / `score_nodes` answer for all nodes at once, over NumPy columns
    one node   `filter` / `score` evaluate one `NodeInfo`; the runtime calls them for each candidate

Wherever a `Status` is returned, `None` means success. An exception in a plugin fails that attempt,
with the plugin's name in the message; the scheduler continues. `post_filter` and the binding-side
points (`permit` excepted) may be `async def`.

Plugins are called for every pod unless they return a rule (`filter_rule`, `score_rule`; see
`framework.rules`). `class_fields` says which pod fields besides spec and namespace such an answer
depends on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import Record
from kubesched.config.features import FeatureGates
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import ClusterEventWithHint
from kubesched.framework.groups.tree import (
    GroupCycle,
    GroupNode,
    Nominations,
    PlacedPod,
    PlaceGroup,
    Placement,
)
from kubesched.framework.handle import Handle
from kubesched.framework.nodes.columns import Ints, Levels
from kubesched.framework.nodes.node_info import NodeInfo
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.rules import Rule
from kubesched.framework.status import NodeToStatus, Status
from kubesched.framework.verdicts import Verdicts

MIN_NODE_SCORE = 0
MAX_NODE_SCORE = 100


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """Restricts filtering to some nodes; `None` as names means all nodes, an empty set none."""

    node_names: frozenset[str] | None = None

    def merge(self, other: PreFilterResult | None) -> PreFilterResult:
        if other is None or other.node_names is None:
            return self
        if self.node_names is None:
            return other
        return PreFilterResult(self.node_names & other.node_names)


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """The node on which a PostFilter plugin made, or expects to make, room."""

    nominating_info: NominatingInfo | None = None


@dataclass(frozen=True, slots=True)
class PreBindPreFlightResult:
    """Whether this plugin's PreBind may run in parallel with adjacent ones, and will act at all.

    A plain SKIP status ends a parallel group; a result that skips and allows parallel does not.
    """

    allow_parallel: bool = False
    skip: bool = False


class Plugin(ABC):
    """Base class of all plugins. Constructed once per profile as `Plugin(args, handle)`."""

    name: ClassVar[str]
    args_type: ClassVar[type[Any] | None] = None
    """The frozen dataclass for the decoded `pluginConfig` args; None: pass the raw mapping."""

    def __init__(self, args: Any, handle: Handle) -> None:  # noqa: ANN401  # see args_type
        self.args = args
        self.handle = handle

    lists: ClassVar[Sequence[type[Record] | str]] = ()
    """Kinds to watch for `handle.listers`, besides pods, nodes and namespaces.

    Record types such as `PodDisruptionBudget`, subclasses of `CustomObject`, or custom resources by
    their `plural.version.group`.
    """

    @classmethod
    def kinds_to_list(cls, gates: FeatureGates) -> Sequence[type[Record] | str]:
        """`lists`, plus the kinds needed only with some feature gates."""
        return cls.lists

    def class_fields(self, pod: Pod) -> Hashable:  # for plugins to override
        """What answers with a rule of scope NODE or ROW depend on besides spec and namespace.

        Pods share such answers only if these values are equal; None if there is nothing. Without
        this method they share them only if labels and owner are equal, too. Different values must
        differ in `repr`.
        """
        return None

    def close(self) -> None:  # noqa: B027  # most plugins hold nothing that needs closing
        """Called once at shutdown."""


class QueueSortPlugin(Plugin):
    """Orders the active queue. Exactly one per profile, the same in all profiles."""

    @abstractmethod
    def less(self, a: QueuedPodInfo, b: QueuedPodInfo) -> bool:
        """True if `a` is to be scheduled before `b`."""

    def sort_key(self, info: QueuedPodInfo) -> Any:  # noqa: ANN401  # any comparable value
        """A key with the same order as `less`, which then is not called for every comparison.

        Optional. Computed when a pod enters the active queue.
        """
        del info
        return None


class PreEnqueuePlugin(Plugin):
    """Keeps pods out of the active queue until an attempt can succeed."""

    @abstractmethod
    def pre_enqueue(self, pod: Pod) -> Status | None: ...


class EnqueueExtensions(Plugin):
    """Declares which cluster events can undo this plugin's rejections."""

    @abstractmethod
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """An empty list means no event helps. Without this class, any event may help."""


class _FilterPhase(Plugin):
    """PreFilter and Filter share one rule."""

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule | None:
        """How far this pod's PreFilter answer and verdicts may be reused. None: no reuse.

        Called after `pre_filter`, also if that returned SKIP.
        """
        return None


class PreFilterPlugin(_FilterPhase):
    """Examines the pod once before nodes are filtered."""

    has_extensions: ClassVar[bool] = False
    """Derived: True for plugins that implement `add_pod` and `remove_pod`."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.has_extensions = (
            cls.add_pod is not PreFilterPlugin.add_pod
            or cls.remove_pod is not PreFilterPlugin.remove_pod
        )

    @abstractmethod
    def pre_filter(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> PreFilterResult | Status | None:
        """None, a PreFilterResult to narrow the nodes, SKIP to skip Filter, or a rejection."""

    def add_pod(
        self, state: CycleState, pod: Pod, added: PodInfo, node: NodeColumns
    ) -> Status | None:
        """Update `pre_filter` state for a what-if: add `added` to `node` (a view without it)."""

    def remove_pod(
        self, state: CycleState, pod: Pod, removed: PodInfo, node: NodeColumns
    ) -> Status | None:
        """Update `pre_filter` state for a what-if: remove `removed`, which was on `node`."""


class FilterPlugin(_FilterPhase):
    """Rejects nodes. Implements `filter_nodes` or `filter`."""

    filters_columns: ClassVar[bool] = False
    """Derived: True for plugins that implement `filter_nodes`."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.filters_columns = cls.filter_nodes is not FilterPlugin.filter_nodes

    def filter_nodes(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> Verdicts | Status | None:
        """A verdict per node of the view; None if every node passes; a Status for an error.

        Verdicts on nodes that earlier plugins rejected are ignored; see `nodes.candidates`.
        """
        raise NotImplementedError

    def filter(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> Status | None:
        """The verdict on one node."""
        raise NotImplementedError


PostFilterAnswer = tuple[PostFilterResult | None, Status | None]


class PostFilterPlugin(Plugin):
    """Tries to make room when no node is feasible.

    May return an awaitable to do I/O; the next attempt then waits until it is done.
    """

    @abstractmethod
    def post_filter(
        self, state: CycleState, pod: Pod, statuses: NodeToStatus
    ) -> PostFilterAnswer | Awaitable[PostFilterAnswer]: ...


class _ScorePhase(Plugin):
    """PreScore, Score and NormalizeScore share one rule."""

    def score_rule(self, state: CycleState, pod: Pod) -> Rule | None:
        """How far this pod's PreScore answer and raw scores may be reused. None: no reuse.

        Called after `pre_score`, also if that returned SKIP.
        """
        return None


class PreScorePlugin(_ScorePhase):
    """Examines the feasible nodes once before they are scored."""

    @abstractmethod
    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        """`nodes` are the feasible nodes. SKIP skips this plugin's Score."""


class ScorePlugin(_ScorePhase):
    """Scores feasible nodes, 0..100 after normalization. Implements `score_nodes` or `score`."""

    scores_columns: ClassVar[bool] = False
    """Derived: True for plugins that implement `score_nodes`."""
    normalizes: ClassVar[bool] = False
    """Derived: True for plugins that implement `normalize_scores`."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.scores_columns = cls.score_nodes is not ScorePlugin.score_nodes
        cls.normalizes = cls.normalize_scores is not ScorePlugin.normalize_scores

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Levels | int | Status:
        """A raw score per node of the view, or one integer if all nodes have the same score.

        The view may contain infeasible nodes; their scores are ignored.
        """
        raise NotImplementedError

    def score(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> int | Status:
        """The raw score of one node."""
        raise NotImplementedError

    def normalize_scores(
        self, state: CycleState, pod: Pod, scores: Ints, nodes: NodeColumns
    ) -> Levels | Status:
        """The final scores as a new array, from the raw `scores` of the feasible `nodes`.

        If `score_nodes` returned one integer, `scores` holds only that integer.
        """
        return scores


class ReservePlugin(Plugin):
    """Reserves resources that the plugin manages itself, once a node is chosen."""

    @abstractmethod
    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None: ...

    @abstractmethod
    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Undo; called on any later failure, even if `reserve` never ran. Must be idempotent."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A Permit answer: hold the pod for at most `timeout_s`."""

    timeout_s: float
    reason: str = ""


class PermitPlugin(Plugin):
    """Allows, rejects or delays the binding."""

    @abstractmethod
    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | Wait | None: ...


class PreBindPlugin(Plugin):
    """Prepares the binding, possibly with API calls."""

    def pre_bind_pre_flight(
        self, state: CycleState, pod: Pod, node_name: str
    ) -> PreBindPreFlightResult | Status | None:
        """SKIP if `pre_bind` will do nothing for this pod. Must have no side effects."""

    @abstractmethod
    def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str
    ) -> Awaitable[Status | None] | Status | None: ...


class BindPlugin(Plugin):
    """Binds the pod, or returns SKIP to pass it to the next Bind plugin."""

    @abstractmethod
    def bind(
        self, state: CycleState, pod: Pod, node_name: str
    ) -> Awaitable[Status | None] | Status | None: ...


class PostBindPlugin(Plugin):
    """Called after a pod was bound."""

    @abstractmethod
    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> Awaitable[None] | None: ...


class SignPlugin(Plugin):
    """Contributes to the pod signature used for opportunistic batching."""

    @abstractmethod
    def sign_pod(self, pod: Pod) -> dict[str, Any] | Status:
        """JSON-able fragments by key, or a refusal."""


class PlacementFeasiblePlugin(Plugin):
    """Says, member by member, whether a group can still succeed. Not configurable."""

    @abstractmethod
    def placement_feasible(self, group: GroupNode, remaining: int, scheduled: int) -> Status | None:
        """Success, Wait, or Unschedulable if the members that remain cannot suffice."""


GroupPostFilterAnswer = tuple[Nominations | None, Status]
"""Nominations of members, and whether there will be room."""


class PodGroupPostFilterPlugin(Plugin):
    """Makes room for a group that was rejected as a whole; runs once per cycle.

    A method that calls `place` is a coroutine.
    """

    @abstractmethod
    def pod_group_post_filter(
        self, cycle: GroupCycle, group: GroupNode, place: PlaceGroup
    ) -> GroupPostFilterAnswer | Awaitable[GroupPostFilterAnswer]: ...


class PlacementGeneratePlugin(Plugin):
    """Divides the nodes into placements, of which a group uses one."""

    @abstractmethod
    def generate_placements(
        self, group: GroupNode, parent: Placement
    ) -> Sequence[Placement] | Status: ...


class PlacementScorePlugin(Plugin):
    """Scores the placements in which a group would succeed, 0 to 100 after normalisation."""

    @abstractmethod
    def score_placement(
        self, group: GroupNode, placement: Placement, placed: Sequence[PlacedPod]
    ) -> int | Status: ...

    def normalize_placement_scores(self, scores: list[int]) -> list[int] | Status:
        return scores


EXTENSION_POINTS: dict[str, type[Plugin]] = {
    "preEnqueue": PreEnqueuePlugin,
    "queueSort": QueueSortPlugin,
    "preFilter": PreFilterPlugin,
    "filter": FilterPlugin,
    "postFilter": PostFilterPlugin,
    "preScore": PreScorePlugin,
    "score": ScorePlugin,
    "reserve": ReservePlugin,
    "permit": PermitPlugin,
    "preBind": PreBindPlugin,
    "bind": BindPlugin,
    "postBind": PostBindPlugin,
    "podGroupPostFilter": PodGroupPostFilterPlugin,
    "placementGenerate": PlacementGeneratePlugin,
    "placementScore": PlacementScorePlugin,
}
"""Configuration key -> the base class of plugins for that extension point."""


def default_normalize(scores: Ints, *, reverse: bool = False) -> Ints:
    """Scale so that the highest becomes 100; reversed, so that the highest becomes 0.

    # Upstream: the division truncates before the reversal; all zeros reversed are all 100.
    """
    highest = max(int(scores.max(initial=0)), 0)
    if highest == 0:
        return np.full_like(scores, MAX_NODE_SCORE) if reverse else scores
    scaled = scores.astype(np.int64, copy=False) * MAX_NODE_SCORE // highest
    return MAX_NODE_SCORE - scaled if reverse else scaled
