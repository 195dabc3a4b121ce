"""A cluster in memory for the production scheduler: its writes take effect at once and come back as events.

    async with PlannedCluster(state, config) as world:
        world.add(pod)
        await world.settle()

Time is virtual: it stands still while there is anything to do and then jumps to the next deadline. `settle` ends when
nothing can change any more: no pod is left to try, or every pending pod was tried since the last change.

A binding that waits for something outside the scheduler (a volume to be provisioned, a Permit plugin) keeps its place; the
pod counts as assumed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from msgspec import structs

from kubesched.api import codec
from kubesched.api.core_v1 import Namespace, Node, Pod, PodCondition, PodStatus
from kubesched.api.kinds import kind_of
from kubesched.api.meta import Record
from kubesched.api.names import key_of
from kubesched.api.times import format_time
from kubesched.clock import ManualClock
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.types import Extender as ExtenderConfig
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.embedded.registry.binding import TOPOLOGY_LABELS
from kubesched.errors import Conflict, KubeschedError, NotFound
from kubesched.explain.extenders import KeptObjects
from kubesched.framework.events import Action
from kubesched.framework.extenders import Extender
from kubesched.framework.handle import SchedulerClient
from kubesched.framework.registry import Registry
from kubesched.scheduler.factory import no_extenders
from kubesched.scheduler.http_extender import HttpExtender, make_extenders
from kubesched.scheduler.scheduler import QueueEmpty, Suspended
from kubesched.scheduler.scheduling_cycle import Assumed
from kubesched.snapshot.node_table import NodeTable
from kubesched.state.cluster_state import ClusterState
from kubesched.state.memory import in_memory_scheduler
from kubesched.state.stored_objects import StoredObjects

R = TypeVar("R", bound=Record)

TURNS = 1000
"""Turns of the event loop that background work (victims' deletions, status patches) gets to end."""
BINDING_TURNS = 25
"""Turns that a binding gets. One without external waits takes about ten."""


class PlanError(KubeschedError):
    """A question that cannot be answered, and why."""


class PlannedCluster(StoredObjects):
    """Objects, their events, and the scheduler over them. The state it starts from is not changed."""

    def __init__(
        self,
        state: ClusterState,
        config: KubeSchedulerConfiguration | None = None,
        *,
        gates: FeatureGates = DEFAULT_GATES,
        registry: Registry | None = None,
        seed: int = 0,
        max_in_unschedulable_s: float = 300.0,
        plugin_client: SchedulerClient | None = None,
        extenders: bool = False,
        clock: ManualClock | None = None,
    ) -> None:
        """`extenders` says whether configured extenders are asked; without it there must be none.

        Raises:
            ConfigError: the configuration names plugins that do not exist or do not fit.
        """
        self.clock = clock or ManualClock()
        self._extenders: list[HttpExtender] = []
        self._timers: list[tuple[float, int, Callable[[], None], _Timer]] = []
        scheduler = in_memory_scheduler(
            state,
            config,
            gates=gates,
            registry=registry,
            client=self,
            clock=self.clock,
            random=Random(seed),
            call_later=self._call_later,
            max_in_unschedulable_s=max_in_unschedulable_s,
            plugin_client=plugin_client,
            extenders=self._make_extenders if extenders else no_extenders,
        )
        self.assembly = scheduler.assembly
        self.listers = scheduler.listers
        self.problems = scheduler.problems
        """Objects of the state that the scheduler refuses, and why."""
        self.on_bound: Callable[[Pod], None] = lambda _pod: None
        self.on_deleted: Callable[[Pod], None] = lambda _pod: None
        self.on_idle: Callable[[], float | None] = lambda: None
        """Lets controllers act when the scheduler has nothing to do; returns seconds until they want another turn."""
        self._happened: deque[Callable[[], None]] = deque()
        """Calls of the hooks that are due: they run between attempts, where their failures are not the scheduler's."""
        self.held_calls = 0
        """Background work that waits for something outside the scheduler."""
        self.changes = 0
        """Counts what happened: objects added, changed or removed."""
        self.added_pods: list[Pod] = []
        """Pods that came after the state, as they came."""
        self._revision = 0
        self._bindings: dict[str, asyncio.Task[None]] = {}
        self._service: list[asyncio.Task[None]] = []
        handlers = self.assembly.handlers
        self._generic = {
            (resource, action): handlers.generic(resource, action)
            for resource, actions in self.assembly.hints.actions_by_resource().items()
            for action in (Action.ADD, Action.UPDATE, Action.DELETE)
            if actions & action
        }

    async def __aenter__(self) -> Self:
        scheduler = self.assembly.scheduler
        self._service = [
            asyncio.create_task(scheduler.status_writer.run()),
            asyncio.create_task(scheduler.background.run()),
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        tasks = [*self._bindings.values(), *self._service]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for extender in self._extenders:
            await extender.aclose()

    def _make_extenders(
        self, configured: Sequence[ExtenderConfig], table: NodeTable
    ) -> Sequence[Extender]:
        self._extenders = make_extenders(configured, KeptObjects(), table)
        return cast("Sequence[Extender]", self._extenders)

    # -- objects -----------------------------------------------------------------------------------------------------

    def add(self, obj: Any) -> None:  # noqa: ANN401  # of whichever kind
        """Create an object.

        Raises:
            PlanError: there is one of this name.
        """
        meta = obj.metadata
        if self.find(type(obj), meta.namespace, meta.name) is not None:
            raise PlanError(f"{type(obj).__name__} {key_of(meta)} exists already")
        self.changes += 1
        self.listers.put(obj)
        handlers = self.assembly.handlers
        if isinstance(obj, Pod):
            self.added_pods.append(obj)
            handlers.pod_added(obj)
        elif isinstance(obj, Node):
            handlers.node_added(obj)
        elif isinstance(obj, Namespace):
            handlers.namespace_changed(obj)
        else:
            self._tell(Action.ADD, None, obj)

    def replace(self, obj: Any) -> None:  # noqa: ANN401  # as above
        """Update an object that exists."""
        if isinstance(obj, Pod):
            self.update_pod(obj)
            return
        self.changes += 1
        old = self.listers.put(obj)
        handlers = self.assembly.handlers
        if isinstance(obj, Node):
            handlers.node_updated(old, obj)
        elif isinstance(obj, Namespace):
            handlers.namespace_changed(obj)
        else:
            self._tell(Action.UPDATE, old, obj)

    def remove(self, obj: Any) -> None:  # noqa: ANN401  # as above
        """Delete an object; one that is gone already stays gone."""
        old = self.find(type(obj), obj.metadata.namespace, obj.metadata.name)
        if old is None:
            return
        if isinstance(old, Pod):
            self._discard_pod(old)
            self.on_deleted(old)
            return
        self.changes += 1
        self.listers.store(type(obj)).remove(key_of(obj.metadata))
        handlers = self.assembly.handlers
        if isinstance(old, Node):
            handlers.node_deleted(old)
        elif isinstance(old, Namespace):
            handlers.namespace_deleted(old)
        else:
            self._tell(Action.DELETE, old, None)

    def _discard_pod(self, pod: Pod) -> None:
        self.changes += 1
        self.listers.store(Pod).remove(key_of(pod.metadata))
        self.assembly.handlers.pod_deleted(pod)

    def pods(self) -> list[Pod]:
        return self.listers.store(Pod).values()

    def nodes(self) -> list[Node]:
        return self.listers.store(Node).values()

    def node_of(self, pod: Pod) -> str:
        """Where the scheduler counts the pod: bound, or assumed while its binding waits."""
        known = self.assembly.scheduler.cache.get_pod(pod.metadata.uid)
        return known.pod.spec.node_name if known is not None else ""

    def update_pod(self, pod: Pod) -> None:
        self.changes += 1
        pod = self._stamped(pod)
        old = self.listers.put(pod)
        self.assembly.handlers.pod_updated(old, pod)

    def _tell(self, action: Action, old: Any, new: Any) -> None:  # noqa: ANN401  # as above
        kind = kind_of(type(old if new is None else new))
        handler = self._generic.get((kind.event_resource, action))
        if handler is not None:
            handler(old, new)

    def _stamped(self, obj: R) -> R:
        self._revision += 1
        record: Any = obj
        meta = structs.replace(record.metadata, resource_version=f"planned-{self._revision}")
        stamped: R = structs.replace(record, metadata=meta)
        return stamped

    # -- what the scheduler asks of a client -------------------------------------------------------------------------

    def current(self, obj: Record) -> Any:  # noqa: ANN401  # as above
        """The stored version; NotFound when it is gone or another one by now."""
        record: Any = obj
        meta = record.metadata
        current: Any = self.find(type(obj), meta.namespace, meta.name)
        if current is None or current.metadata.uid != meta.uid:
            raise NotFound(f'{type(obj).__name__} "{key_of(meta)}" not found')
        return current

    async def bind_pod(self, pod: Pod, node_name: str) -> None:
        current: Pod = self.current(pod)
        if current.spec.node_name:
            raise Conflict(
                f"pod {key_of(pod.metadata)} is already assigned to node {current.spec.node_name}"
            )
        bound = structs.replace(
            current,
            metadata=self._with_topology_labels(current, node_name),
            spec=structs.replace(current.spec, node_name=node_name),
            status=self.status_when_bound(current),
        )
        self.update_pod(bound)
        self._happened.append(lambda: self.on_bound(bound))

    def status_when_bound(self, pod: Pod) -> PodStatus:
        """The status that a kubelet would soon report: pods are taken to start and become ready at once."""
        others = [
            condition
            for condition in pod.status.conditions or ()
            if condition.type not in _SET_BY_KUBELET
        ]
        ready = [PodCondition(type=name, status="True") for name in _SET_BY_KUBELET]
        return structs.replace(
            pod.status,
            phase="Running",
            conditions=[*others, *ready],
            nominated_node_name="",
            start_time=format_time(self.clock.now()),
        )

    def _with_topology_labels(self, pod: Pod, node_name: str) -> Any:  # noqa: ANN401  # an ObjectMeta
        """A bound pod carries the zone and region of its node, as API servers add them."""
        node = self.find(Node, "", node_name)
        labels = (node.metadata.labels if node is not None else None) or {}
        added = {key: labels[key] for key in TOPOLOGY_LABELS if key in labels}
        if not added:
            return pod.metadata
        return structs.replace(pod.metadata, labels={**(pod.metadata.labels or {}), **added})

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        current: Pod = self.current(pod)
        change = patch["status"]
        conditions = {condition.type: condition for condition in current.status.conditions or ()}
        for changed in change.get("conditions", ()):
            known = {name: value for name, value in changed.items() if not name.startswith("$")}
            conditions[changed["type"]] = codec.convert(known, PodCondition)
        nominated = change.get("nominatedNodeName", current.status.nominated_node_name) or ""
        status = structs.replace(
            current.status,
            conditions=list(conditions.values()) or None,
            nominated_node_name=nominated,
        )
        before = self.changes
        self.update_pod(structs.replace(current, status=status))
        # A condition alone makes no room: what is settled stays settled.
        self.changes = before + (nominated != current.status.nominated_node_name)

    async def delete_pod(self, pod: Pod) -> None:
        deleted: Pod = self.current(pod)
        self._discard_pod(deleted)
        self._happened.append(lambda: self.on_deleted(deleted))

    def find(self, kind: type[R], namespace: str, name: str) -> R | None:
        obj: R | None = self.listers.of(kind).get(namespace, name)
        return obj

    def store(self, obj: R) -> R:
        stored: Any = self._stamped(obj)
        if self.find(type(obj), stored.metadata.namespace, stored.metadata.name) is None:
            self.add(stored)
        else:
            self.replace(stored)
        result: R = stored
        return result

    def discard(self, obj: Record) -> None:
        self.remove(obj)

    def new_suffix(self) -> str:
        return str(self._revision)

    # -- running -----------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Let the scheduler, and the controllers behind `on_idle`, work until nothing more can happen."""
        tried, changes = 0, self.changes
        while True:
            while self._happened:
                self._happened.popleft()()
            if changes != self.changes:
                tried, changes = 0, self.changes
            if await self._attempt():
                tried += 1
                if changes == self.changes and tried > self._pending_count():
                    return  # each was tried, some of them twice, and nothing has changed
            elif await self.settle_background():
                continue
            else:
                again_s = self.on_idle()
                if changes == self.changes and not self._let_time_pass(again_s):
                    return

    async def advance_to(self, moment: float) -> None:
        """Let the scheduler work until the clock shows this moment, retries at the end of backoffs included."""
        tried, changes = 0, self.changes
        while True:
            await self.run_hooks()
            if changes != self.changes:
                tried, changes = 0, self.changes
            # A pod that was tried since the last change and failed need not be tried again at the same instant.
            if tried <= self._pending_count() and await self._attempt():
                tried += 1
            elif await self.settle_background():
                continue
            elif not self._step_towards(moment):
                return
            else:
                tried = 0

    async def attempt_once(self) -> None:
        """Let the scheduler try one pod, and everything happen that follows from it."""
        await self._attempt()
        await self.settle_background()
        await self.run_hooks()

    async def run_hooks(self) -> None:
        """Report what happened to `on_bound` and `on_deleted`."""
        while self._happened:
            self._happened.popleft()()

    def _step_towards(self, moment: float) -> bool:
        """Pass time until something is due; False if nothing was, and the moment has come."""
        now, queue = self.clock.monotonic(), self.assembly.scheduler.queue
        due, before = self._next_due(), (queue.sizes, len(self._timers))
        if due is not None and due <= moment:
            self.clock.advance(max(0.0, due - now))
            self._fire_timers()
            queue.run_timers()
            # A deadline that has passed and changes nothing must not hold up time.
            if due > now or (queue.sizes, len(self._timers)) != before:
                return True
        self.clock.advance(max(0.0, moment - self.clock.monotonic()))
        return False

    def _next_due(self) -> float | None:
        queue = self.assembly.scheduler.queue
        active, backoff, _ = queue.sizes
        deadline = queue.next_deadline() if active or backoff else None
        due = [moment for moment, *_ in self._timers]
        if deadline is not None:
            due.append(deadline)
        return min(due, default=None)

    def _pending_count(self) -> int:
        return sum(self.assembly.scheduler.queue.sizes) + 1

    async def _attempt(self) -> bool:
        """Try the next pod, and bind it if it got a node; False when there is none."""
        scheduler = self.assembly.scheduler
        outcome = scheduler.attempt()
        if isinstance(outcome, QueueEmpty):
            return False
        if isinstance(outcome, Suspended):
            with scheduler.event_gate.hold():
                concluded = await outcome.outcome
        else:
            concluded = outcome
        if isinstance(concluded, Assumed):
            await self._bind(concluded)
        return True

    async def _bind(self, assumed: Assumed) -> None:
        self.changes += 1
        uid = assumed.pod.uid
        task = asyncio.create_task(self.assembly.scheduler.binding.run(assumed))
        for _ in range(BINDING_TURNS):
            await asyncio.sleep(0)
            if task.done():
                return
        self._bindings[uid] = task
        task.add_done_callback(lambda _task: self._bindings.pop(uid, None))

    async def settle_background(self) -> bool:
        """Let background work end; returns whether there was any."""
        scheduler = self.assembly.scheduler
        if len(scheduler.background) <= self.held_calls and not len(scheduler.status_writer):
            return False
        for _ in range(TURNS):
            await asyncio.sleep(0)
            if len(scheduler.background) <= self.held_calls and not len(scheduler.status_writer):
                return True
        raise PlanError("background work of the scheduler does not come to an end")

    def _let_time_pass(self, again_s: float | None) -> bool:
        """Jump to when something is due: the end of a backoff, a timer, or the controllers' next turn."""
        now = self.clock.monotonic()
        due = self._next_due()
        if again_s is not None:
            due = now + again_s if due is None else min(due, now + again_s)
        if due is None:
            return False
        self.clock.advance(max(0.0, due - now))
        self._fire_timers()
        self.assembly.scheduler.queue.run_timers()
        return True

    def _call_later(self, seconds: float, function: Callable[[], None]) -> _Timer:
        timer = _Timer()
        self._timers.append((self.clock.monotonic() + seconds, len(self._timers), function, timer))
        return timer

    def _fire_timers(self) -> None:
        now = self.clock.monotonic()
        due = sorted(entry[:2] for entry in self._timers if entry[0] <= now)
        for moment in due:
            entry = next(timer for timer in self._timers if timer[:2] == moment)
            self._timers.remove(entry)
            if not entry[3].is_cancelled:
                entry[2]()


class _Timer:
    """A handle on a pending call."""

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


_SET_BY_KUBELET = ("PodScheduled", "Ready")
