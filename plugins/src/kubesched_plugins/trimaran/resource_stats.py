"""Load and demand of nodes and pods, as the scores need them.

Sums and roundings follow the original, also where kube-scheduler computes requests differently:
init containers that restart are not added to the others, and pod-level resources are not read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kubesched.framework.api import Container, Node, Pod, parse_quantity
from kubesched_plugins.trimaran.metrics import AVERAGE, LATEST, STD, Metric

MEGA: Final = 1.0 / 1024.0 / 1024.0


class Demand(NamedTuple):
    """CPU in millicores, memory in bytes."""

    milli_cpu: int = 0
    memory: int = 0

    def plus(self, other: Demand) -> Demand:
        return Demand(self.milli_cpu + other.milli_cpu, self.memory + other.memory)

    def at_least(self, other: Demand) -> Demand:
        return Demand(max(self.milli_cpu, other.milli_cpu), max(self.memory, other.memory))

    def at_most(self, other: Demand) -> Demand:
        return Demand(min(self.milli_cpu, other.milli_cpu), min(self.memory, other.memory))


def demand_of(amounts: Mapping[str, str | int | float] | None) -> Demand:
    amounts = amounts or {}
    return Demand(
        parse_quantity(amounts["cpu"]).milli_value() if "cpu" in amounts else 0,
        parse_quantity(amounts["memory"]).value() if "memory" in amounts else 0,
    )


def capacity_of(node: Node) -> Demand:
    """What the node offers to pods."""
    return demand_of(node.status.allocatable)


def requests_of(pod: Pod) -> Demand:
    """Sum of the containers' requests, or the largest init container, plus overhead."""
    return _effective(
        pod,
        (demand_of(container.resources.requests) for container in pod.spec.containers or ()),
        (demand_of(container.resources.requests) for container in _init_containers(pod)),
    )


def limits_of(pod: Pod) -> Demand:
    """The same sum of limits, and at least the requests."""
    limits = _effective(
        pod,
        (demand_of(container.resources.limits) for container in pod.spec.containers or ()),
        (demand_of(container.resources.limits) for container in _init_containers(pod)),
    )
    return limits.at_least(requests_of(pod))


def _init_containers(pod: Pod) -> Iterable[Container]:
    return pod.spec.init_containers or ()


def _effective(pod: Pod, containers: Iterable[Demand], before: Iterable[Demand]) -> Demand:
    total = Demand()
    for demand in containers:
        total = total.plus(demand)
    for demand in before:
        total = total.at_least(demand)
    return total.plus(demand_of(pod.spec.overhead))


class ResourceStats(NamedTuple):
    """Load of a resource and the pod's request: millicores, or mebibytes for memory."""

    used_avg: float
    used_stdev: float
    request: float
    capacity: float

    def mu_sigma(self) -> tuple[float, float]:
        """Mean and deviation of the load with the pod, as parts of the capacity."""
        if self.capacity <= 0:
            return 0.0, 0.0
        mu = (self.used_avg + self.request) / self.capacity
        return clamp(mu), clamp(self.used_stdev / self.capacity)


def resource_stats(
    metrics: Iterable[Metric], kind: str, capacity: int, request: int, unit: float
) -> ResourceStats | None:
    """The load of one resource; None if the metrics say nothing about it."""
    found = measured(metrics, kind)
    if found is None:
        return None
    average, deviation = found
    size = capacity * unit
    return ResourceStats(average * size / 100, deviation * size / 100, request * unit, size)


def measured(metrics: Iterable[Metric], kind: str) -> tuple[float, float] | None:
    """Mean and deviation in percent. A mean outranks the latest value, wherever it stands."""
    average = deviation = 0.0
    has_average = is_known = False
    for metric in metrics:
        if metric.type != kind:
            continue
        is_known = True
        if metric.operator == AVERAGE:
            average, has_average = metric.value, True
        elif metric.operator == STD:
            deviation = metric.value
        elif metric.operator in ("", LATEST) and not has_average:
            average = metric.value
    return (average, deviation) if is_known else None


def clamp(x: float, high: float = 1.0) -> float:
    return max(min(x, high), 0.0)


def rounded(x: float) -> int:
    """Half away from zero."""
    whole = math.trunc(x)
    return whole + (int(math.copysign(1, x)) if abs(x - whole) >= 0.5 else 0)
