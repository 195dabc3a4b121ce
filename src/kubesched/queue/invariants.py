"""What must hold across the parts of the queue. Broken, it is a defect: the functions raise AssertionError."""

from __future__ import annotations

from collections.abc import Iterable

from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.metrics import SchedulerMetrics
from kubesched.queue.active import ACTIVE, ActiveQueue
from kubesched.queue.backoff import BACKOFF, BackoffQueue
from kubesched.queue.contents import GATED
from kubesched.queue.hints import HintMap
from kubesched.queue.in_flight import InFlight
from kubesched.queue.unschedulable import UNSCHEDULABLE, UnschedulablePods


def check_places(
    active: ActiveQueue, backoff: BackoffQueue, pool: UnschedulablePods, in_flight: InFlight
) -> None:
    """Every pod is in one place, and no pod waits behind one that will not be tried."""
    keys = [info.pod_info.key for queue in (active, backoff, pool) for info in queue]
    assert len(keys) == len(set(keys)), "a pod waits in two places"
    tried = {info.pod_info.uid for queue in (active, backoff) for info in queue}
    tried.update(in_flight)
    assert tried.issuperset(pool.classes.heads()), "pods wait behind one that is gone"


def check_gates(
    poppable: Iterable[Iterable[QueuedPodInfo]], pool: UnschedulablePods, hints: HintMap
) -> None:
    """No gated pod can be popped; every pod in the pool has plugins that can bring it back."""
    assert not any(info.is_gated for queue in poppable for info in queue), (
        "a gated pod may be popped"
    )
    for info in pool:
        assert info.unschedulable_plugins or info.pending_plugins, (
            f"{info} waits without a rejecting plugin"
        )
        if info.is_gated:
            assert info.gating_plugin_events == hints.events_of(info.gating_plugin), (
                f"{info} listens wrongly"
            )


def check_sizes(
    metrics: SchedulerMetrics, active: ActiveQueue, backoff: BackoffQueue, pool: UnschedulablePods
) -> None:
    """`pending_pods` shows what is there."""
    sizes = {
        queue: metrics.pending_pods.labels(queue).current()
        for queue in (ACTIVE, BACKOFF, UNSCHEDULABLE, GATED)
    }
    gated = sum(info.is_gated for info in pool)
    expected = (len(active), len(backoff), len(pool) - gated, gated)
    assert tuple(sizes.values()) == expected, (
        f"pending_pods says {sizes}, the queue holds {expected}"
    )
