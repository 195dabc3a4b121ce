"""The binding cycle: WaitOnPermit, PreBind, Bind and PostBind of one assumed pod.

Most pods wait only for the response to one request. These are bound directly: the request is sent
when a slot is free, and its response triggers a callback. A task is used for a pod held by Permit
or PreBind, bound by another plugin or an extender, or whose request did not simply succeed.

Every failure is undone: Unreserve runs, the cache forgets the pod, and the pod is requeued.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from kubesched.api.names import key_of
from kubesched.base.errors import KubeschedError
from kubesched.base.logs import get_logger
from kubesched.base.metrics.instruments import Histogram
from kubesched.base.metrics.scheduler import FIRST_SUMMED_ATTEMPT, SchedulerMetrics, attempts_label
from kubesched.framework.diagnosis import Diagnosis, Failed, FitError
from kubesched.framework.direct_bind import BindOutcome, DirectBindPlugin
from kubesched.framework.events import EVENT_ASSIGNED_POD_DELETE
from kubesched.framework.nominating_info import CLEAR_NOMINATION, NominatingInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.runtime.bind import (
    direct_binder,
    finish_bind,
    run_bind,
    run_post_bind,
    run_pre_bind,
    run_pre_bind_pre_flight,
)
from kubesched.framework.runtime.guard import failure
from kubesched.framework.status import SKIP, Code, NodeToStatus, Status, error_status
from kubesched.framework.waiting_pods import WaitingPod
from kubesched.scheduler.binding_slots import BindingSlots
from kubesched.scheduler.event_gate import EventGate
from kubesched.scheduler.failure import FailureHandler, PutStatus
from kubesched.scheduler.flight import (
    BINDING_BEGINS,
    BINDING_DONE,
    PERMIT_DECIDED,
    PRE_BIND_BEGINS,
    PRE_BIND_DONE,
    FlightRecorder,
)
from kubesched.scheduler.queue.scheduling_queue import SchedulingQueue
from kubesched.scheduler.scheduling_cycle import Assumed, SchedulingCycle

log = get_logger(__name__)

BINDINGS_AT_A_TIME = 48
"""Concurrent binding requests: enough for an API server with 10 ms latency and 4,000 requests per
second, and fewer than the client's connections, so that none waits for a connection.
"""


Spawn = Callable[[Assumed, Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Runs the binding of a pod as a task."""
T = TypeVar("T")

Bind = Callable[[Assumed], Awaitable[Status | None]]
"""The remaining part of a binding; returns None if the pod is bound."""


@dataclass(slots=True, eq=False)
class DirectBinding:
    """A pod that is bound by callback: it waits for a slot, then for the response."""

    assumed: Assumed
    plugin: DirectBindPlugin
    spawn: Spawn
    started: float = 0.0
    give_up: Callable[[], None] | None = None
    """Set while the request is in flight."""
    is_called_off: bool = False


class BindingCycle:
    """Binds assumed pods."""

    def __init__(
        self,
        cycle: SchedulingCycle,
        queue: SchedulingQueue,
        failures: FailureHandler,
        metrics: SchedulerMetrics,
        put_status: PutStatus,
        flush_status: Callable[[str], Awaitable[None]],
        is_status_pending: Callable[[str], bool],
        *,
        event_gate: EventGate,
        nominate_for_expectation: bool = True,
        counts_flushed: bool = True,
        flight: FlightRecorder | None = None,
    ) -> None:
        self._cycle = cycle
        self._queue = queue
        self._failures = failures
        self._metrics = metrics
        self._put_status = put_status
        self._flush_status = flush_status
        self._is_status_pending = is_status_pending
        self._event_gate = event_gate
        self._flight = flight
        self._nominate_for_expectation = nominate_for_expectation
        self._counts_flushed = counts_flushed
        self.slots = BindingSlots(BINDINGS_AT_A_TIME)
        self._direct: dict[DirectBinding, None] = {}
        """In start order. A pod occurs twice if it was deleted and restored meanwhile."""
        self._unsent: list[DirectBinding] = []
        self._no_direct = asyncio.Event()
        self._no_direct.set()
        self._running = metrics.goroutines.labels("binding")
        self._sli: dict[int, Histogram] = {}
        """By number of attempts, up to the limit of separate series."""
        self.waiting_count = 0
        """Pods held by Permit or PreBind plugins. They use no slot and do not count as load."""
        self.on_capacity: Callable[[], None] = lambda: None
        """Called when a pod starts to wait or was bound directly: the loop may have capacity."""

    # -- without a task ----------------------------------------------------------------------------

    @property
    def direct_count(self) -> int:
        """Number of pods being bound without a task."""
        return len(self._direct)

    def start(self, assumed: Assumed, spawn: Spawn) -> None:
        """Bind one pod: directly if nothing has to be awaited, otherwise in a task.

        A replay has no client that binds directly, so its bindings can suspend.
        """
        acts = self._pre_flight(assumed)
        if isinstance(acts, Status):
            spawn(assumed, self.run(assumed, partial(_ended, acts)))
            return
        plugin = direct_binder(assumed.framework)
        if plugin is None or acts or not self._is_direct(assumed):
            spawn(assumed, self.run(assumed, partial(self._bind_on, acts=acts)))
            return
        if self._flight is not None:
            self._flight.passed(BINDING_BEGINS, assumed.pod.uid)
        self._queue.done(assumed.pod.uid)
        direct = DirectBinding(assumed, plugin, spawn)
        if not self._direct:
            self._no_direct.clear()
        self._direct[direct] = None
        self._running.inc()
        self.slots.acquire(partial(self._send_soon, direct))

    def _is_direct(self, assumed: Assumed) -> bool:
        """True if only the API server's response must be awaited, given that PreBind is idle."""
        framework, pod = assumed.framework, assumed.pod
        handle = framework.handle
        return (
            not framework.post_bind
            and (handle.waiting_pods is None or handle.waiting_pods.get(pod.uid) is None)
            and not self._is_status_pending(pod.key)
            and not (
                handle.extenders
                and (
                    not self._cycle.is_counted(assumed)  # deleted during an await
                    or any(e.is_binder and e.is_interested(pod.pod) for e in handle.extenders)
                )
            )
        )

    def _send_soon(self, direct: DirectBinding) -> None:
        """Send together with all others that got a slot in this turn of the loop.

        A burst of decisions followed by a burst of requests is faster than alternating between the
        two, because of CPU caches.
        """
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._send_all)
        self._unsent.append(direct)

    def _send_all(self) -> None:
        unsent, self._unsent = self._unsent, []
        for direct in unsent:
            self._send(direct)

    def _send(self, direct: DirectBinding) -> None:
        if direct.is_called_off:
            self.slots.release()
            return
        assumed = direct.assumed
        direct.started = assumed.framework.now()
        try:
            direct.give_up = direct.plugin.start_bind(
                assumed.pod.pod, assumed.node_name, partial(self._answered, direct)
            )
        except Exception as error:  # top level, as in `run`
            log.exception("Binding cycle broke", pod=assumed.pod.pod)
            self._end_direct(direct)
            self.slots.release()
            ended = partial(_ended, error_status(error))
            direct.spawn(assumed, self.run(assumed, ended, has_begun=True))

    def _answered(self, direct: DirectBinding, outcome: BindOutcome | None) -> None:
        assumed = direct.assumed
        self._end_direct(direct)
        if outcome is not None:
            finish = partial(self._finish_direct, direct, outcome)
            task = direct.spawn(assumed, self.run(assumed, finish, has_begun=True))
            # Not in the coroutine, which never begins if the scheduler ends in this turn.
            task.add_done_callback(lambda _task: self.slots.release())
            return
        try:
            self._bind_done(direct, None)
            if self._flight is not None:
                self._flight.passed(BINDING_DONE, assumed.pod.uid)
            self._record_success(assumed)
        except Exception as error:  # as above
            log.exception("Binding cycle broke", pod=assumed.pod.pod)
            self._fail(assumed, error_status(error))
        finally:
            self.slots.release()
            self.on_capacity()

    async def _finish_direct(
        self, direct: DirectBinding, outcome: BindOutcome, _assumed: Assumed
    ) -> Status | None:
        status = await finish_bind(direct.plugin, outcome)
        self._bind_done(direct, status)
        return status

    def _bind_done(self, direct: DirectBinding, status: Status | None) -> None:
        assumed = direct.assumed
        assumed.framework.point_done("Bind", direct.started, status)
        if assumed.state.timer is not None:
            code = Code.SUCCESS if status is None else status.code
            assumed.state.timer.observe(direct.plugin.name, "Bind", code, direct.started)

    def _end_direct(self, direct: DirectBinding) -> None:
        del self._direct[direct]
        direct.give_up = None  # breaks a reference cycle
        self._running.dec()
        if not self._direct:
            self._no_direct.set()

    def call_off(self) -> None:
        """Cancel and undo direct bindings; bindings in tasks are cancelled with their task."""
        for direct in list(self._direct):
            direct.is_called_off = True
            if direct.give_up is not None:
                direct.give_up()
                self.slots.release()
            self._end_direct(direct)
            self._cycle.undo(direct.assumed)

    async def wait_for_direct(self) -> None:
        """Return when no direct binding is left."""
        await self._no_direct.wait()

    # -- in a task ---------------------------------------------------------------------------------

    async def run(
        self, assumed: Assumed, bind: Bind | None = None, *, has_begun: bool = False
    ) -> None:
        """Bind one pod, or handle the failure. Raises only if cancelled.

        `bind` is the remaining work of a binding; `has_begun` if the recorder knows its beginning.
        """
        self._running.inc()
        flight, uid = self._flight, assumed.pod.uid
        try:
            if flight is not None and not has_begun:
                await flight.reach(BINDING_BEGINS, uid)
            status = await (bind or self._bind)(assumed)
            if status is not None:
                # Undoing changes the tables, which an attempt that awaits an extender reads.
                await self._event_gate.wait()
            if flight is not None:
                status = await flight.reach(BINDING_DONE, uid, status)
            if status is None:
                self._record_success(assumed)
                await self._post_bind(assumed)
            else:
                self._fail(assumed, status)
        except asyncio.CancelledError:
            self._cycle.undo(assumed)
            raise
        except Exception as error:  # top level of a task: handle every failure
            log.exception("Binding cycle broke", pod=assumed.pod.pod)
            self._fail(assumed, error_status(error))
        finally:
            self._running.dec()

    async def _bind(self, assumed: Assumed) -> Status | None:
        acts = self._pre_flight(assumed)
        return acts if isinstance(acts, Status) else await self._bind_on(assumed, acts=acts)

    def _pre_flight(self, assumed: Assumed) -> Status | bool:
        """Whether PreBind plugins will act, or the status of the failed binding."""
        framework, pod = assumed.framework, assumed.pod.pod
        acts = bool(framework.pre_bind)
        if self._nominate_for_expectation:
            started = framework.now()
            status = run_pre_bind_pre_flight(framework, assumed.state, pod, assumed.node_name)
            framework.point_done("PreBindPreFlight", started, status)
            if status is not None and status.code is not Code.SKIP:
                return status
            acts = status is None and acts
            waiting_pods = framework.handle.waiting_pods
            if acts or (waiting_pods is not None and waiting_pods.get(pod.metadata.uid)):
                # Upstream: a binding that takes time announces its node, so that other components
                # (and this scheduler after a restart) know where the pod is expected.
                self._put_status(
                    assumed.info.pod_info.pod, None, NominatingInfo(True, assumed.node_name)
                )
        return acts

    async def _bind_on(self, assumed: Assumed, *, acts: bool) -> Status | None:
        """Everything after the pre-flight."""
        framework, state, pod = assumed.framework, assumed.state, assumed.pod.pod
        status = await self._wait_on_permit(assumed)
        if status is not None:
            return status
        if not self._cycle.is_counted(assumed):
            return _deleted(assumed)
        # Upstream: Permit is the last point that can reject a pod; a later failure sends it to
        # backoff, whatever happened meanwhile. So the queue may drop the events it records for the
        # pod, which would pile up during a long PreBind.
        self._queue.done(pod.metadata.uid)
        # PreBind runs outside the slots: provisioning volumes may take minutes.
        status = await self._pre_bind(assumed) if acts else None
        if status is not None:
            return status
        async with self.slots.hold():
            # A late condition of an earlier attempt would mark the bound pod unschedulable.
            await self._flush_status(assumed.pod.key)
            if not self._cycle.is_counted(assumed):
                return _deleted(assumed)
            started = framework.now()
            status = await self._bind_by_extender(assumed)
            if status is SKIP:
                status = await run_bind(framework, state, pod, assumed.node_name)
            framework.point_done("Bind", started, status)
            return status

    async def _bind_by_extender(self, assumed: Assumed) -> Status | None:
        """Bind through the first binding extender; SKIP if none, or if an ignorable one failed."""
        pod = assumed.pod.pod
        for extender in assumed.framework.handle.extenders:
            if not extender.is_binder or not extender.is_interested(pod):
                continue
            try:
                await extender.bind(pod, assumed.node_name)
            except KubeschedError as error:
                if not extender.is_ignorable:
                    return error_status(error)
                log.error(
                    "Skipping extender in bind as it returned error", error, extender=extender.name
                )
            else:
                return None
        return SKIP

    async def _wait_on_permit(self, assumed: Assumed) -> Status | None:
        framework, uid = assumed.framework, assumed.pod.uid
        waiting_pods = framework.handle.waiting_pods
        waiting = waiting_pods.get(uid) if waiting_pods is not None else None
        if waiting is None:
            return None
        assert waiting_pods is not None, "a pod waits there"
        started = framework.now()
        self.waiting_count += 1
        self.on_capacity()
        try:
            status = waiting.outcome
            if status is None:  # often it was allowed before this task began
                status = await _outcome_of(waiting)
            if self._flight is not None:
                await self._flight.reach(PERMIT_DECIDED, uid)
        finally:
            self.waiting_count -= 1
            waiting_pods.remove(uid)
        waited = framework.now() - started
        self._metrics.permit_wait_duration_seconds.labels(status.code.upstream_name).observe(waited)
        if status.is_success:
            return None
        if status.is_rejected:
            diagnosis = Diagnosis(node_to_status=NodeToStatus({assumed.node_name: status}))
            diagnosis.unschedulable_plugins.add(status.plugin)
            return Status(status.code, error=FitError(assumed.pod.key, 1, diagnosis))
        return failure("waiting on permit for pod: ", status)

    async def _pre_bind(self, assumed: Assumed) -> Status | None:
        """Run PreBind so that preemption can cancel it."""
        framework = assumed.framework
        in_pre_bind = framework.handle.pods_in_pre_bind
        task = asyncio.ensure_future(self._run_pre_bind(assumed))
        entry = (
            None
            if in_pre_bind is None
            else in_pre_bind.add(assumed.pod.uid, lambda _reason: _cancel(task))
        )
        started = framework.now()
        self.waiting_count += 1
        self.on_capacity()
        try:
            try:
                status = await task
            except asyncio.CancelledError:
                # Either preemption cancelled the work, or the process is shutting down (re-raise).
                if entry is None or entry.cancel_reason is None:
                    raise
                status = error_status(entry.cancel_reason)
            if self._flight is not None:
                status = await self._flight.reach(PRE_BIND_DONE, assumed.pod.uid, status)
            framework.point_done("PreBind", started, status)
            if (
                entry is not None
                and (reason := entry.mark_prebound()) is not None
                and status is None
            ):
                status = error_status(reason)
            return status
        finally:
            self.waiting_count -= 1
            task.cancel()
            if in_pre_bind is not None:
                in_pre_bind.remove(assumed.pod.uid)

    async def _run_pre_bind(self, assumed: Assumed) -> Status | None:
        if self._flight is not None:
            # If preemption cancels the work before its first step, no plugin has written anything.
            await self._flight.reach(PRE_BIND_BEGINS, assumed.pod.uid)
        return await run_pre_bind(
            assumed.framework, assumed.state, assumed.pod.pod, assumed.node_name
        )

    def _record_success(self, assumed: Assumed) -> None:
        framework, info, pod = assumed.framework, assumed.info, assumed.pod.pod
        meta, now = pod.metadata, framework.now()
        if log.enabled(2):
            log.info(
                "Successfully bound pod to node",
                v=2,
                pod=pod,
                node=assumed.node_name,
                evaluatedNodes=assumed.result.evaluated_nodes,
                feasibleNodes=assumed.result.feasible_nodes,
            )
        if framework.handle.recorder is not None:
            note = f"Successfully assigned {meta.namespace}/{meta.name} to {assumed.node_name}"
            framework.handle.recorder.event(pod, None, "Normal", "Scheduled", "Binding", note)
        framework.attempt_done("scheduled", now - assumed.started)
        self._observe_pod(info, now)
        if not framework.post_bind:
            self._cycle.activate_asked_for(assumed.state)

    async def _post_bind(self, assumed: Assumed) -> None:
        framework = assumed.framework
        if framework.post_bind:
            started = framework.now()
            await run_post_bind(framework, assumed.state, assumed.pod.pod, assumed.node_name)
            framework.point_done("PostBind", started)
            self._cycle.activate_asked_for(assumed.state)

    def _observe_pod(self, info: QueuedPodInfo, now: float) -> None:
        self._metrics.pod_scheduling_attempts.observe(info.attempts)
        if info.initial_attempt_timestamp is not None:
            attempts = min(info.attempts, FIRST_SUMMED_ATTEMPT)
            sli = self._sli.get(attempts)
            if sli is None:
                family = self._metrics.pod_scheduling_sli_duration_seconds
                sli = self._sli[attempts] = family.labels(attempts_label(attempts))
            sli.observe(now - info.initial_attempt_timestamp)
        if info.was_flushed_from_unschedulable and self._counts_flushed:
            log.info(
                "Pod scheduled after flush from unschedulableEntities", v=2, pod=info.pod_info.pod
            )
            self._metrics.pod_scheduled_after_flush_total.inc()

    def _fail(self, assumed: Assumed, status: Status) -> None:
        """Undo, requeue, and tell the queue that the node has room again.

        # Upstream: after a rejection the event is sent last and skips the pod. Sent earlier, it
        # would be recorded among the events during the pod's attempt, and its own release would
        # send it straight back to backoff. After an error the pod is retried in any case.
        """
        forgotten = self._cycle.undo(assumed)
        uid, pod = assumed.pod.uid, assumed.pod.pod
        move = self._queue.move_all_to_active_or_backoff_queue
        if forgotten and not status.is_rejected:
            move(EVENT_ASSIGNED_POD_DELETE, pod, None)
        self._failures.handle(
            assumed.framework, assumed.info, Failed(status, CLEAR_NOMINATION), assumed.started
        )
        if forgotten and status.is_rejected:
            move(EVENT_ASSIGNED_POD_DELETE, pod, None, lambda other: other.metadata.uid != uid)
        handle = assumed.framework.handle
        if handle.waiting_pods is not None and handle.activate is not None:
            preemptor = handle.waiting_pods.preemptors.pop(uid, None)
            if preemptor is not None:
                handle.activate({key_of(preemptor.metadata): preemptor})


async def _outcome_of(waiting: WaitingPod) -> Status:
    decided: asyncio.Future[Status] = asyncio.get_running_loop().create_future()

    def settle(status: Status) -> None:
        if not decided.done():
            decided.set_result(status)

    waiting.add_done_callback(settle)
    return await decided


async def _ended(status: Status, _assumed: Assumed) -> Status | None:
    return status


def _cancel(task: asyncio.Future[Status | None]) -> None:
    task.cancel()


def _deleted(assumed: Assumed) -> Status:
    """The status for a pod whose deletion the watch has shown.

    If a restored cluster has the pod again, its queue entry may have been dropped during this
    attempt, so it must be requeued; its room on the node may belong to another pod by now.
    """
    return error_status(f'pod "{assumed.pod.key}" was deleted before it was bound')
