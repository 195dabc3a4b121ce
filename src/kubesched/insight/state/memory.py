"""An in-memory scheduler over a state: the production wiring without an API server.

    scheduler = in_memory_scheduler(state, config)
    scheduler.assembly.scheduler.attempt()

The scheduler's writes go to `client`. The default client refuses every write, for read-only use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NoReturn, TypeVar, cast

from msgspec import to_builtins

from kubesched.api.core_v1 import Namespace, Node, Pod
from kubesched.api.kinds import Kind
from kubesched.api.meta import CustomObject, Record
from kubesched.api.names import key_of, object_key
from kubesched.api.scheduling_v1alpha3 import CompositePodGroup
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.base.clock import Clock, ManualClock
from kubesched.base.errors import KubeschedError, NotFound
from kubesched.base.metrics.registry import MetricsRegistry
from kubesched.base.metrics.scheduler import SchedulerMetrics
from kubesched.client.informers.factory import UndeclaredKind
from kubesched.client.informers.lister import Lister
from kubesched.client.informers.store import Store
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.load import default_config
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.handle import EventRecorder, Listers, SchedulerClient
from kubesched.framework.registry import Registry
from kubesched.framework.waiting_pods import CallLater
from kubesched.insight.state.cluster_state import KINDS, ClusterState
from kubesched.insight.state.collector import collector_paused
from kubesched.plugins.registry import installed_registry
from kubesched.scheduler.event_handlers import EventHandlers
from kubesched.scheduler.factory import (
    Assembly,
    Dependencies,
    ExtenderFactory,
    assemble,
    metrics_for,
    no_extenders,
)

R = TypeVar("R", bound=Record)


class MemoryLister(Lister[Any]):
    """A lister whose owner writes to its store. Writes reach subscribers, but no event handler."""

    def __init__(self) -> None:
        super().__init__(Store())

    def put(self, obj: Any) -> Any:  # noqa: ANN401  # of whichever kind
        """Store an object; returns the previous one."""
        return self.store.put(key_of(obj.metadata), obj)

    def remove(self, namespace: str, name: str) -> None:
        self.store.remove(object_key(namespace, name))


class MemoryListers:
    """Listers of every kind, created on demand."""

    def __init__(self) -> None:
        self._by_kind: dict[type[Any] | str, MemoryLister] = {}

    def of(self, kind: type[Any] | str) -> MemoryLister:
        kind = CustomObject.records.get(kind, kind) if isinstance(kind, str) else kind
        lister = self._by_kind.get(kind)
        if lister is None:
            lister = self._by_kind[kind] = MemoryLister()
        return lister

    def put(self, obj: Any) -> Any:  # noqa: ANN401  # a record of any kind
        """Store an object; returns the previous one."""
        return self.of(type(obj)).put(obj)

    def everything(self) -> list[Any]:
        """The objects of all kinds."""
        return [obj for lister in self._by_kind.values() for obj in lister.list()]


class KeptObjects:
    """The objects sent to extenders, as far as they are stored here."""

    async def pod(self, pod: Pod) -> dict[str, Any]:
        manifest: dict[str, Any] = to_builtins(pod)
        return manifest

    victim = pod

    async def nodes(self, nodes: Sequence[Node]) -> list[dict[str, Any]]:
        return [to_builtins(node) for node in nodes]


class RefusingClient:
    """A client without methods, for read-only callers."""

    def __getattr__(self, verb: str) -> NoReturn:
        raise AttributeError(f"{verb} must not be called here")


class PretendingClient:
    """A client whose writes succeed and change nothing, for dry runs."""

    async def bind_pod(self, pod: Pod, node_name: str) -> None: ...

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None: ...

    async def delete_pod(self, pod: Pod) -> None: ...

    async def get(self, kind: type[R], namespace: str, name: str) -> R:
        raise NotFound(f'{kind.__name__} "{namespace}/{name}" is not read here')

    async def create(self, obj: R) -> R:
        return obj

    update = update_status = create

    async def patch_status(
        self, kind: type[R], namespace: str, name: str, patch: Mapping[str, Any]
    ) -> R:
        return await self.get(kind, namespace, name)

    async def delete(self, obj: Record) -> None: ...


class NoEvents:
    """An event recorder that discards events."""

    def event(self, *_event: object, **_named: object) -> None:
        """Discard an event."""


@dataclass(frozen=True, slots=True)
class InMemoryScheduler:
    """A scheduler loaded with a state."""

    assembly: Assembly
    listers: MemoryListers
    problems: list[str]
    """Objects that the scheduler rejects (such as invalid quantities), and why; it ignores them."""


def in_memory_scheduler(
    state: ClusterState,
    config: KubeSchedulerConfiguration | None = None,
    *,
    gates: FeatureGates = DEFAULT_GATES,
    registry: Registry | None = None,
    client: SchedulerClient | None = None,
    recorder: Callable[[str], EventRecorder] | None = None,
    clock: Clock | None = None,
    random: Random | None = None,
    call_later: CallLater | None = None,
    classes: bool = True,
    extenders: ExtenderFactory = no_extenders,
    max_in_unschedulable_s: float = 300.0,
    plugin_client: SchedulerClient | None = None,
    metrics: MetricsRegistry | SchedulerMetrics | None = None,
    measures_plugins: bool = False,
    wrap: Callable[[Dependencies], Dependencies] = lambda dependencies: dependencies,
) -> InMemoryScheduler:
    """Assemble a scheduler and load every object of the state. Nothing runs yet.

    Pods without a node that belong to one of the profiles are in its queue afterwards. `wrap` may
    replace the scheduler's dependencies.

    Raises:
        ConfigError: the configuration names plugins that do not exist or do not fit.
    """
    if registry is None:
        registry = installed_registry()
    config = config or default_config(gates)
    if not isinstance(metrics, SchedulerMetrics):
        metrics = metrics_for(config, gates, metrics or MetricsRegistry())
    listers = MemoryListers()
    no_events = NoEvents()
    dependencies = Dependencies(
        listers=listers,
        client=client or cast("SchedulerClient", RefusingClient()),
        recorder=recorder or (lambda _profile: no_events),
        clock=clock or ManualClock(),
        random=random or Random(0),
        # Separate, as in a recorded scheduler, so that ties draw the same numbers.
        jitter=Random(0),
        call_later=call_later or _call_later,
        metrics=metrics,
        measures_plugins=measures_plugins,
        extenders=extenders,
        plugin_client=plugin_client,
    )
    assembly = assemble(
        config,
        gates,
        registry,
        wrap(dependencies),
        classes=classes,
        max_in_unschedulable_s=max_in_unschedulable_s,
    )
    return InMemoryScheduler(assembly, listers, fill(assembly, listers, state))


def _call_later(delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(delay, callback)


def fill(assembly: Assembly, listers: MemoryListers, state: ClusterState) -> list[str]:
    """Load every object into the scheduler: stores first, as informers do, then nodes, then pods.

    Returns the rejections, which an informer would log before continuing.
    """
    with collector_paused(lambda: len(state)):
        return _fill(assembly.handlers, listers, state)


def _fill(handlers: EventHandlers, listers: MemoryListers, state: ClusterState) -> list[str]:
    for obj in state:
        listers.put(obj)
    problems: list[str] = []
    told: tuple[tuple[type[Any], Callable[[Any], None]], ...] = (
        (Namespace, handlers.namespace_changed),
        (Node, handlers.node_added),
        (CompositePodGroup, handlers.group_added),
        (PodGroup, handlers.group_added),
        (Pod, handlers.pod_added),
    )
    for kind, handler in told:
        for obj in state.of(kind):
            try:
                handler(obj)
            except KubeschedError as error:
                problems.append(f"{kind.__name__} {key_of(obj.metadata)}: {error}")
    return problems


def state_of_listers(
    title: str, listers: Listers, unwatched: Callable[[Kind[Any]], list[Any]] | None = None
) -> ClusterState:
    """A copy of the informers' stores; the records themselves are shared.

    `unwatched` provides objects of kinds without an informer: decisions do not depend on them, but
    admission may.
    """
    state = ClusterState(title)
    for kind in KINDS:
        try:
            objects = listers.of(kind.record).list()
        except UndeclaredKind:
            objects = [] if unwatched is None else unwatched(kind)
        for obj in objects:
            state.put(obj)
    return state
