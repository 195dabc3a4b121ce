"""The binding cycle: WaitOnPermit, PreBind, Bind and PostBind of one assumed pod, one task per pod.

Every failure is undone: Unreserve runs, the cache forgets the pod, and the pod is requeued.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kubesched.errors import KubeschedError
from kubesched.framework.diagnosis import Diagnosis, FitError
from kubesched.framework.events import EVENT_ASSIGNED_POD_DELETE
from kubesched.framework.nominating_info import CLEAR_NOMINATION, NominatingInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.runtime.bind import (
    run_bind,
    run_post_bind,
    run_pre_bind,
    run_pre_bind_pre_flight,
)
from kubesched.framework.runtime.guard import failure
from kubesched.framework.status import SKIP, Code, NodeToStatus, Status, error_status
from kubesched.logs import get_logger
from kubesched.metrics.instruments import Histogram
from kubesched.metrics.scheduler import SchedulerMetrics, attempts_label
from kubesched.queue.scheduling_queue import SchedulingQueue
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
from kubesched.scheduler.scheduling_cycle import Assumed, SchedulingCycle

log = get_logger(__name__)

BINDINGS_AT_A_TIME = 48
"""Concurrent binding requests: enough to keep an API server busy that takes 10 ms for each of 4,000 per second, and
fewer than the client has connections, so that none waits for one."""


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
        *,
        event_gate: EventGate,
        nominate_for_expectation: bool = True,
        concurrency: int = BINDINGS_AT_A_TIME,
        flight: FlightRecorder | None = None,
    ) -> None:
        self._cycle = cycle
        self._queue = queue
        self._failures = failures
        self._metrics = metrics
        self._put_status = put_status
        self._flush_status = flush_status
        self._event_gate = event_gate
        self._flight = flight
        self._nominate_for_expectation = nominate_for_expectation
        self._slots = asyncio.Semaphore(concurrency)
        self._running = metrics.goroutines.labels("binding")
        self._sli: dict[str, Histogram] = {}
        self.waiting_count = 0
        """Pods held by Permit or PreBind plugins. They use no binding slot, so they do not count as load."""
        self.on_waiting: Callable[[], None] = lambda: None
        """Called when a pod starts to wait: the scheduling loop may have capacity again."""

    async def run(self, assumed: Assumed) -> None:
        """Bind one pod, or handle the failure. Raises only if cancelled."""
        self._running.inc()
        flight, uid = self._flight, assumed.pod.uid
        try:
            if flight is not None:
                await flight.reach(BINDING_BEGINS, uid)
            status = await self._bind(assumed)
            if status is not None:
                # Undoing changes the tables, which an attempt that awaits an extender relies on.
                await self._event_gate.wait()
            if flight is not None:
                status = await flight.reach(BINDING_DONE, uid, status)
            if status is None:
                await self._record_success(assumed)
            else:
                self._fail(assumed, status)
        except asyncio.CancelledError:
            self._cycle.undo(assumed)
            raise
        except Exception as error:  # the outermost edge of a task: nothing may be lost silently
            log.exception("Binding cycle broke", pod=assumed.pod.pod)
            self._fail(assumed, error_status(error))
        finally:
            self._running.dec()

    async def _bind(self, assumed: Assumed) -> Status | None:
        framework, state, pod = assumed.framework, assumed.state, assumed.pod.pod
        waiting_pods = framework.handle.waiting_pods
        waiting = waiting_pods.get(pod.metadata.uid) if waiting_pods is not None else None
        acts = bool(framework.pre_bind)
        if self._nominate_for_expectation:
            started = framework.now()
            status = run_pre_bind_pre_flight(framework, state, pod, assumed.node_name)
            framework.point_done("PreBindPreFlight", started, status)
            if status is not None and status.code is not Code.SKIP:
                return status
            acts = status is None and bool(framework.pre_bind)
            if acts or waiting is not None:
                # Upstream: a binding that takes time announces its node, so that other components (and this
                # scheduler after a restart) know where the pod is expected.
                self._put_status(
                    assumed.info.pod_info.pod, None, NominatingInfo(True, assumed.node_name)
                )
        if waiting is not None:
            status = await self._wait_on_permit(assumed)
            if status is not None:
                return status
        # Upstream: Permit is the last point that can reject a pod; a later failure sends it to backoff, whatever happened
        # meanwhile. So the queue may drop the events it records for the pod, which would pile up during a long PreBind.
        self._queue.done(pod.metadata.uid)
        # PreBind runs outside the slots: volumes may take minutes to be provisioned, and other pods have to be bound.
        status = await self._pre_bind(assumed) if acts else None
        if status is not None:
            return status
        async with self._slots:
            # A pending condition of an earlier attempt, written after the binding, would mark a bound pod unschedulable.
            await self._flush_status(pod.metadata.uid)
            started = framework.now()
            status = await self._bind_by_extender(assumed)
            if status is SKIP:
                status = await run_bind(framework, state, pod, assumed.node_name)
            framework.point_done("Bind", started, status)
            return status

    async def _bind_by_extender(self, assumed: Assumed) -> Status | None:
        """Bind through the first extender that binds this pod; SKIP if there is none, or it failed and is ignorable."""
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
        assert waiting_pods is not None, "a pod waits on Permit, but waiting pods are not wired"
        waiting = waiting_pods.get(uid)
        if waiting is None:
            return None
        decided: asyncio.Future[Status] = asyncio.get_running_loop().create_future()

        def settle(status: Status) -> None:
            if not decided.done():
                decided.set_result(status)

        waiting.add_done_callback(settle)
        started = framework.now()
        self.waiting_count += 1
        self.on_waiting()
        try:
            status = await decided
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
        """Run PreBind such that preemption can cancel it."""
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
        self.on_waiting()
        try:
            try:
                status = await task
            except asyncio.CancelledError:
                # Either preemption cancelled the work, or the process is shutting down: then pass it on.
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
            # Preemption may cancel the work before its first step: then no plugin has written anything.
            await self._flight.reach(PRE_BIND_BEGINS, assumed.pod.uid)
        return await run_pre_bind(
            assumed.framework, assumed.state, assumed.pod.pod, assumed.node_name
        )

    async def _record_success(self, assumed: Assumed) -> None:
        framework, info, pod = assumed.framework, assumed.info, assumed.pod.pod
        meta, now = pod.metadata, framework.now()
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
        if framework.post_bind:
            started = framework.now()
            await run_post_bind(framework, assumed.state, pod, assumed.node_name)
            framework.point_done("PostBind", started)
        self._cycle.activate_asked_for(assumed.state)

    def _observe_pod(self, info: QueuedPodInfo, now: float) -> None:
        self._metrics.pod_scheduling_attempts.observe(info.attempts)
        if info.initial_attempt_timestamp is not None:
            label = attempts_label(info.attempts)
            sli = self._sli.get(label)
            if sli is None:
                family = self._metrics.pod_scheduling_sli_duration_seconds
                sli = self._sli[label] = family.labels(label)
            sli.observe(now - info.initial_attempt_timestamp)
        if info.was_flushed_from_unschedulable:
            self._metrics.pod_scheduled_after_flush_total.inc()

    def _fail(self, assumed: Assumed, status: Status) -> None:
        """Undo, requeue, and tell the queue that the node has room again.

        # Upstream: after a rejection the event is sent last and skips the pod. Sent earlier, it would be recorded among
        # the events during the pod's attempt, and its own release would send it straight back to backoff. After an
        # error the pod is retried in any case.
        """
        forgotten = self._cycle.undo(assumed)
        uid, pod = assumed.pod.uid, assumed.pod.pod
        move = self._queue.move_all_to_active_or_backoff_queue
        if forgotten and not status.is_rejected:
            move(EVENT_ASSIGNED_POD_DELETE, pod, None)
        self._failures.handle(
            assumed.framework, assumed.info, status, CLEAR_NOMINATION, assumed.started
        )
        if forgotten and status.is_rejected:
            move(EVENT_ASSIGNED_POD_DELETE, pod, None, lambda other: other.metadata.uid != uid)


def _cancel(task: asyncio.Future[Status | None]) -> None:
    task.cancel()
