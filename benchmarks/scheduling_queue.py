"""Cost of the scheduling queue: add + pop beside many pending pods, and events beside them.

    python benchmarks/scheduling_queue.py [--pending 50000] [--waiting 10000] [--rounds 20000]

Figures are CPU time per operation of this process, medians over batches.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable
from random import Random

from kubesched.api.core_v1 import Pod, PodSpec
from kubesched.api.meta import ObjectMeta
from kubesched.base.clock import SystemClock
from kubesched.base.metrics import MetricsRegistry, SchedulerMetrics
from kubesched.framework.engine import reads
from kubesched.framework.events import (
    EVENT_ASSIGNED_POD_DELETE,
    EVENT_NODE_ADD,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Hint,
    Resource,
)
from kubesched.plugins.queue_sort import PrioritySort
from kubesched.plugins.scheduling_gates import SchedulingGates
from kubesched.scheduler.queue import (
    PluginEvents,
    QueueSettings,
    SchedulingQueue,
    build_hint_map,
)
from kubesched.scheduler.queue.announcements import ClassFailure
from kubesched.scheduler.queue.nominator import Nominator

PROFILE = "default-scheduler"
NODE_UPDATE = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE)
BATCH = 500


class NoPods:
    """An empty lister: nominations are not measured."""

    def get(self, namespace: str, name: str) -> None:
        return None


class LessOnly:
    """PrioritySort without its sort key."""

    def __init__(self) -> None:
        self.less = PrioritySort(None, None).less


def skip(pod: Pod, old: object, new: object) -> Hint:
    return Hint.SKIP


@reads("class")
def skip_class(pod: Pod, old: object, new: object) -> Hint:
    return Hint.SKIP


def make_queue(queue_sort: object = None, **settings: float) -> SchedulingQueue:
    gates = SchedulingGates(None, None)
    node_events = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE)
    registered = [
        PluginEvents(gates.name, gates.events_to_register),
        PluginEvents("PerPod", lambda: [ClusterEventWithHint(node_events, skip)]),
        PluginEvents("PerClass", lambda: [ClusterEventWithHint(node_events, skip_class)]),
        PluginEvents("Pods", lambda: [ClusterEventWithHint(EVENT_ASSIGNED_POD_DELETE)]),
    ]
    return SchedulingQueue(
        clock=SystemClock(),
        queue_sort=queue_sort or PrioritySort(None, None),
        hints=build_hint_map({PROFILE: registered}),
        pre_enqueue={PROFILE: {gates.name: gates.pre_enqueue}},
        nominator=Nominator(NoPods()),
        metrics=SchedulerMetrics(MetricsRegistry()),
        random=Random(1),
        settings=QueueSettings(**settings),
    )


def make_pods(count: int, prefix: str = "pod") -> list[Pod]:
    draw = Random(2)
    return [
        Pod(
            metadata=ObjectMeta(
                name=f"{prefix}-{number}", namespace="bench", uid=f"{prefix}-uid-{number}"
            ),
            spec=PodSpec(scheduler_name=PROFILE, priority=draw.choice((0, 0, 0, 100))),
        )
        for number in range(count)
    ]


def median_us(operation: Callable[[int], None], rounds: int) -> float:
    """Median microseconds of CPU per call, over batches."""
    batches = []
    for start in range(0, rounds, BATCH):
        began = time.process_time_ns()
        for number in range(start, start + BATCH):
            operation(number)
        batches.append((time.process_time_ns() - began) / BATCH / 1000)
    return statistics.median(batches)


def add_and_pop(pending: int, rounds: int, queue_sort: object = None) -> tuple[float, float]:
    queue = make_queue(queue_sort)
    for pod in make_pods(pending, "pending"):
        queue.add(pod)
    fresh = make_pods(rounds)
    added = []
    popped = []

    def pop(number: int) -> None:
        info = queue.pop()
        assert info is not None
        queue.done(info.pod_info.uid)

    for start in range(0, rounds, BATCH):
        batch = fresh[start : start + BATCH]
        added.append(median_us(lambda number, batch=batch: queue.add(batch[number]), BATCH))
        popped.append(median_us(pop, BATCH))
    return statistics.median(added), statistics.median(popped)


def attempt_and_fail(pending: int, rounds: int) -> float:
    """A whole unsuccessful attempt: pop, rejection, back into the pool, woken by an event into
    backoffQ or activeQ.
    """
    queue = make_queue(max_backoff_s=0)
    for pod in make_pods(pending, "pending"):
        queue.add(pod)

    def attempt(number: int) -> None:
        info = queue.pop()
        assert info is not None
        info.unschedulable_plugins = {"Pods"}
        queue.add_unschedulable_if_not_present(info)
        queue.move_all_to_active_or_backoff_queue(EVENT_ASSIGNED_POD_DELETE, None, None)

    return median_us(attempt, rounds)


def event_cost(waiting: int, plugin: str, event: ClusterEvent, *, classes: int) -> float:
    queue = make_queue()
    for number, pod in enumerate(make_pods(waiting, "waiting")):
        queue.add(pod)
        info = queue.pop()
        assert info is not None
        info.unschedulable_plugins = {plugin}
        failure = None
        if classes:
            info.pod_info.class_key = str(number % classes).encode()
            failure = ClassFailure("does not fit", lambda _info: None)
        queue.add_unschedulable_if_not_present(info, failure)
    times = []
    for _ in range(30):
        began = time.process_time_ns()
        queue.move_all_to_active_or_backoff_queue(event, None, None)
        times.append((time.process_time_ns() - began) / 1000)
    assert len(queue.unschedulable_pods()) == waiting
    return statistics.median(times)


def bytes_per_pod(pending: int) -> float:
    pods = make_pods(pending)
    queue = make_queue()
    gc.collect()
    tracemalloc.start()
    for pod in pods:
        queue.add(pod)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / pending


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pending", type=int, default=50_000)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=20_000)
    args = parser.parse_args()
    for label, queue_sort in (("sort key", None), ("less only", LessOnly())):
        add, pop = add_and_pop(args.pending, args.rounds, queue_sort)
        print(
            f"add {add:.1f} µs, pop + done {pop:.1f} µs with {args.pending} pending ({label}): "
            f"{1e6 / (add + pop):,.0f} add+pop/s"
        )
    print(
        f"failed attempt and requeue {attempt_and_fail(args.pending, args.rounds):.1f} µs with "
        f"{args.pending} pending"
    )
    cases = [
        ("unrelated event", "Pods", NODE_UPDATE, 0),
        ("related event, a hint per class, 10 classes", "PerClass", NODE_UPDATE, 10),
        ("related event, a hint per pod", "PerPod", NODE_UPDATE, 0),
        ("new node, a hint per pod", "PerPod", EVENT_NODE_ADD, 0),
    ]
    for label, plugin, event, classes in cases:
        cost = event_cost(args.waiting, plugin, event, classes=classes)
        print(f"{label}: {cost:,.1f} µs with {args.waiting} unschedulable pods")
    print(f"memory beyond the pod object: {bytes_per_pod(args.pending):,.0f} bytes per queued pod")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
