"""A sample trace: made, not recorded, and the same for the same arguments.

A day of a cluster of three zones. Services come in the morning and stay; batch jobs come all day,
most of them by day, with durations and sizes spread as published traces have them: many small and
short, few large and long. A tenth of the nodes have GPUs. Some pods have a priority, spread their
replicas or want a kind of node, so that queues, preemption and constraints take part.
"""

from __future__ import annotations

import math
from random import Random

from msgspec import structs

from kubesched.api.core_v1 import Pod, TopologySpreadConstraint
from kubesched.api.meta import LabelSelector, RawQuantity
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.lab.traces.objects import INSTANCE_TYPE, PodMaker, node
from kubesched.lab.traces.trace import Arrival, Trace, TraceError

ZONE = "topology.kubernetes.io/zone"
GPU = "nvidia.com/gpu"
HOUR_S = 3600.0
FULL = 0.85
"""Share of all cpu that pods request at the busiest time, as planned."""

_KINDS: tuple[tuple[str, int, dict[str, RawQuantity]], ...] = (
    ("standard", 6, {"cpu": "8", "memory": "32Gi"}),
    ("memory", 3, {"cpu": "8", "memory": "64Gi"}),
    ("gpu", 1, {"cpu": "16", "memory": "128Gi", GPU: 4}),
)
"""Kinds of nodes, with their shares in ten."""
_SIZES = ((250, 512), (500, 1024), (1000, 2048), (2000, 8192), (4000, 8192), (8000, 49152))
_SIZE_WEIGHTS = (30, 30, 20, 12, 6, 2)
"""Requests of pods in milli cpu and MiB."""


def sample_trace(
    *, nodes: int = 200, pods: int = 5_000, hours: float = 24.0, seed: int = 0
) -> Trace:
    """Raises TraceError if there would be nothing in it."""
    numbers = isinstance(nodes, int) and isinstance(pods, int) and isinstance(hours, int | float)
    if not numbers or nodes < 1 or pods < 1 or not 0 < hours < math.inf:
        raise TraceError("a sample trace has at least one node, one pod, and some time")
    random, maker, name = Random(seed), PodMaker(), f"sample-{nodes}-{pods}-{hours:g}-{seed}"
    state = ClusterState(name)
    kinds = [kind for kind in _KINDS for _ in range(kind[1])]
    for number in range(nodes):
        kind, _, amounts = kinds[number % len(kinds)]
        labels = {ZONE: f"zone-{number % 3}", INSTANCE_TYPE: kind}
        state.put(node(f"node-{number:04d}", dict(amounts), labels))
    ends_s = hours * HOUR_S
    capacity = sum(int(str(kinds[number % len(kinds)][2]["cpu"])) for number in range(nodes))
    mean_s = _mean_duration(capacity, pods, ends_s)
    arrivals: list[Arrival] = []
    while len(arrivals) < pods:
        arrivals += _workload(random, maker, len(arrivals), pods, ends_s, mean_s)
    arrivals.sort(key=lambda arrival: arrival.time_s)
    return Trace(name=name, format="sample", digest=name, state=state, events=arrivals)


def _mean_duration(capacity: int, pods: int, ends_s: float) -> float:
    """Seconds that a batch pod runs on average, so that the cluster fills to `FULL` by day."""
    weights = zip(_SIZES, _SIZE_WEIGHTS, strict=True)
    mean_cpu = sum(size[0] * weight for size, weight in weights) / sum(_SIZE_WEIGHTS) / 1000
    return FULL * capacity * ends_s / (pods * mean_cpu) * 0.8


def _workload(
    random: Random, maker: PodMaker, number: int, pods: int, ends_s: float, mean_s: float
) -> list[Arrival]:
    """The pods of one service or job."""
    is_service = random.random() < 0.1
    count = min(pods - number, random.choice((2, 3, 5, 8)) if is_service else _job_size(random))
    cpu, memory = random.choices(_SIZES, _SIZE_WEIGHTS)[0]
    amounts: dict[str, RawQuantity] = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
    kind = None
    if not is_service and random.random() < 0.03:
        amounts[GPU] = random.choice((1, 1, 1, 2))
    elif random.random() < 0.05:
        kind = (INSTANCE_TYPE, ("memory",))
    name = f"{'service' if is_service else 'job'}-{number:05d}"
    priority = 100 if is_service else random.choice((0, 0, 0, 10))
    begins_s = _moment(random, ends_s) * (0.3 if is_service else 1.0)
    made = []
    for at in range(count):
        pod = maker.pod(
            f"{name}-{at}", amounts, priority=priority, labels={"app": name}, node_label=kind
        )
        if is_service:
            pod = _spread(pod, name)
        runs_s = None if is_service else min(ends_s / 2, mean_s * random.lognormvariate(-0.72, 1.2))
        made.append(Arrival(begins_s + at * random.random(), pod, lifetime_s=runs_s))
    return made


def _job_size(random: Random) -> int:
    return min(64, int(random.paretovariate(1.2)))


def _moment(random: Random, ends_s: float) -> float:
    """A time at which work comes: three times as much at noon as at midnight."""
    while True:
        share = random.random()
        if random.random() < 0.67 - 0.33 * math.cos(2 * math.pi * share):
            return share * ends_s


def _spread(pod: Pod, name: str) -> Pod:
    constraint = TopologySpreadConstraint(
        max_skew=1,
        topology_key=ZONE,
        when_unsatisfiable="ScheduleAnyway",
        label_selector=LabelSelector(match_labels={"app": name}),
    )
    return structs.replace(
        pod, spec=structs.replace(pod.spec, topology_spread_constraints=[constraint])
    )
