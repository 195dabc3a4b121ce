"""Failed attempts: requeues the pod, records the event, writes condition and nomination."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import structs

from kubesched.api.core_v1 import Pod, PodCondition
from kubesched.api.resources import is_resize_deferred
from kubesched.base.logs import get_logger
from kubesched.framework.diagnosis import Failed, FitError, NoNodesAvailable
from kubesched.framework.events import EVENT_ASSIGNED_POD_DELETE
from kubesched.framework.handle import Lister
from kubesched.framework.nodes.pods import PodInfo, is_same_class
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.pod_status import (
    POD_SCHEDULED,
    REASON_SCHEDULER_ERROR,
    REASON_UNSCHEDULABLE,
)
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.runtime import Framework
from kubesched.framework.status import Status
from kubesched.scheduler.decisions import DecisionRing, Outcome
from kubesched.scheduler.queue.announcements import ClassFailure
from kubesched.scheduler.queue.scheduling_queue import SchedulingQueue

log = get_logger(__name__)

NOTE_LIMIT_BYTES = 1024
_CUT = b" ..."
_NO_PLUGINS: frozenset[str] = frozenset()
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}

PutStatus = Callable[[Pod, PodCondition | None, NominatingInfo | None], None]


@dataclass(slots=True, eq=False)
class FailureHandler:
    """Handles failed attempts. Synchronous: status writer and recorder do the API writes."""

    _queue: SchedulingQueue
    _pods: Lister[Pod]
    _put_status: PutStatus
    _decisions: DecisionRing
    _tries_resizes: bool = False

    def handle(
        self,
        framework: Framework,
        info: QueuedPodInfo,
        failed: Failed,
        started: float,
        *,
        as_class: bool = False,
    ) -> None:
        """Requeue the pod according to the status, and report the failure.

        `as_class` means that every other pod of its class would have failed the same way. It is
        ignored if the pod is nominated, because the others are not.
        """
        status, nomination = failed.status, failed.nomination
        rejected = status.is_rejected
        reason = REASON_UNSCHEDULABLE if rejected else REASON_SCHEDULER_ERROR
        result = "unschedulable" if rejected else "error"
        seconds = framework.now() - started
        framework.attempt_done(result, seconds)
        report = _report_of(status)
        error, message = report.error, report.message
        self._note_rejectors(info, report)
        pod = info.pod_info.pod
        nominator, uid = self._queue.nominator, info.pod_info.uid
        held = nominator.node_of(uid)
        is_nominated = bool(nomination.node_name or pod.status.nominated_node_name or held)
        failure: ClassFailure | None = None
        if as_class and rejected and not is_nominated:
            failure = ClassFailure(message, lambda other: self._tell(other, message))
        place = self._requeue(info, pod, failure)
        if failure is not None and failure.settled:
            framework.attempts_settled(result, failure.settled)
        expires = info.backoff_expiration
        self._decisions.add(
            info,
            framework.profile_name,
            framework.handle.clock.now(),
            seconds,
            _OUTCOMES[result],
            nomination.node_name,
            0,
            error.node_count if isinstance(error, FitError) else 0,
            message=message,
            reasons=report.reasons,
            queue=self._queue.place_of_key(info.pod_info.key) or "" if place is None else place,
            backoff_s=0.0 if expires is None else max(0.0, expires - framework.now()),
        )
        if place is None or (self._tries_resizes and is_resize_deferred(pod)):
            # A bound pod needs no nomination, and its status is the kubelet's.
            return
        # Do not wait for the watch: the next attempt must already leave room for this pod.
        nominator.add_nominated_pod(info.pod_info, nomination)
        if held and held != nominator.node_of(uid):
            self._announce_withdrawal(info.pod_info.pod, held)
        if error is None:
            return
        if framework.handle.recorder is not None:
            framework.handle.recorder.event(
                info.pod_info.pod,
                None,
                "Warning",
                "FailedScheduling",
                "Scheduling",
                report.note,
            )
        pod = info.pod_info.pod
        self._put_status(pod, _condition(pod, reason, message), nomination)

    def _tell(self, info: QueuedPodInfo, message: str) -> None:
        """Report a failure for a pod that was settled by another pod of its class."""
        pod = info.pod_info.pod
        self._put_status(pod, _condition(pod, REASON_UNSCHEDULABLE, message), None)

    def _announce_withdrawal(self, pod: Pod, node_name: str) -> None:
        """Announce that this pod's reserved room is free, to pods of equal or lower priority.

        If the API server has the nomination, its removal arrives as a pod update and the event
        handler does this.
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
    def _note_rejectors(info: QueuedPodInfo, report: _Report) -> None:
        info.unschedulable_plugins = report.unschedulable_plugins
        info.pending_plugins = report.pending_plugins
        info.gating_plugin = ""
        info.gating_plugin_events = ()
        pod, error = info.pod_info.pod, report.error
        if isinstance(error, FitError):
            if log.enabled(2):
                log.info("Unable to schedule pod; no fit; waiting", v=2, pod=pod, err=error)
        elif isinstance(error, NoNodesAvailable):
            log.info(
                "Unable to schedule pod; no nodes are registered to the cluster; waiting",
                v=2,
                pod=pod,
            )
        else:
            log.error("Error scheduling pod; retrying", error, pod=pod)

    def _requeue(self, info: QueuedPodInfo, tried: Pod, failure: ClassFailure | None) -> str | None:
        """Requeue the pod if it still needs a node; returns the name of the queue.

        None if it was recreated: this attempt was for another pod.
        """
        meta = tried.metadata
        current = self._pods.get(meta.namespace, meta.name)
        if current is not None and current.metadata.uid != meta.uid:
            log.info(
                "Pod was recreated while handling scheduling failure. "
                "Skip requeueing and status updates.",
                v=2,
                pod=tried,
                oldUID=meta.uid,
                newUID=current.metadata.uid,
            )
            self._queue.done(meta.uid)
            return None
        if current is None or (
            current.spec.node_name and not (self._tries_resizes and is_resize_deferred(current))
        ):
            if current is None:
                log.info("Pod doesn't exist in informer cache", pod=tried)
            else:
                log.info(
                    "Pod has been assigned to node. Abort adding it back to queue.",
                    pod=tried,
                    node=current.spec.node_name,
                )
            self._queue.done(meta.uid)
            return self._queue.place_of_key(info.pod_info.key) or ""
        # Queue the current version: updates during the attempt reached only the informer.
        if current is not tried:
            newer = PodInfo(current)
            if is_same_class(tried, current):
                newer.class_key, newer.shape_key = info.pod_info.class_key, info.pod_info.shape_key
            info.pod_info = newer
        place = self._queue.add_unschedulable_if_not_present(info, failure)
        return place or self._queue.place_of_key(info.pod_info.key) or ""


class _Report(NamedTuple):
    """Input of the pod condition, the event and the queue for a failed attempt."""

    error: Exception | None
    message: str
    note: str
    """The message, truncated to the limit of an event."""
    reasons: Sequence[str]
    """`<count> <reason>` per distinct reason, over the nodes."""
    unschedulable_plugins: frozenset[str]
    pending_plugins: frozenset[str]


def _report_of(status: Status) -> _Report:
    error, message = status.as_error(), status.message
    told = error, message, shortened(message)
    if not isinstance(error, FitError):
        return _Report(*told, (), _NO_PLUGINS, _NO_PLUGINS)
    diagnosis = error.diagnosis
    reasons = diagnosis.node_to_status.histogram(error.node_count)
    if diagnosis.is_post_filter_unfinished:
        # No event may come: without rejectors the pod is tried again after a backoff, as after an
        # error. (Upstream: it waits for an event, or for the five-minute flush.)
        return _Report(*told, reasons, _NO_PLUGINS, _NO_PLUGINS)
    plugins = frozenset(diagnosis.unschedulable_plugins), frozenset(diagnosis.pending_plugins)
    return _Report(*told, reasons, *plugins)


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
