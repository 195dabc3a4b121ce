"""Handle: what a plugin may reach besides its arguments.

Everything outside the decision core is described here as a protocol and supplied by whoever runs the framework:
the scheduler in production, a test, a simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kubesched.api.core_v1 import Pod
from kubesched.clock import Clock, SystemClock
from kubesched.framework.extenders import Extender
from kubesched.framework.interfaces import NominatingInfo
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.pods import PodInfo

if TYPE_CHECKING:
    from kubesched.framework.runtime import Framework
    from kubesched.framework.waiting_pods import PodsInPreBind, WaitingPods
    from kubesched.metrics import SchedulerMetrics

T_co = TypeVar("T_co", covariant=True)


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
        """Have every change told as (old or None, new or None), as it happens; returns how to stop.

        For derived values too large to make anew, and for binding cycles that wait. Listeners only note what changed:
        they must neither fail nor decide anything.
        """
        ...


class Listers(Protocol):
    """Listers by kind, e.g. `listers.of(Service)`."""

    def of(self, kind: type[Any]) -> Lister[Any]:
        """The lister of a record type; one that is always empty when nobody watches the kind."""
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


class PodActivator(Protocol):
    """Moves pods to the active queue."""

    def activate(self, pods: Mapping[str, Pod]) -> None: ...


Spawn = Callable[[Coroutine[Any, Any, None], str], None]
"""(work, what it is for) -> None: have work done in the background by an owner that bounds it and logs its failure."""


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


class SchedulerClient(Protocol):
    """The API calls in-tree plugins make."""

    async def bind_pod(self, pod: Pod, node_name: str) -> None: ...

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        """Strategic merge patch of the status subresource; `patch` is the whole body."""
        ...

    async def delete_pod(self, pod: Pod) -> None: ...

    async def update(self, obj: Any) -> Any:  # noqa: ANN401  # PersistentVolume or PersistentVolumeClaim
        """Write a whole object back; nothing the server sent is lost."""
        ...


@dataclass(slots=True)
class Handle:
    """One per profile. Parts that are not wired stay None and must not be needed by the plugins in use."""

    table: NodeTable
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=lambda: Random(0))
    profile_name: str = "default-scheduler"
    listers: Listers | None = None
    nominator: Nominator | None = None
    activator: PodActivator | None = None
    recorder: EventRecorder | None = None
    client: SchedulerClient | None = None
    metrics: SchedulerMetrics | None = None
    waiting_pods: WaitingPods | None = None
    pods_in_pre_bind: PodsInPreBind | None = None
    feature_gates: Any = None
    framework: Framework | None = None
    """The framework the plugin belongs to: run filters and scores in a what-if. Set after construction."""
    extenders: Sequence[Extender] = ()
    spawn: Spawn | None = None
    """Starts work that outlives the attempt; set by whoever runs the loop."""
    parallelism: int = 16
