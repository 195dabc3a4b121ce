"""The cluster of a plan: one attempt at a time; pods run as soon as they are bound.

    with PlannedCluster(state, config) as world:
        world.add(pod)
        world.settle()

Time stops while there is work and then jumps to the next deadline. `settle` ends when nothing can
change: no pod is left to try, or every pending pod was tried since the last change.

A binding that waits for something outside the scheduler (volume provisioning, a Permit plugin)
stays pending, and the pod counts as assumed. Timeouts of waiting plugins do not fire.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from msgspec import structs

from kubesched.api.core_v1 import Pod, PodCondition, PodStatus
from kubesched.api.times import format_time
from kubesched.base.clock import ManualClock
from kubesched.base.errors import KubeschedError
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.types import Extender as ExtenderConfig
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.extenders import Extender
from kubesched.framework.handle import SchedulerClient
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.registry import Registry
from kubesched.insight.state.cluster import Cluster
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.scheduler.factory import no_extenders
from kubesched.scheduler.scheduler import AssumedGroup, Finished, QueueEmpty, Suspended
from kubesched.scheduler.scheduling_cycle import Assumed

_SET_BY_KUBELET = ("PodScheduled", "Ready")


class PlanError(KubeschedError):
    """A question that cannot be answered; the message gives the cause."""


class SteppedCluster(Cluster):
    """A cluster whose caller makes the attempts, one after the other, and moves the clock.

    `Cluster` runs the scheduler's own loop, which is what tests and sequences want to see. Plans
    and measurements need to know where an attempt begins and ends. Background work (evictions,
    status patches) runs in tasks, as it does in production.
    """

    _is_started = False

    def attempt(self) -> bool:
        """Try the next pod, and bind it if it got a node; False if there is none."""
        scheduler = self.assembly.scheduler
        outcome = scheduler.attempt()
        if isinstance(outcome, QueueEmpty):
            return False
        concluded: Assumed | AssumedGroup | Finished
        if isinstance(outcome, Suspended):
            with scheduler.event_gate.hold():
                concluded = self.loop.run(outcome.outcome)
        else:
            concluded = outcome
        if isinstance(concluded, Assumed):
            self.changes += 1
            self.bind(concluded)
        elif isinstance(concluded, AssumedGroup):
            for assumed in concluded.members:
                self.changes += 1
                self.bind(assumed)
        return True

    def bind(self, assumed: Assumed) -> asyncio.Task[None]:
        """Run a binding until it ends or waits for something outside the scheduler."""
        task = self.loop.create_task(self.assembly.scheduler.binding.run(assumed))
        self.work()
        return task

    @property
    def background_count(self) -> int:
        scheduler = self.assembly.scheduler
        return len(scheduler.background) + len(scheduler.status_writer)

    def finish_background(self) -> bool:
        """Run background work as far as possible; returns whether there was any."""
        before = self.background_count, self.changes
        if not before[0]:
            return False
        self.work()
        return before != (self.background_count, self.changes)

    def work(self) -> None:
        """Run started work until it ends or waits for something outside the scheduler."""
        if not self._is_started:
            self._is_started = True
            scheduler = self.assembly.scheduler
            self.loop.create_task(scheduler.status_writer.run())
            self.loop.create_task(scheduler.background.run())
        self.loop.run_until_idle()

    def jump_to(self, moment: float) -> None:
        """Set the clock forward to this moment, if it is still to come; timers fire."""
        self.clock.advance(max(0.0, moment - self.clock.monotonic()))
        self._fire_timers()
        self.flush_queue()

    def flush_queue(self) -> None:
        """Let the queue act on deadlines that have passed."""
        self.assembly.scheduler.queue.run_timers()


class PlannedCluster(SteppedCluster):
    """Runs until nothing can change. The initial state is not changed."""

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
        clock: ManualClock | None = None,
    ) -> None:
        """The configuration has no extenders.

        Raises:
            ConfigError: the configuration names plugins that do not exist or do not fit.
        """
        self.gates = gates
        super().__init__(
            state,
            config,
            gates=gates,
            registry=registry,
            seed=seed,
            measures_plugins=False,
            remembers=False,
            max_in_unschedulable_s=max_in_unschedulable_s,
            plugin_client=plugin_client,
            clock=clock,
        )
        self.on_bound: Callable[[Pod], None] = lambda _pod: None
        self.on_deleted: Callable[[Pod], None] = lambda _pod: None
        self.on_idle: Callable[[], float | None] = lambda: None
        """Runs controllers when the scheduler is idle; returns seconds until their next turn."""
        self._happened: deque[Callable[[], None]] = deque()
        """Pending hook calls; they run between attempts, outside the scheduler's error handling."""
        self.added_pods: list[Pod] = []
        """Pods added after the state, as added."""

    def make_extenders(
        self, configured: Sequence[ExtenderConfig], table: NodeTable
    ) -> Sequence[Extender]:
        return no_extenders(configured, table)

    # -- objects -----------------------------------------------------------------------------------

    def add(self, *objects: Any) -> None:  # noqa: ANN401  # of whichever kinds
        """Create objects.

        Raises:
            PlanError: an object with this name exists.
        """
        for obj in objects:
            try:
                super().add(obj)
            except KubeschedError as error:
                raise PlanError(str(error)) from None
            if isinstance(obj, Pod):
                self.added_pods.append(obj)

    def delete(self, obj: Any) -> None:  # noqa: ANN401  # as above
        old = self.find(type(obj), obj.metadata.namespace, obj.metadata.name)
        super().delete(obj)
        if isinstance(old, Pod):
            self.on_deleted(old)

    def where(self, pod: Pod) -> str:
        """The node on which the scheduler counts the pod: bound, or assumed during binding."""
        known = self.assembly.scheduler.cache.get_pod(pod.metadata.uid)
        return known.pod.spec.node_name if known is not None else ""

    def bound(self, pod: Pod, node_name: str) -> None:
        bound = self._put(
            pod,
            structs.replace(
                pod,
                metadata=self.with_topology_labels(pod, node_name),
                spec=structs.replace(pod.spec, node_name=node_name),
                status=self.status_when_bound(pod),
            ),
        )
        self._happened.append(lambda: self.on_bound(bound))

    def evicted(self, pod: Pod) -> None:
        super().delete(pod)
        self._happened.append(lambda: self.on_deleted(pod))

    def status_when_bound(self, pod: Pod) -> PodStatus:
        """The status that a kubelet would soon report: pods become ready at once."""
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
            start_time=_as_text(self.clock.now()),
        )

    # -- running -----------------------------------------------------------------------------------

    def settle(self, until: Callable[[], bool] = lambda: False) -> None:
        """Run the scheduler and the controllers behind `on_idle` until nothing more can happen."""
        tried, changes = 0, self.changes
        while True:
            self.run_hooks()
            if until():
                return
            if changes != self.changes:
                tried, changes = 0, self.changes
            if self.attempt():
                tried += 1
                if changes == self.changes and tried > self._pending_count():
                    return  # each was tried, some twice, and nothing has changed
            elif self.finish_background():
                continue
            else:
                again_s = self.on_idle()
                if changes == self.changes and not self._let_time_pass(again_s):
                    return

    def advance_to(self, moment: float) -> None:
        """Run the scheduler until the clock shows this moment, including retries after backoff."""
        tried, changes = 0, self.changes
        while True:
            self.run_hooks()
            if changes != self.changes:
                tried, changes = 0, self.changes
            # A pod that failed since the last change need not be retried at the same instant.
            if tried <= self._pending_count() and self.attempt():
                tried += 1
            elif self.finish_background():
                continue
            elif not self._step_towards(moment):
                return
            else:
                tried = 0

    def attempt_once(self) -> None:
        """Try one pod, and run everything that follows from it."""
        self.attempt()
        self.finish_background()
        self.run_hooks()

    def run_hooks(self) -> None:
        """Report pending changes to `on_bound` and `on_deleted`."""
        while self._happened:
            self._happened.popleft()()

    def _step_towards(self, moment: float) -> bool:
        """Advance to the next due event; False if there was none before the moment."""
        now, queue = self.clock.monotonic(), self.assembly.scheduler.queue
        due, before = self._next_due(), (queue.sizes, len(self._timers))
        if due is not None and due <= moment:
            self.jump_to(due)
            # An overdue deadline that changes nothing must not stop time.
            if due > now or (queue.sizes, len(self._timers)) != before:
                return True
        self.clock.advance(max(0.0, moment - self.clock.monotonic()))
        return False

    def _let_time_pass(self, again_s: float | None) -> bool:
        """Jump to the next backoff expiry, timer, or controller turn."""
        due = self._next_due()
        if again_s is not None:
            again = self.clock.monotonic() + again_s
            due = again if due is None else min(due, again)
        if due is None:
            return False
        self.jump_to(due)
        return True

    def _pending_count(self) -> int:
        return sum(self.assembly.scheduler.queue.sizes) + 1


@lru_cache(maxsize=1)
def _as_text(now: float) -> str:
    """The time as text; many pods are bound while the clock stands still."""
    return format_time(now)
