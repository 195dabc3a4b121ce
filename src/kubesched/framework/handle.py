"""Handle: what a plugin may reach besides its arguments.

Everything outside the decision core is described here as a protocol. The scheduler supplies it in
production, and so do tests and simulations.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, TypeVar, runtime_checkable

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import Record
from kubesched.base.clock import Clock, SystemClock
from kubesched.base.metrics.scheduler import SchedulerMetrics
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.framework.extenders import Extender
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.waiting_pods import PodsInPreBind, WaitingPods

T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R", bound=Record)


class Lister(Protocol[T_co]):
    """Objects of one kind as the informer knows them."""

    def get(self, namespace: str, name: str) -> T_co | None:
        """The object, or None. Cluster-scoped kinds use an empty namespace."""
        ...

    def list(self, namespace: str | None = None) -> Sequence[T_co]: ...

    @property
    def version(self) -> int:
        """Changes with every change to the store; lets plugins keep derived values."""
        ...

    def subscribe(self, listener: Callable[[Any, Any], None]) -> Callable[[], None]:
        """Call the listener with (old or None, new or None) on every change; returns a function that unsubscribes.

        For derived values too large to rebuild, and for binding cycles that wait. Listeners only
        record what changed: they must neither fail nor decide anything.
        """
        ...


class Listers(Protocol):
    """Listers by kind, e.g. `listers.of(Service)` or `listers.of("queues.v1.example.com")`."""

    def of(self, kind: type[Any] | str) -> Lister[Any]:
        """The lister of a record type or custom resource.

        Plugins declare the kinds they look up (`Plugin.lists`).
        """
        ...


class Nominator(Protocol):
    """Pods waiting for room on a node that was, or is being, made for them."""

    def add_nominated_pod(self, pod: PodInfo, info: NominatingInfo | None) -> None: ...

    def delete_nominated_pod(self, pod: Pod) -> None: ...

    def nominated_pods_for_node(self, node_name: str) -> Sequence[PodInfo]: ...

    def nominated_nodes(self) -> Iterable[str]:
        """Names of nodes with at least one nominated pod."""
        ...

    @property
    def version(self) -> int:
        """Changes whenever a node's nominated pods change, or what is known of one of them."""
        ...

    def changes_since(self, version: int) -> Sequence[str] | None:
        """Nodes whose nominated pods changed since that version; None when that is too long ago to tell."""
        ...


Activate = Callable[[Mapping[str, Pod]], None]
"""Moves pods, by `namespace/name`, to the active queue."""

Spawn = Callable[[Coroutine[Any, Any, None], str], None]
"""(work, what it is for): runs work in the background; the owner bounds it and logs its failure."""


class EventRecorder(Protocol):
    """Writes events about objects, in the background."""

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
"""The rest of a started binding: returns when the pod is bound, raises if it is not."""
BindingDone = Callable[[BindingRest | None], None]
"""Called with None when a started binding has succeeded, otherwise with the work that is left."""
GiveUp = Callable[[], None]
"""Cancels a started binding: `BindingDone` is not called after that."""


@runtime_checkable
class DirectBindingClient(Protocol):
    """A client that can bind a pod without a task to wait for the answer."""

    def start_binding(self, pod: Pod, node_name: str, done: BindingDone) -> GiveUp:
        """`bind_pod` as a callback: `done` is called once, later, unless the binding is cancelled."""
        ...


class SchedulerClient(Protocol):
    """The API calls in-tree plugins make."""

    async def bind_pod(self, pod: Pod, node_name: str) -> None: ...

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        """Strategic merge patch of the status subresource; `patch` is the whole body."""
        ...

    async def delete_pod(self, pod: Pod) -> None: ...

    async def get(self, kind: type[R], namespace: str, name: str) -> R:
        """The object as the API server has it now."""
        ...

    async def create(self, obj: R) -> R: ...

    async def update(self, obj: R) -> R:
        """Write a whole object back at its revision; nothing the server sent is lost."""
        ...

    async def update_status(self, obj: R) -> R:
        """Write an object's status back at its revision."""
        ...

    async def patch_status(
        self, kind: type[R], namespace: str, name: str, patch: Mapping[str, Any]
    ) -> R:
        """Strategic merge patch of the status subresource; `patch` is the whole body."""
        ...

    async def delete(self, obj: Record) -> None: ...


class FrameworkOfPlugins(Protocol):
    """The part of the framework that plugins may use."""

    profile_name: str


@dataclass(slots=True)
class Handle:
    """What a plugin may reach, one per profile.

    In tests, parts that no plugin needs may stay None.
    """

    table: NodeTable
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=lambda: Random(0))
    """For decisions: draws made beside the scheduling cycle would make it unrepeatable."""
    jitter: Random = field(default_factory=lambda: Random(0))
    """For pauses between retries."""
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
    dra_manager: Any = None
    """What the profiles share about dynamic resources; made by the first plugin that needs it if
    absent.
    """
    framework: FrameworkOfPlugins | None = None
    """The framework the plugin belongs to. Set by the framework itself, once its plugins are built.
    """
    extenders: Sequence[Extender] = ()
    spawn: Spawn | None = None
    """Starts work that outlives the attempt."""
    parallelism: int = 16
