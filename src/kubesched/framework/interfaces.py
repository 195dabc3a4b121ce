"""The extension points: what a plugin may implement, and what its answers mean.

A plugin is a class with a `name` that derives from any of the `…Plugin` classes below. Points that look at nodes
come in two shapes, of which a plugin picks one per point:

    columns    `filter_nodes` / `score_nodes` answer for all nodes at once, over NumPy columns
    one node   `filter` / `score` look at one `NodeInfo`; the runtime calls them for each candidate

Wherever a `Status` is returned, `None` means success. A plugin that raises fails that attempt, with its name in the
message; the scheduler goes on. `post_filter` and the binding-side points (`permit` excepted) may be `async def`.

Caching. Pods with the same scheduling-relevant spec form a class, and the scheduler may keep a plugin's answers per
class. `filter_scope` and `score_scope` say what an answer depends on besides the pod; the default, CLUSTER, means
"anything": such answers are never kept. A plugin whose answers depend on pod fields beyond the standard spec (its own
annotations, say) adds them with `class_fields`. What PreFilter and PreScore answer can be kept too: a plugin says what
it depends on with a *premise*. And a plugin of CLUSTER scope need not be asked about every node if it can tell what makes
nodes alike for it: its *traits*.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import ClusterEventWithHint
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.status import NodeToStatus, Status
from kubesched.framework.traits import Trait
from kubesched.framework.verdicts import Verdicts
from kubesched.snapshot.columns import Ints
from kubesched.snapshot.node_info import NodeInfo
from kubesched.snapshot.pods import PodInfo
from kubesched.snapshot.views import NodeColumns

if TYPE_CHECKING:
    from kubesched.framework.handle import Handle
    from kubesched.snapshot.node_table import NodeTable

MIN_NODE_SCORE = 0
MAX_NODE_SCORE = 100
MAX_PERMIT_TIMEOUT_S = 15 * 60.0


class Scope(Enum):
    """What a node's verdict or raw score depends on, besides the pod."""

    NODE = "node"
    """The node object alone."""
    ROW = "row"
    """The node object and the pods on that node."""
    CLUSTER = "cluster"
    """Anything: computed anew for every attempt."""


Premise = Callable[[], Hashable]
"""What an answer rests on besides the pod's class: while the values returned are equal, the answer stays the same.

Called for every pod, so it has to be quick."""


def unconditional() -> None:
    """The premise of an answer that depends on nothing but the pod's class."""


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """The only nodes worth filtering; `None` as names means all of them, an empty set means none."""

    node_names: frozenset[str] | None = None

    def merge(self, other: PreFilterResult | None) -> PreFilterResult:
        if other is None or other.node_names is None:
            return self
        if self.node_names is None:
            return other
        return PreFilterResult(self.node_names & other.node_names)


@dataclass(frozen=True, slots=True)
class NominatingInfo:
    """What to do with the pod's nominated node: keep it (`override` False) or set it (empty name clears)."""

    override: bool = False
    node_name: str = ""


KEEP_NOMINATION = NominatingInfo()
CLEAR_NOMINATION = NominatingInfo(override=True)


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """Where a PostFilter plugin made, or hopes to make, room."""

    nominating_info: NominatingInfo | None = None


@dataclass(frozen=True, slots=True)
class PreBindPreFlightResult:
    """May this plugin's PreBind run beside its neighbours', and will it do anything at all?

    A plain SKIP status says neither; a result that skips but allows company does not split its neighbours.
    """

    allow_parallel: bool = False
    skip: bool = False


class Plugin(ABC):
    """Base of every plugin. Constructed once per profile as `Plugin(args, handle)`."""

    name: ClassVar[str]
    args_type: ClassVar[type[Any] | None] = None
    """A frozen dataclass the `pluginConfig` args are decoded into; None: the raw mapping is passed on."""

    def __init__(self, args: Any, handle: Handle) -> None:  # noqa: ANN401  # each plugin declares its own args_type
        self.args = args
        self.handle = handle

    def class_fields(self, pod: Pod) -> Hashable:  # for plugins to override
        """What this plugin reads of a pod beyond the standard scheduling fields. Equal values may share answers."""
        return None

    def close(self) -> None:  # noqa: B027  # most plugins hold nothing that needs closing
        """Called once at shutdown."""


class QueueSortPlugin(Plugin):
    """Decides which pending pod is tried first. Exactly one per profile, the same in all profiles."""

    @abstractmethod
    def less(self, a: QueuedPodInfo, b: QueuedPodInfo) -> bool:
        """Is `a` to be scheduled before `b`?"""

    def sort_key(self, info: QueuedPodInfo) -> Any:  # noqa: ANN401  # any comparable value
        """A key with the same order as `less`, if there is one: heaps are faster with it. None: use `less`."""
        return None


class PreEnqueuePlugin(Plugin):
    """Keeps pods out of the active queue until they are worth trying."""

    @abstractmethod
    def pre_enqueue(self, pod: Pod) -> Status | None: ...


class EnqueueExtensions(Plugin):
    """Says which cluster events can undo this plugin's rejections."""

    @abstractmethod
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """An empty list means: no event helps. Not deriving from this class means: any event may help."""


class PreFilterPlugin(Plugin):
    """Looks at the pod once before nodes are filtered."""

    has_extensions: ClassVar[bool] = False
    """True when `add_pod` and `remove_pod` must be told about pods added or removed in thought."""
    pre_filter_is_per_class: ClassVar[bool] = False
    """True when `pre_filter`, and all it stores, depends on the pod alone: one pod's answer then serves its class."""

    @abstractmethod
    def pre_filter(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> PreFilterResult | Status | None:
        """None to go on, a PreFilterResult to narrow the nodes, SKIP to leave out this plugin's filter, or a rejection."""

    def pre_filter_premise(self, state: CycleState, pod: Pod) -> Premise | None:
        """Asked after `pre_filter`: what its answer and all it stored rest on. None: it must be asked for every pod."""
        del state, pod
        return unconditional if self.pre_filter_is_per_class else None

    def add_pod(
        self, state: CycleState, pod: Pod, added: PodInfo, node: NodeColumns
    ) -> Status | None:
        """`added` is now on `node` (a one-row view without it). Update what `pre_filter` stored in this state."""

    def remove_pod(
        self, state: CycleState, pod: Pod, removed: PodInfo, node: NodeColumns
    ) -> Status | None:
        """`removed` is no longer on `node`."""

    def ignores_pod(self, state: CycleState, pod: Pod, other: PodInfo) -> bool:
        """Would `add_pod` and `remove_pod` change nothing for `other`, whatever node it is on?

        Where all pods in question are ignored, what-ifs about many nodes are evaluated together: this plugin's filter
        must then judge the nodes of a view independently of each other. The answer may depend on the namespace, labels
        and affinity of `other` only; a plugin that would have to look at more leaves it at False.
        """
        del state, pod, other
        return False


class FilterPlugin(Plugin):
    """Rules out nodes."""

    filter_scope: ClassVar[Scope] = Scope.CLUSTER
    attempt_scope: ClassVar[Scope | None] = None
    """What the verdicts depend on within one attempt, where that is less than `filter_scope` says of any two attempts.

    Claims and volumes do not change while a pod is tried: a filter that reads them, and nodes, has CLUSTER scope and
    NODE scope within an attempt. What-ifs about many nodes are then answered together, and it is not asked again when
    only pods come and go in thought.
    """

    @property
    def what_if_scope(self) -> Scope:
        return self.attempt_scope or self.filter_scope

    def filter_nodes(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> Verdicts | Status | None:
        """A verdict per node of the view; None when every node passes; a Status when something broke."""
        raise NotImplementedError

    def filter(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> Status | None:
        """The verdict on one node."""
        raise NotImplementedError

    def filter_version(self, state: CycleState, pod: Pod) -> Hashable:  # for plugins to override
        """For NODE and ROW scope: anything cluster-wide the verdicts also read. Kept answers die when it changes."""
        return None

    def filter_premise(self, state: CycleState, pod: Pod) -> Premise:
        """The same in a form that is quick to ask for repeatedly."""
        return partial(self.filter_version, state, pod)

    def filter_traits(self, state: CycleState, pod: Pod) -> Sequence[Trait] | None:
        """For CLUSTER scope, asked after PreFilter: nodes alike in all of these get the same verdict.

        The verdict on one node then stands for all that are like it. None: this cannot be told.
        """
        del state, pod
        return None

    def filter_judge(self, state: CycleState, pod: Pod) -> Callable[[int], bool] | None:
        """For CLUSTER scope with traits: does a row pass, as things stand when asked?

        Made once, used while the premises hold; for a few rows at a time it beats columns. None: there is no such form.
        """
        del state, pod
        return None


class RowFilterPlugin(FilterPlugin):
    """A ROW-scope column filter that can also answer for a single row, faster than a one-row view."""

    filter_scope = Scope.ROW

    @abstractmethod
    def row_passes(self, state: CycleState, pod: Pod, table: NodeTable, row: int) -> bool: ...

    def row_filter(
        self, state: CycleState, pod: Pod, table: NodeTable
    ) -> Callable[[int], bool] | None:
        """`row_passes` with all but the row filled in, used while neither resources nor arrays of the table change.

        None when every row passes.
        """
        return partial(self.row_passes, state, pod, table)


PostFilterAnswer = tuple[PostFilterResult | None, Status | None]


class PostFilterPlugin(Plugin):
    """Tries to make room when no node is feasible.

    It may ask for time to do I/O by returning an awaitable: the next attempt then waits until it is done.
    """

    @abstractmethod
    def post_filter(
        self, state: CycleState, pod: Pod, statuses: NodeToStatus
    ) -> PostFilterAnswer | Awaitable[PostFilterAnswer]: ...


class PreScorePlugin(Plugin):
    """Looks at the feasible nodes once before they are scored."""

    pre_score_is_per_class: ClassVar[bool] = False
    """True when `pre_score`, and all it stores, depends on the pod alone: one pod's answer then serves its class."""

    @abstractmethod
    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        """`nodes` are the feasible ones. SKIP leaves out this plugin's score."""

    def pre_score_premise(self, state: CycleState, pod: Pod) -> Premise | None:
        """Asked after `pre_score`: what its answer and all it stored rest on. None: it must be asked for every pod."""
        del state, pod
        return unconditional if self.pre_score_is_per_class else None


class ScorePlugin(Plugin):
    """Ranks feasible nodes. After normalisation every score lies in 0..100."""

    score_scope: ClassVar[Scope] = Scope.CLUSTER
    normalizes: ClassVar[bool] = False
    """True when `normalize_scores` does something: it then sees the raw scores of all feasible nodes."""
    uniform_when_zero: ClassVar[bool] = False
    """True when raw scores of zero everywhere normalise to one and the same score for all nodes."""
    normalizes_by_value: ClassVar[bool] = False
    """True when a final score depends only on the raw score and on which raw scores there are, not on how many nodes
    have them: `normalize_scores` may then be handed one node for each raw score."""

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Ints | Status:
        """A raw score per node of the view. The view may hold nodes that are not feasible; theirs are ignored."""
        raise NotImplementedError

    def score(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> int | Status:
        """The raw score of one node."""
        raise NotImplementedError

    def uniform_score(self, state: CycleState, pod: Pod) -> int | None:
        """The final score, if all nodes get the same whichever are feasible: then nothing is computed per node."""
        del state, pod
        return None

    def normalize_scores(
        self, state: CycleState, pod: Pod, scores: Ints, nodes: NodeColumns
    ) -> Ints | Status:
        """The final scores; `nodes` are the feasible nodes, `scores` their raw scores. Return a new array."""
        del state, pod, nodes
        return scores

    def score_version(self, state: CycleState, pod: Pod) -> Hashable:  # for plugins to override
        """For NODE and ROW scope: anything cluster-wide the raw scores also read."""
        return None

    def score_premise(self, state: CycleState, pod: Pod) -> Premise:
        """The same in a form that is quick to ask for repeatedly."""
        return partial(self.score_version, state, pod)

    def score_traits(self, state: CycleState, pod: Pod) -> Sequence[Trait] | None:
        """For CLUSTER scope, asked after PreScore: nodes alike in all of these get the same raw score.

        `pre_score`, `score_nodes` and `normalize_scores` may then be handed one node of each kind; how many nodes it
        stands for is known to the view (`number_of_nodes`, `number_of_values`). None: this cannot be told.
        """
        del state, pod
        return None

    def score_few(
        self, state: CycleState, pod: Pod, rows: Sequence[int], counts: Sequence[int]
    ) -> list[int] | None:
        """For CLUSTER scope with traits: the final scores of a few rows, each standing for that many feasible nodes.

        They are all feasible nodes together, so this does the work of `pre_score`, `score_nodes` and `normalize_scores`;
        `state` holds what these stored for an earlier pod of the class. None: there is no such form.
        """
        del state, pod, rows, counts
        return None


class RowScorePlugin(ScorePlugin):
    """A ROW-scope column score that can also answer for a single row."""

    score_scope = Scope.ROW

    @abstractmethod
    def row_score(self, state: CycleState, pod: Pod, table: NodeTable, row: int) -> int: ...

    def row_scorer(
        self, state: CycleState, pod: Pod, table: NodeTable
    ) -> Callable[[int], int] | None:
        """`row_score` with all but the row filled in, used while neither resources nor arrays of the table change.

        None when every row scores 0.
        """
        return partial(self.row_score, state, pod, table)


class ReservePlugin(Plugin):
    """Books resources of its own once a node is chosen."""

    @abstractmethod
    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None: ...

    @abstractmethod
    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Undo; called on any later failure, also when `reserve` never ran. Must be idempotent."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A Permit answer: hold the pod for at most `timeout_s`."""

    timeout_s: float
    reason: str = ""


class PermitPlugin(Plugin):
    """Says yes, no, or not yet."""

    @abstractmethod
    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | Wait | None: ...


class PreBindPlugin(Plugin):
    """Prepares the binding, possibly with API calls."""

    def pre_bind_pre_flight(
        self, state: CycleState, pod: Pod, node_name: str
    ) -> PreBindPreFlightResult | Status | None:
        """Will `pre_bind` do anything for this pod (SKIP if not)? No side effects."""

    @abstractmethod
    def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str
    ) -> Awaitable[Status | None] | Status | None: ...


class BindPlugin(Plugin):
    """Binds the pod, or leaves it to the next Bind plugin with SKIP."""

    @abstractmethod
    def bind(
        self, state: CycleState, pod: Pod, node_name: str
    ) -> Awaitable[Status | None] | Status | None: ...


class PostBindPlugin(Plugin):
    """Is told about pods that were bound."""

    @abstractmethod
    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> Awaitable[None] | None: ...


class SignPlugin(Plugin):
    """Contributes to the pod signature used for opportunistic batching."""

    @abstractmethod
    def sign_pod(self, pod: Pod) -> dict[str, Any] | Status:
        """JSON-able fragments by key, or a refusal."""


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
}
"""Configuration key -> what a plugin derives from to serve it."""


def default_normalize(scores: Ints, *, reverse: bool = False) -> Ints:
    """Scale so that the highest becomes 100; reversed, so that the highest becomes 0.

    # Upstream: the division truncates before the reversal, and an all-zero input reversed is all 100.
    """
    highest = max(int(scores.max(initial=0)), 0)
    if highest == 0:
        return np.full_like(scores, MAX_NODE_SCORE) if reverse else scores
    scaled = scores * MAX_NODE_SCORE // highest
    return MAX_NODE_SCORE - scaled if reverse else scaled
