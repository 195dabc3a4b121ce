"""Log messages of the queue, worded as upstream's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubesched.base.logs import get_logger
from kubesched.framework.events import SCHEDULE_ATTEMPT_FAILURE
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.scheduler.queue.hints import Strategy
from kubesched.scheduler.queue.incoming import POD
from kubesched.scheduler.queue.unschedulable import UnschedulablePods

log = get_logger("kubesched.scheduler.queue.scheduling_queue")

MOVED: Final = "Entity moved to an internal scheduling queue"


def log_move(info: QueuedPodInfo, label: str, queue: str, what: str = MOVED) -> None:
    entity = info.pod_info.pod
    log.info(what, v=5, type=POD, entity=entity, event=label, queue=queue.capitalize())


def log_failure(info: QueuedPodInfo, queue: str, strategy: Strategy, cycle: int) -> None:
    told: dict[str, object] = {
        "pod": info.pod_info.pod,
        "event": SCHEDULE_ATTEMPT_FAILURE,
        "queue": queue.capitalize(),
        "schedulingCycle": cycle,
        "hint": list(Strategy).index(strategy),
        "unschedulable plugins": _as_go_set(info.rejector_plugins),
    }
    log.info("Pod moved to an internal scheduling queue", v=3, **told)


def log_not_helped(pool: UnschedulablePods, event_label: str) -> None:
    """Log the pods that were not moved, evaluated or not, and are not gated."""
    for info in pool:
        if not info.is_gated and not pool.is_behind_head(info.pod_info.key):
            told = {"type": POD, "entity": info.pod_info.pod, "event": event_label}
            log.info("Event is not making entity schedulable", v=5, **told)


def log_checking(info: QueuedPodInfo, event_count: int, pod_count: int) -> None:
    log.info(
        "Checking events for in-flight pod",
        v=5,
        pod=info.pod_info.pod,
        unschedulablePlugins=_as_go_set(info.unschedulable_plugins),
        # Upstream: the list holds the pods in flight as well.
        inFlightEventsSize=event_count + pod_count,
        inFlightPodsSize=pod_count,
    )


def _as_go_set(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """The log format of upstream's sets."""
    return {name: {} for name in sorted(names)}
