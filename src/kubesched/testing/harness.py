"""A scheduler without a cluster: listers over dictionaries, a client that records, a clock that stands still.

    async with SchedulerHarness(config) as world:
        world.add_node(make_node("n1").build())
        world.add_pod(make_pod("a").build())
        await world.settle()
        assert world.client.bindings == {"default/a": "n1"}

The harness plays API server and informer: what the scheduler writes takes effect and comes back as an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from msgspec import structs, to_builtins

from kubesched.api.core_v1 import Node, Pod, PodCondition
from kubesched.api.meta import Record
from kubesched.api.names import key_of
from kubesched.client.transport import Transport
from kubesched.clock import ManualClock
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.load import load
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.errors import Conflict, NotFound
from kubesched.framework.interfaces import Plugin
from kubesched.framework.registry import Registry
from kubesched.metrics.registry import MetricsRegistry
from kubesched.metrics.scheduler import SchedulerMetrics
from kubesched.plugins.registry import in_tree_registry
from kubesched.scheduler.factory import Assembly, Dependencies, assemble
from kubesched.scheduler.http_extender import make_extenders
from kubesched.state.stored_objects import StoredObjects

T = TypeVar("T")
R = TypeVar("R", bound=Record)

TURNS = 50
"""How often the event loop is given a turn before things count as settled."""


class DictLister:
    """A lister over a dictionary."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Any] = {}
        self.version = 0
        self._listeners: list[Callable[[Any, Any], None]] = []

    def get(self, namespace: str, name: str) -> Any:  # noqa: ANN401  # of whichever kind
        return self.objects.get((namespace, name))

    def list(self, namespace: str | None = None) -> Sequence[Any]:
        return [obj for (ns, _), obj in self.objects.items() if namespace in (None, ns)]

    def put(self, obj: Any) -> Any:  # noqa: ANN401  # as above
        key = (obj.metadata.namespace, obj.metadata.name)
        old = self.objects.get(key)
        self.objects[key] = obj
        self._changed(old, obj)
        return old

    def remove(self, namespace: str, name: str) -> None:
        self._changed(self.objects.pop((namespace, name), None), None)

    def subscribe(self, listener: Callable[[Any, Any], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _changed(self, old: Any, new: Any) -> None:  # noqa: ANN401  # as above
        self.version += 1
        for listener in list(self._listeners):
            listener(old, new)


class DictListers:
    """Listers of every kind, made on demand."""

    def __init__(self) -> None:
        self._by_kind: dict[type[Any] | str, DictLister] = {}

    def of(self, kind: type[Any] | str) -> DictLister:
        lister = self._by_kind.get(kind)
        if lister is None:
            lister = self._by_kind[kind] = DictLister()
        return lister


class RecordingClient(StoredObjects):
    """Takes the scheduler's writes, remembers them, and lets them take effect in the harness."""

    def __init__(self, world: SchedulerHarness) -> None:
        self._world = world
        self.bindings: dict[str, str] = {}
        self.patches: list[tuple[str, Mapping[str, Any]]] = []
        self.deleted: list[str] = []
        self.before_bind: Callable[[Pod, str], None] = lambda _pod, _node: None
        """Called before every binding; raise from it to make the binding fail."""
        self.written: list[Record] = []
        """Objects other than pods, in the order they were written."""
        self.before_write: Callable[[Record], None] = lambda _obj: None
        """Called before every write of these; raise from it to make the write fail."""
        self._generated = 0

    async def bind_pod(self, pod: Pod, node_name: str) -> None:
        self.before_bind(pod, node_name)
        current = self._world.current(pod)
        if current.spec.node_name:
            raise Conflict(
                f"pod {key_of(pod.metadata)} is already assigned to node {current.spec.node_name}"
            )
        self.bindings[key_of(pod.metadata)] = node_name
        self._world.update_pod(
            structs.replace(current, spec=structs.replace(current.spec, node_name=node_name))
        )

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        current = self._world.current(pod)
        self.patches.append((key_of(pod.metadata), patch))
        self._world.update_pod(structs.replace(current, status=_patched(current, patch["status"])))

    async def delete_pod(self, pod: Pod) -> None:
        self.deleted.append(key_of(pod.metadata))
        self._world.delete_pod(self._world.current(pod))

    def find(self, kind: type[R], namespace: str, name: str) -> R | None:
        stored: R | None = self._world.listers.of(kind).get(namespace, name)
        return stored

    def store(self, obj: R) -> R:
        self.before_write(obj)
        self.written.append(obj)
        stored: R = self._world.put(obj)
        return stored

    def discard(self, obj: Record) -> None:
        self.before_write(obj)
        self._world.remove(obj)

    def new_suffix(self) -> str:
        self._generated += 1
        return str(self._generated)


def _patched(pod: Pod, status: Mapping[str, Any]) -> Any:  # noqa: ANN401  # a PodStatus
    conditions = {c.type: c for c in pod.status.conditions or ()}
    for change in status.get("conditions", ()):
        old = conditions.get(change["type"], PodCondition(type=change["type"]))
        fields = {
            "status": change.get("status", old.status),
            "reason": change.get("reason", old.reason),
            "message": change.get("message", old.message),
        }
        conditions[change["type"]] = structs.replace(old, **fields)
    nominated = status.get("nominatedNodeName", pod.status.nominated_node_name) or ""
    return structs.replace(
        pod.status, conditions=list(conditions.values()) or None, nominated_node_name=nominated
    )


class RecordingRecorder:
    """Keeps events as (type, reason, object key, note)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, str]] = []

    def event(
        self,
        regarding: object,
        related: object | None,
        type_: str,
        reason: str,
        action: str,
        note: str,
    ) -> None:
        del related, action
        key = key_of(regarding.metadata) if isinstance(regarding, Pod) else ""
        self.events.append((type_, reason, key, note))


class SchedulerHarness:
    """A whole scheduler with a fake API server, informers and clock."""

    def __init__(
        self,
        config: KubeSchedulerConfiguration | str | None = None,
        *,
        plugins: Sequence[type[Plugin]] = (),
        gates: FeatureGates = DEFAULT_GATES,
        classes: bool = True,
        seed: int = 1,
        extender_transport: Transport | None = None,
        registry: Registry | None = None,
        measures_plugins: bool = True,
    ) -> None:
        """`extender_transport` replaces the network on the way to the configured extenders.

        Harnesses that are made by the thousand may share a `registry`, to which `plugins` are not added.
        """
        assert registry is None or not plugins, "plugins belong to the registry"
        self._extender_transport = extender_transport
        self._registry = registry
        self._measures_plugins = measures_plugins
        self._config = config
        self._plugins = plugins
        self._gates = gates
        self._classes = classes
        self.clock = ManualClock()
        self.random = Random(seed)
        self.listers = DictListers()
        self.client = RecordingClient(self)
        self.recorder = RecordingRecorder()
        self.metrics_registry = MetricsRegistry()
        self._revision = 0
        self._timers: list[tuple[float, Callable[[], None], _Timer]] = []
        self.assembly: Assembly
        self._task: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        config = self._config
        if not isinstance(config, KubeSchedulerConfiguration):
            text = (
                config
                or "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
            )
            config = load(text.encode(), gates=self._gates, imports=True)
        registry = self._registry or in_tree_registry()
        for plugin in self._plugins:
            registry.register(plugin.name, lambda plugin=plugin: plugin)  # type: ignore[misc]  # bound per plugin
        self.assembly = assemble(
            config,
            self._gates,
            registry,
            Dependencies(
                listers=self.listers,
                client=self.client,
                recorder=lambda _name: self.recorder,
                clock=self.clock,
                random=self.random,
                call_later=self._call_later,
                metrics=SchedulerMetrics(self.metrics_registry),
                measures_plugins=self._measures_plugins,
                extenders=lambda configured, table: make_extenders(
                    configured, _AsKept(self), table, self._extender_transport
                ),
            ),
            classes=self._classes,
        )
        self._task = asyncio.create_task(self.assembly.scheduler.run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled() and (failure := self._task.exception()) is not None:
            raise failure

    # -- time ------------------------------------------------------------------------------------------------------

    def _call_later(self, seconds: float, function: Callable[[], None]) -> _Timer:
        timer = _Timer()
        self._timers.append((self.clock.monotonic() + seconds, function, timer))
        return timer

    async def settle(self) -> None:
        """Run the event loop until nothing is ready at the current time, then check the scheduler's invariants."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self.assembly.scheduler.check_invariants()

    async def advance(self, seconds: float) -> None:
        """Advance the clock: timers fire, the queue flushes what is due."""
        self.clock.advance(seconds)
        due = [entry for entry in self._timers if entry[0] <= self.clock.monotonic()]
        self._timers = [entry for entry in self._timers if entry not in due]
        for _, function, timer in due:
            if not timer.is_cancelled:
                function()
        self.assembly.scheduler.queue.run_timers()
        await self.settle()

    # -- the cluster -----------------------------------------------------------------------------------------------

    def current(self, pod: Pod) -> Pod:
        """The stored version; NotFound when it is gone or another one by now."""
        current: Pod | None = self.listers.of(Pod).get(pod.metadata.namespace, pod.metadata.name)
        if current is None or current.metadata.uid != pod.metadata.uid:
            raise NotFound(f'pods "{pod.metadata.name}" not found')
        return current

    def pod(self, name: str, namespace: str = "default") -> Pod:
        pod: Pod = self.listers.of(Pod).objects[namespace, name]
        return pod

    def add_node(self, node: Node) -> None:
        self.listers.of(Node).put(node)
        self.assembly.handlers.node_added(node)

    def update_node(self, node: Node) -> None:
        old = self.listers.of(Node).put(node)
        self.assembly.handlers.node_updated(old, node)

    def delete_node(self, name: str) -> None:
        node = self.listers.of(Node).get("", name)
        self.listers.of(Node).remove("", name)
        self.assembly.handlers.node_deleted(node)

    def add_pod(self, pod: Pod) -> None:
        pod = self._stamped(pod)
        self.listers.of(Pod).put(pod)
        self.assembly.handlers.pod_added(pod)

    def update_pod(self, pod: Pod) -> None:
        pod = self._stamped(pod)
        old = self.listers.of(Pod).put(pod)
        self.assembly.handlers.pod_updated(old, pod)

    def delete_pod(self, pod: Pod) -> None:
        self.listers.of(Pod).remove(pod.metadata.namespace, pod.metadata.name)
        self.assembly.handlers.pod_deleted(pod)

    def put(self, obj: Any) -> Any:  # noqa: ANN401  # of whichever kind
        """Store an object of any other kind, new or changed; returned as stored."""
        obj = self._stamped(obj)
        self.listers.of(type(obj)).put(obj)
        return obj

    def remove(self, obj: Any) -> None:  # noqa: ANN401  # as above
        """Delete an object of any other kind."""
        self.listers.of(type(obj)).remove(obj.metadata.namespace, obj.metadata.name)

    def _stamped(self, obj: T) -> T:
        self._revision += 1
        record: Any = obj
        meta = structs.replace(record.metadata, resource_version=str(self._revision))
        return cast("T", structs.replace(record, metadata=meta))

    def condition(self, name: str, namespace: str = "default") -> tuple[str, str] | None:
        """(reason, message) of the pod's PodScheduled condition."""
        conditions = self.pod(name, namespace).status.conditions or ()
        return next(((c.reason, c.message) for c in conditions if c.type == "PodScheduled"), None)

    def place_in_queue(self, name: str, namespace: str = "default") -> str | None:
        return self.assembly.scheduler.queue.place_of(namespace, name)


class _AsKept:
    """What extenders are sent here: the stored records, which hold all that a test put in."""

    def __init__(self, harness: SchedulerHarness) -> None:
        self._harness = harness

    async def pod(self, pod: Pod) -> dict[str, Any]:
        manifest: dict[str, Any] = to_builtins(self._harness.current(pod))
        return manifest

    victim = pod

    async def nodes(self, nodes: Sequence[Node]) -> list[dict[str, Any]]:
        return [to_builtins(node) for node in nodes]


class _Timer:
    """A handle on a pending call."""

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
