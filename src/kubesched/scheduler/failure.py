"""Handling of failed attempts: requeue the pod, record the event, write condition and nomination."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec import structs

from kubesched.api.core_v1 import Pod, PodCondition
from kubesched.framework.diagnosis import FitError, NoNodesAvailable
from kubesched.framework.events import EVENT_ASSIGNED_POD_DELETE
from kubesched.framework.handle import Lister
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.pod_status import (
    POD_SCHEDULED,
    REASON_SCHEDULER_ERROR,
    REASON_UNSCHEDULABLE,
)
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.runtime import Framework
from kubesched.framework.status import Status
from kubesched.logs import get_logger
from kubesched.queue.announcements import ClassFailure
from kubesched.queue.scheduling_queue import SchedulingQueue
from kubesched.scheduler.decisions import DecisionRing, Outcome
from kubesched.snapshot.pods import PodInfo, is_same_class

log = get_logger(__name__)

NOTE_LIMIT_BYTES = 1024
_CUT = b" ..."

PutStatus = Callable[[Pod, PodCondition | None, NominatingInfo | None], None]


@dataclass(slots=True, eq=False)
class FailureHandler:
    """Handles every failed attempt. Synchronous: API writes are left to the status writer and the recorder."""

    _queue: SchedulingQueue
    _pods: Lister[Pod]
    _put_status: PutStatus
    _decisions: DecisionRing

    def handle(
        self,
        framework: Framework,
        info: QueuedPodInfo,
        status: Status | None,
        nomination: NominatingInfo | None,
        started: float,
        *,
        as_class: bool = False,
    ) -> None:
        """Requeue the pod according to the status, and report the failure.

        `as_class` says that every other pod of its class would have failed like this. It is ignored if the pod is
        nominated: the others are not.
        """
        rejected = status is not None and status.is_rejected
        reason = REASON_UNSCHEDULABLE if rejected else REASON_SCHEDULER_ERROR
        result = "unschedulable" if rejected else "error"
        seconds = framework.now() - started
        framework.attempt_done(result, seconds)
        error = status.as_error() if status is not None else None
        message = status.message if status is not None else ""
        self._note_rejectors(info, error)
        pod = info.pod_info.pod
        is_nominated = (
            nomination is None
            or bool(nomination.node_name or pod.status.nominated_node_name)
            or bool(self._queue.nominator.node_of(info.pod_info.uid))
        )
        failure: ClassFailure | None = None
        if as_class and rejected and not is_nominated:
            failure = ClassFailure(message, lambda other: self._tell(other, message))
        requeued = self._requeue(info, pod, failure)
        if failure is not None and failure.settled:
            framework.attempts_settled(result, failure.settled)
        self._note_decision(framework, info, Outcome(result), seconds, message, error, nomination)
        if not requeued:
            return
        # Do not wait for the watch to show the nomination: the next attempt must already leave room for this pod.
        nominator = self._queue.nominator
        held = nominator.node_of(info.pod_info.uid)
        nominator.add_nominated_pod(info.pod_info, nomination)
        if held and held != nominator.node_of(info.pod_info.uid):
            self._announce_withdrawal(info.pod_info.pod, held)
        if error is None or status is None:
            return
        if framework.handle.recorder is not None:
            framework.handle.recorder.event(
                info.pod_info.pod,
                None,
                "Warning",
                "FailedScheduling",
                "Scheduling",
                shortened(message),
            )
        pod = info.pod_info.pod
        self._put_status(pod, _condition(pod, reason, message), nomination)

    def _tell(self, info: QueuedPodInfo, message: str) -> None:
        """Report a failure to a pod that was not tried, since another pod of its class was."""
        pod = info.pod_info.pod
        self._put_status(pod, _condition(pod, REASON_UNSCHEDULABLE, message), None)

    def _note_decision(
        self,
        framework: Framework,
        info: QueuedPodInfo,
        outcome: Outcome,
        seconds: float,
        message: str,
        error: Exception | None,
        nomination: NominatingInfo | None,
    ) -> None:
        pod, clock = info.pod_info, framework.handle.clock
        reasons: list[str] = []
        if isinstance(error, FitError):
            reasons = error.diagnosis.node_to_status.histogram(error.node_count)
        expires = info.backoff_expiration
        self._decisions.add(
            info,
            framework.profile_name,
            clock.now(),
            seconds,
            outcome,
            node=nomination.node_name if nomination is not None else "",
            evaluated=error.node_count if isinstance(error, FitError) else 0,
            message=message,
            reasons=reasons,
            queue=self._queue.place_of(pod.namespace, pod.name) or "",
            backoff_s=0.0 if expires is None else max(0.0, expires - clock.monotonic()),
        )

    def _announce_withdrawal(self, pod: Pod, node_name: str) -> None:
        """The room reserved for this pod is free: wake pods of equal or lower priority.

        If the API server has the nomination, its removal comes back as a pod update and the event handler does this.
        """
        status, uid, priority = pod.status, pod.metadata.uid, pod.spec.priority or 0
        if status.nominated_node_name == node_name:
            return
        status = structs.replace(status, nominated_node_name=node_name)
        self._queue.move_all_to_active_or_backoff_queue(
            EVENT_ASSIGNED_POD_DELETE,
            structs.replace(pod, status=status),
            None,
            lambda other: other.metadata.uid != uid and (other.spec.priority or 0) <= priority,
        )

    @staticmethod
    def _note_rejectors(info: QueuedPodInfo, error: Exception | None) -> None:
        info.unschedulable_plugins = set()
        info.pending_plugins = set()
        info.gating_plugin = ""
        info.gating_plugin_events = ()
        pod = info.pod_info.pod
        if isinstance(error, FitError):
            if not error.diagnosis.is_post_filter_unfinished:
                info.unschedulable_plugins = set(error.diagnosis.unschedulable_plugins)
                info.pending_plugins = set(error.diagnosis.pending_plugins)
            # Otherwise no event may come: without rejectors the pod is tried again after a backoff, as after an error.
            # (Upstream: it waits for an event, or for the five-minute flush.)
            log.info("Unable to schedule pod; no fit; waiting", v=2, pod=pod, err=error)
        elif isinstance(error, NoNodesAvailable):
            log.info(
                "Unable to schedule pod; no nodes are registered to the cluster; waiting",
                v=2,
                pod=pod,
            )
        else:
            log.error("Error scheduling pod; retrying", error, pod=pod)

    def _requeue(self, info: QueuedPodInfo, tried: Pod, failure: ClassFailure | None) -> bool:
        """Requeue the pod if it still needs a node. False if it was recreated: this attempt was about another pod."""
        meta = tried.metadata
        current = self._pods.get(meta.namespace, meta.name)
        if current is not None and current.metadata.uid != meta.uid:
            log.info(
                "Pod was recreated while handling scheduling failure. Skip requeueing and status updates.",
                v=2,
                pod=tried,
                oldUID=meta.uid,
                newUID=current.metadata.uid,
            )
            self._queue.done(meta.uid)
            return False
        if current is None or current.spec.node_name:
            if current is None:
                log.info("Pod doesn't exist in informer cache", pod=tried)
            else:
                log.info(
                    "Pod has been assigned to node. Abort adding it back to queue.",
                    pod=tried,
                    node=current.spec.node_name,
                )
            self._queue.done(meta.uid)
            return True
        # Queue the current version: an update during the attempt went to the informer, but not to this record.
        if current is not tried:
            newer = PodInfo(current)
            if is_same_class(tried, current):
                newer.class_key, newer.shape_key = info.pod_info.class_key, info.pod_info.shape_key
            info.pod_info = newer
        self._queue.add_unschedulable_if_not_present(info, failure)
        return True


def _condition(pod: Pod, reason: str, message: str) -> PodCondition:
    return PodCondition(
        type=POD_SCHEDULED,
        status="False",
        reason=reason,
        message=message,
        observed_generation=pod.metadata.generation or 0,
    )


def shortened(message: str) -> str:
    """An event note of at most 1024 bytes; longer ones end with an ellipsis."""
    raw = message.encode()
    if len(raw) <= NOTE_LIMIT_BYTES:
        return message
    return (raw[: NOTE_LIMIT_BYTES - len(_CUT)] + _CUT).decode(errors="ignore")
