"""Handle: the services available to plugins.

Protocols describe everything outside the decision core; the scheduler, tests and simulations
implement them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import Record
from kubesched.base.clock import Clock, SystemClock
from kubesched.base.metrics.scheduler import SchedulerMetrics
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.extenders import Extender
from kubesched.framework.groups.states import GroupStates
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.status import NodeToStatus
from kubesched.framework.waiting_pods import PodsInPreBind, WaitingPods

if TYPE_CHECKING:  # imports this module
    from kubesched.framework.interfaces import PostFilterAnswer

T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R", bound=Record)


class Lister(Protocol[T_co]):
    """Objects of one kind, as cached by the informer."""

    def get(self, namespace: str, name: str) -> T_co | None:
        """The object, or None. Cluster-scoped kinds use an empty namespace."""
        ...

    def list(self, namespace: str | None = None) -> Sequence[T_co]: ...

    @property
    def version(self) -> int:
        """Changes with every change to the store, so plugins can cache derived values."""
        ...

    def subscribe(self, listener: Callable[[Any, Any], None]) -> Callable[[], None]:
        """Call `listener(old or None, new or None)` on changes; returns an unsubscribe function.

        For derived values too large to rebuild, and for binding cycles that wait. Listeners must
        only record the change: they must neither raise nor decide anything.
        """
        ...


class Listers(Protocol):
    """Listers by kind, e.g. `listers.of(Service)` or `listers.of("queues.v1.example.com")`."""

    def of(self, kind: type[Any] | str) -> Lister[Any]:
        """The lister of a record type or custom resource, as declared in `Plugin.lists`."""
        ...


class Nominator(Protocol):
    """Nominated pods: pods waiting for room on a node, usually made by preemption."""

    def add_nominated_pod(self, pod: PodInfo, info: NominatingInfo | None) -> None: ...

    def delete_nominated_pod(self, pod: Pod) -> None: ...

    def nominated_pods_for_node(self, node_name: str) -> Sequence[PodInfo]: ...

    def nominated_nodes(self) -> Iterable[str]:
        """Names of nodes with at least one nominated pod."""
        ...

    @property
    def version(self) -> int:
        """Changes whenever a node's nominated pods, or data about one of them, change."""
        ...

    def changes_since(self, version: int) -> Sequence[str] | None:
        """Nodes whose nominated pods changed since that version; None if it is too old."""
        ...


Activate = Callable[[Mapping[str, Pod]], None]
"""Moves pods, by `namespace/name`, to the active queue."""

Spawn = Callable[[Coroutine[Any, Any, object], str], None]
"""(work, description): runs work in the background; the owner bounds it and logs failures."""


class EventRecorder(Protocol):
    """Writes events about objects in the background."""

    def event(
        self,
        regarding: object,
        related: object | None,
        type_: str,
        reason: str,
        action: str,
        note: str,
    ) -> None: ...


BindingRest = Callable[[], Awaitable[None]]
"""The remaining work of a started binding; returns if the pod is bound, raises if it is not."""
BindingDone = Callable[[BindingRest | None], None]
"""Called with None when a started binding succeeds, otherwise with the remaining work."""
GiveUp = Callable[[], None]
"""Cancels a started binding; `BindingDone` is not called afterwards."""


@runtime_checkable
class DirectBindingClient(Protocol):
    """A client that can bind a pod without a task waiting for the response."""

    def start_binding(self, pod: Pod, node_name: str, done: BindingDone) -> GiveUp:
        """`bind_pod` with a callback: `done` is called once, later, unless cancelled."""
        ...


class SchedulerClient(Protocol):
    """The API calls of in-tree plugins."""

    async def bind_pod(self, pod: Pod, node_name: str) -> None: ...

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        """Strategic merge patch of the status subresource; `patch` is the whole body."""
        ...

    async def delete_pod(self, pod: Pod) -> None: ...

    async def get(self, kind: type[R], namespace: str, name: str) -> R:
        """The current object from the API server."""
        ...

    async def create(self, obj: R) -> R: ...

    async def update(self, obj: R) -> R:
        """Replace an object at its resource version; unknown server fields are preserved."""
        ...

    async def update_status(self, obj: R) -> R:
        """Replace an object's status at its resource version."""
        ...

    async def patch_status(
        self, kind: type[R], namespace: str, name: str, patch: Mapping[str, Any]
    ) -> R:
        """Strategic merge patch of the status subresource; `patch` is the whole body."""
        ...

    async def delete(self, obj: Record) -> None: ...


class OwnPreemption(Protocol):
    """Preemption as in DefaultPreemption, with a plugin's own choice of victims on a node."""

    def preempt(
        self, state: CycleState, pod: Pod, statuses: NodeToStatus
    ) -> PostFilterAnswer | Awaitable[PostFilterAnswer]:
        """The answer of `post_filter`."""
        ...

    def try_node(self, state: CycleState, pod: Pod, node_name: str) -> Any:  # noqa: ANN401
        """What the choice is on a node, without side effects: victims or a Status."""
        ...


class MakePreemption(Protocol):
    """(plugin name, choice of the victims on a node) -> preemption."""

    def __call__(
        self,
        plugin_name: str,
        select: Callable[[Any], Any],
        *,
        min_candidate_nodes_percentage: int = 10,
        min_candidate_nodes_absolute: int = 100,
    ) -> OwnPreemption: ...


class FrameworkOfPlugins(Protocol):
    """The part of the framework available to plugins."""

    profile_name: str


@dataclass(slots=True)
class Handle:
    """The services available to a plugin; one handle per profile. Tests may leave parts None."""

    table: NodeTable
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=lambda: Random(0))
    """For decisions only: draws outside the scheduling cycle would make it unrepeatable."""
    jitter: Random = field(default_factory=lambda: Random(0))
    """For delays between retries."""
    profile_name: str = "default-scheduler"
    listers: Listers | None = None
    nominator: Nominator | None = None
    activate: Activate | None = None
    recorder: EventRecorder | None = None
    client: SchedulerClient | None = None
    metrics: SchedulerMetrics | None = None
    waiting_pods: WaitingPods | None = None
    pods_in_pre_bind: PodsInPreBind | None = None
    feature_gates: FeatureGates = DEFAULT_GATES
    groups: GroupStates | None = None
    """Groups of pods; None without the gate GenericWorkload."""
    dra_manager: Any = None
    """Dynamic resource state shared by the profiles; the first plugin that needs it creates it."""
    framework: FrameworkOfPlugins | None = None
    """The plugin's framework, set by the framework after its plugins are built."""
    extenders: Sequence[Extender] = ()
    spawn: Spawn | None = None
    """Starts work that outlives the attempt."""
    preemption: MakePreemption | None = None
    """Makes preemption for a PostFilter plugin, which lists `PodDisruptionBudget`."""
    rehearsed: list[Any] | None = None
    """Set during a dry run: preemption appends its candidates here instead of evicting pods."""
    parallelism: int = 16
