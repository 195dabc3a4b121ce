"""An in-memory cluster: objects, the production scheduler over them, and virtual time.

    with Cluster([make_node("n1").build()]) as cluster:
        cluster.add(make_pod("a").build())
        cluster.settle()
        assert cluster.node_of("a") == "n1"

The cluster acts as API server, informers and event recorder: the scheduler's writes take effect at
once and return as events. There are no kubelets or controllers; the caller takes their part.

Everything runs on the cluster's own virtual loop, so the methods are plain functions, even inside a
running event loop. The loop is idle when no callback is ready and no timer is due.

| Method | Runs until |
|---|---|
| `settle()` | nothing can happen at this instant |
| `advance(seconds)` | the same, after setting the clock forward in one step: backoffs end |
| `run(seconds)` | that much time has passed, deadline by deadline |
| `run()` | waiting cannot help: each pending pod was tried since the last change |
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from random import Random
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, cast

from msgspec import structs

from kubesched.api.core_v1 import Namespace, Node, Pod, PodStatus
from kubesched.api.kinds import kind_of
from kubesched.api.meta import ObjectMeta, Record
from kubesched.api.names import key_of, object_key
from kubesched.base.clock import ManualClock
from kubesched.base.errors import ConfigError, FieldProblem, KubeschedError, NotFound
from kubesched.base.metrics.registry import MetricsRegistry
from kubesched.client.pool import HttpTransport
from kubesched.client.transport import ConnectionConfig, Request, Response, Transport
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.load import load
from kubesched.config.types import Extender as ExtenderConfig
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.events import Action
from kubesched.framework.extenders import Extender
from kubesched.framework.handle import SchedulerClient
from kubesched.framework.interfaces import Plugin
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.registry import Registry
from kubesched.insight.state.cluster_client import ClusterClient
from kubesched.insight.state.cluster_state import ClusterState, completed
from kubesched.insight.state.memory import KeptObjects, in_memory_scheduler
from kubesched.insight.state.virtual_loop import VirtualLoop, entered
from kubesched.playground.registry.binding import TOPOLOGY_LABELS
from kubesched.plugins.registry import installed_registry
from kubesched.scheduler.decisions import Decision
from kubesched.scheduler.factory import Dependencies
from kubesched.scheduler.http_extender import HttpExtender, make_extenders

R = TypeVar("R", bound=Record)
T = TypeVar("T")

FIRST_REVISION = 10**12
"""Above the revisions of any real cluster whose objects are loaded."""


LEAST_STEP_S = 0.001
"""Minimum step between deadlines: an overdue one that changes nothing must not stop time."""


class Event(NamedTuple):
    """An event that the scheduler recorded about a pod."""

    type: str
    reason: str
    pod: str
    """`namespace/name`."""
    note: str


class OutsideTransport:
    """Requests to the real network, on a loop of its own; virtual time stands still meanwhile."""

    def __init__(self, config: ConnectionConfig) -> None:
        self._transport = HttpTransport(config)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def request(self, request: Request) -> Response:
        return self._run(self._request(request))

    async def _request(self, request: Request) -> Response:
        await asyncio.sleep(0)  # notices connections that were closed since the last request
        return await self._transport.request(request)

    async def aclose(self) -> None:
        if self._loop is not None:
            self._run(self._transport.aclose())
            self._loop.close()
            self._loop = None

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        with entered(None):
            return self._loop.run_until_complete(work)


class Cluster:
    """Objects, their events, and the scheduler over them."""

    connect: ClassVar[type[OutsideTransport | HttpTransport]] = OutsideTransport
    """Creates the transport to an extender."""

    def __init__(
        self,
        objects: ClusterState | Iterable[Any] = (),
        config: KubeSchedulerConfiguration | str | None = None,
        *,
        plugins: Sequence[type[Plugin]] = (),
        gates: FeatureGates = DEFAULT_GATES,
        registry: Registry | None = None,
        seed: int = 1,
        classes: bool = True,
        measures_plugins: bool = True,
        remembers: bool = True,
        extender_transport: Transport | None = None,
        clock: ManualClock | None = None,
        max_in_unschedulable_s: float = 300.0,
        plugin_client: SchedulerClient | None = None,
        wrap: Callable[[Dependencies], Dependencies] = lambda dependencies: dependencies,
    ) -> None:
        """`config` is a `KubeSchedulerConfiguration`, as a record or as YAML.

        It may name `plugins` in addition to the in-tree and installed ones; a `registry`, which
        thousands of clusters may share, replaces them all. `extender_transport` replaces the
        network to the configured extenders. `wrap` may replace the scheduler's dependencies.
        Without `remembers`, neither events nor client calls are kept.

        Raises:
            ConfigError: the configuration names plugins that do not exist or do not fit.
        """
        assert registry is None or not plugins, "plugins belong to the registry"
        self.clock = clock or ManualClock()
        self.loop = VirtualLoop()
        self.client = ClusterClient(self, remembers=remembers)
        self._remembers = remembers
        self.events: list[Event] = []
        self.metrics = MetricsRegistry()
        self.changes = 0
        """Number of objects added, changed or removed so far."""
        self._extender_transport = extender_transport
        self._extenders: list[HttpExtender] = []
        self._revision = FIRST_REVISION
        self._timers: list[tuple[float, int, Callable[[], None], _Timer]] = []
        self._timer_count = 0
        self._run: asyncio.Task[None] | None = None
        self._is_over = False
        if isinstance(config, str):
            config = load(config.encode(), gates=gates, imports=True)
        scheduler = in_memory_scheduler(
            objects if isinstance(objects, ClusterState) else _state_of(objects),
            config,
            gates=gates,
            registry=registry_with(plugins) if plugins else registry,
            client=self.client,
            recorder=lambda _profile: self,
            clock=self.clock,
            random=Random(seed),
            call_later=self._call_later,
            classes=classes,
            extenders=self.make_extenders,
            max_in_unschedulable_s=max_in_unschedulable_s,
            plugin_client=plugin_client,
            metrics=self.metrics,
            measures_plugins=measures_plugins,
            wrap=wrap,
        )
        self.assembly = scheduler.assembly
        self.listers = scheduler.listers
        self.problems = scheduler.problems
        """Objects that the scheduler rejects (such as malformed quantities), and why."""
        handlers = self.assembly.handlers
        self._generic = {
            (resource, action): handlers.generic(resource, action)
            for resource, actions in self.assembly.hints.actions_by_resource().items()
            for action in (Action.ADD, Action.UPDATE, Action.DELETE)
            if actions & action
        }

    def make_extenders(
        self, configured: Sequence[ExtenderConfig], table: NodeTable
    ) -> Sequence[Extender]:
        """Extenders in call order, over the network unless the cluster has its own transport."""
        self._extenders = make_extenders(
            configured, _Stored(self), table, self._extender_transport, self.connect
        )
        return cast("Sequence[Extender]", self._extenders)

    # -- life --------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the scheduler; bindings in progress are cancelled and undone."""
        if not self._is_over:
            self._is_over = True
            for extender in self._extenders:
                self.loop.run(extender.aclose())
            self.loop.finish()

    # -- objects -----------------------------------------------------------------------------------

    def add(self, *objects: Any) -> None:  # noqa: ANN401  # of whichever kinds
        """Create objects; sets namespace, uid, revision and scheduler name as an API server does.

        Raises:
            KubeschedError: an object of this kind and name exists.
        """
        for obj in objects:
            new = completed(obj)
            if self.find(type(new), new.metadata.namespace, new.metadata.name) is not None:
                raise KubeschedError(f"{_named(new)} exists already")
            self._put(None, new)

    def update(self, obj: R) -> R:
        """Change an existing object; returns it as stored.

        Raises:
            NotFound: no object of this kind and name exists.
        """
        new, old = self._with_old(obj)
        if old is None:
            raise NotFound(f"{_named(new)} does not exist and cannot be updated")
        return self._put(old, new)

    def put(self, obj: R) -> R:
        """Create or update an object; returns it as stored."""
        new, old = self._with_old(obj)
        return self._put(old, new)

    def _with_old(self, obj: R) -> tuple[R, Any]:
        obj = completed(obj)
        meta = obj.metadata  # type: ignore[attr-defined]  # records of kinds have metadata
        return obj, self.find(type(obj), meta.namespace, meta.name)

    def _put(self, old: Any, new: R) -> R:  # noqa: ANN401  # as above
        """Store an object and notify the scheduler; sets a new revision if it has none."""
        meta = new.metadata  # type: ignore[attr-defined]  # as above
        if old is not None or not meta.resource_version:
            new = self._stamped(new)
        self._store(old, new)
        self.changes += 1
        handlers = self.assembly.handlers
        if isinstance(new, Pod):
            handlers.pod_added(new) if old is None else handlers.pod_updated(old, new)
        elif isinstance(new, Node):
            handlers.node_added(new) if old is None else handlers.node_updated(old, new)
        elif isinstance(new, Namespace):
            handlers.namespace_changed(new)
        else:
            self._tell(Action.ADD if old is None else Action.UPDATE, old, new)
        return new

    def delete(self, obj: Any) -> None:  # noqa: ANN401  # of whichever kind
        """Delete an object at once; does nothing if it is already gone."""
        old = self.find(type(obj), obj.metadata.namespace, obj.metadata.name)
        if old is None:
            return
        self._drop(old)
        self.changes += 1
        handlers = self.assembly.handlers
        if isinstance(old, Pod):
            handlers.pod_deleted(old)
        elif isinstance(old, Node):
            handlers.node_deleted(old)
        elif isinstance(old, Namespace):
            handlers.namespace_deleted(old)
        else:
            self._tell(Action.DELETE, old, None)

    def _store(self, old: Any, new: Any) -> None:  # noqa: ANN401  # as above
        del old
        self.listers.put(new)

    def _drop(self, obj: Any) -> None:  # noqa: ANN401  # as above
        self.listers.of(type(obj)).remove(obj.metadata.namespace, obj.metadata.name)

    def _tell(self, action: Action, old: Any, new: Any) -> None:  # noqa: ANN401  # as above
        kind = kind_of(type(old if new is None else new))
        if kind.told_as:
            old = new = None
        told = (kind.told_as, Action.UPDATE) if kind.told_as else (kind.event_resource, action)
        handler = self._generic.get(told)
        if handler is not None:
            handler(old, new)

    def _stamped(self, obj: R) -> R:
        self._revision += 1
        record: Any = obj
        meta = structs.replace(record.metadata, resource_version=str(self._revision))
        stamped: R = structs.replace(record, metadata=meta)
        return stamped

    def bound(self, pod: Pod, node_name: str) -> None:
        """The scheduler bound a pod, which ends its nomination. Override to act as kubelet."""
        metadata = self.with_topology_labels(pod, node_name)
        spec = structs.replace(pod.spec, node_name=node_name)
        status = structs.replace(pod.status, nominated_node_name="")
        self._put(pod, structs.replace(pod, metadata=metadata, spec=spec, status=status))

    def with_topology_labels(self, pod: Pod, node_name: str) -> ObjectMeta:
        """Metadata with the node's zone and region labels, which API servers add to bound pods."""
        node = self.find(Node, "", node_name)
        labels = (node.metadata.labels if node is not None else None) or {}
        added = {key: labels[key] for key in TOPOLOGY_LABELS if key in labels}
        if not added:
            return pod.metadata
        return structs.replace(pod.metadata, labels={**(pod.metadata.labels or {}), **added})

    def patched(self, pod: Pod, status: PodStatus) -> None:
        """The scheduler changed a pod's status."""
        before = self.changes
        self._put(pod, structs.replace(pod, status=status))
        # A condition alone makes no room, so the cluster stays settled.
        is_news = status.nominated_node_name != pod.status.nominated_node_name
        self.changes = before + is_news

    def evicted(self, pod: Pod) -> None:
        """The scheduler deleted a pod to make room. Override for a slow deletion."""
        self.delete(pod)

    # -- inspection --------------------------------------------------------------------------------

    def find(self, kind: type[R], namespace: str, name: str) -> R | None:
        """The object, or None. Cluster-scoped kinds use an empty namespace."""
        obj: R | None = self.listers.of(kind).get(namespace, name)
        return obj

    def objects(self, kind: type[R], namespace: str | None = None) -> list[R]:
        """All objects of a kind, in order of arrival."""
        return self.listers.of(kind).list(namespace)

    def current(self, obj: R) -> R:
        """The stored version; NotFound if it was deleted or replaced."""
        meta = obj.metadata  # type: ignore[attr-defined]  # records of kinds have metadata
        stored: Any = self.find(type(obj), meta.namespace, meta.name)
        if stored is None or stored.metadata.uid != meta.uid:
            raise NotFound(f'{type(obj).__name__} "{key_of(meta)}" not found')
        current: R = stored
        return current

    def pod(self, name: str, namespace: str = "default") -> Pod:
        """Raises KeyError if it does not exist."""
        pod = self.find(Pod, namespace, name)
        if pod is None:
            raise KeyError(object_key(namespace, name))
        return pod

    def node_of(self, name: str, namespace: str = "default") -> str:
        """The node that the pod is bound to; empty if it is pending."""
        return self.pod(name, namespace).spec.node_name

    def placements(self) -> dict[str, str]:
        """Nodes of all bound pods, by `namespace/name`."""
        pods = self.objects(Pod)
        return {key_of(pod.metadata): pod.spec.node_name for pod in pods if pod.spec.node_name}

    def nominations(self) -> dict[str, str]:
        """Nominated nodes by pod (`namespace/name`)."""
        pods = self.objects(Pod)
        named = ((key_of(pod.metadata), pod.status.nominated_node_name) for pod in pods)
        return {key: node for key, node in named if node}

    def condition(self, name: str, namespace: str = "default") -> tuple[str, str] | None:
        """(reason, message) of the pod's PodScheduled condition."""
        conditions = self.pod(name, namespace).status.conditions or ()
        return next(((c.reason, c.message) for c in conditions if c.type == "PodScheduled"), None)

    def place_in_queue(self, name: str, namespace: str = "default") -> str | None:
        """`active`, `backoff` or `unschedulable`; None if the pod is not queued."""
        return self.assembly.scheduler.queue.place_of(namespace, name)

    def decisions(self) -> list[Decision]:
        """The last attempts, newest first."""
        return list(self.assembly.scheduler.decisions.newest())

    def event(
        self,
        regarding: object,
        related: object | None,
        type_: str,
        reason: str,
        action: str,
        note: str,
    ) -> None:
        """Store an event; called as the scheduler's recorder."""
        del related, action
        if not self._remembers:
            return
        key = key_of(regarding.metadata) if isinstance(regarding, Pod) else ""
        self.events.append(Event(type_, reason, key, note))

    # -- running -----------------------------------------------------------------------------------

    def settle(self, until: Callable[[], bool] = lambda: False) -> None:
        """Run until nothing is left to do at this instant, then check the scheduler's invariants.

        Ends early once `until` returns True.
        """
        self._work(until)
        self.assembly.scheduler.check_invariants()

    def advance(self, seconds: float) -> None:
        """Set the clock forward in one step: timers fire, backoffs end."""
        self._jump(seconds)
        self.assembly.scheduler.check_invariants()

    def run(self, seconds: float | None = None) -> None:
        """Run for that long; without `seconds`, until waiting cannot help.

        Time advances from deadline to deadline. Waiting cannot help once no pod is in backoff, or
        each pending pod was tried again since the last change. A binding that waits for something
        outside the scheduler (volume provisioning) keeps waiting.
        """
        self._work()
        if seconds is None:
            self._run_on()
        else:
            self._run_to(self.clock.monotonic() + seconds)
        self.assembly.scheduler.check_invariants()

    def _run_on(self) -> None:
        queue = self.assembly.scheduler.queue
        changes, tried = self.changes, queue.scheduling_cycle
        while (due := self._next_due()) is not None:
            self._jump(max(0.0, due - self.clock.monotonic()))
            if changes != self.changes:
                changes, tried = self.changes, queue.scheduling_cycle
            elif queue.scheduling_cycle - tried > sum(queue.sizes):
                return

    def _run_to(self, end: float) -> None:
        while (now := self.clock.monotonic()) < end:
            timer_at, due = self.loop.next_timer_at, self._next_due()
            waits = [end - now]
            if timer_at is not None:
                waits.append(timer_at - self.loop.time())
            if due is not None:
                waits.append(due - now)
            self._jump(min(end - now, max(min(waits), LEAST_STEP_S)))

    def _work(self, until: Callable[[], bool] = lambda: False) -> None:
        if self._run is None:
            self._run = self.loop.create_task(self.assembly.scheduler.run())
        self.loop.run_until_idle(until)
        if self._run.done():
            self._run.result()  # raises, since it ends only by failing

    def _jump(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.loop.stall(seconds)
        self._fire_timers()
        self.assembly.scheduler.queue.run_timers()
        self._work()

    def _next_due(self) -> float | None:
        """The next backoff expiry or timer, if any."""
        queue = self.assembly.scheduler.queue
        active, backoff, _ = queue.sizes
        while self._timers and self._timers[0][3].is_cancelled:
            heapq.heappop(self._timers)
        due = [self._timers[0][0]] if self._timers else []
        if (active or backoff) and (deadline := queue.next_deadline()) is not None:
            due.append(deadline)
        return min(due, default=None)

    def _call_later(self, seconds: float, function: Callable[[], None]) -> _Timer:
        timer = _Timer()
        self._timer_count += 1
        entry = (self.clock.monotonic() + seconds, self._timer_count, function, timer)
        heapq.heappush(self._timers, entry)
        return timer

    def _fire_timers(self) -> None:
        now = self.clock.monotonic()
        while self._timers and self._timers[0][0] <= now:
            _, _, function, timer = heapq.heappop(self._timers)
            if not timer.is_cancelled:
                function()


class _Stored(KeptObjects):
    """The stored objects, as sent to extenders."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def pod(self, pod: Pod) -> dict[str, Any]:
        return await super().pod(self._cluster.current(pod))

    victim = pod


class _Timer:
    """Handle of a pending call."""

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


def registry_with(plugins: Sequence[type[Plugin]]) -> Registry:
    """The in-tree and installed plugins, and these.

    Raises:
        ConfigError: one of them is no plugin class.
    """
    registry = installed_registry()
    if isinstance(plugins, type):
        raise ConfigError([FieldProblem("plugins", f"[{plugins.__name__}] is needed, a list")])
    for plugin in plugins:
        if not isinstance(plugin, type) or not issubclass(plugin, Plugin):
            problem = FieldProblem("plugins", f"{plugin!r} is no class that derives from Plugin")
            raise ConfigError([problem])
        if not isinstance(getattr(plugin, "name", None), str):
            raise ConfigError([FieldProblem("plugins", f"{plugin.__name__} has no name")])
        registry.register(plugin.name, partial(_same, plugin))
    return registry


def _same(plugin: type[Plugin]) -> type[Plugin]:
    return plugin


def _state_of(objects: Iterable[Any]) -> ClusterState:
    state = ClusterState("memory")
    for obj in objects:
        state.put(obj)
    return state


def _named(obj: Any) -> str:  # noqa: ANN401  # anything with metadata
    return f"{type(obj).__name__} {key_of(obj.metadata)}"
