"""Load and demand of nodes and pods, as the scores need them.

Sums and roundings follow the original, also where kube-scheduler computes requests differently:
init containers that restart are not added to the others, and pod-level resources are not read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kubesched.framework import NodeColumns
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
    return _demand(amounts.get("cpu", 0), amounts.get("memory", 0)) if amounts else Demand()


@lru_cache(maxsize=4096)
def _demand(cpu: str | int | float, memory: str | int | float) -> Demand:
    return Demand(parse_quantity(cpu).milli_value(), parse_quantity(memory).value())


def capacity_of(node: Node) -> Demand:
    """What the node offers to pods."""
    return demand_of(node.status.allocatable)


def requests_of(pod: Pod) -> Demand:
    """Sum of the containers' requests, or the largest init container, plus overhead."""
    return _effective(pod, lambda container: demand_of(container.resources.requests))


def limits_of(pod: Pod, requests: Demand) -> Demand:
    """The same sum of limits, and at least the requests."""
    limits = _effective(pod, lambda container: demand_of(container.resources.limits))
    return limits.at_least(requests)


def _effective(pod: Pod, demand: Callable[[Container], Demand]) -> Demand:
    total = Demand()
    for container in pod.spec.containers or ():
        total = total.plus(demand(container))
    for container in pod.spec.init_containers or ():
        total = total.at_least(demand(container))
    return total.plus(demand_of(pod.spec.overhead)) if pod.spec.overhead else total


class ResourceStats(NamedTuple):
    """Load of a resource: millicores, or mebibytes for memory."""

    used_avg: float
    used_stdev: float
    capacity: float

    def mu(self, request: float = 0.0) -> float:
        """Mean of the load with a pod, as a part of the capacity."""
        return clamp((self.used_avg + request) / self.capacity) if self.capacity > 0 else 0.0

    def sigma(self) -> float:
        """Deviation of the load, as a part of the capacity."""
        return clamp(self.used_stdev / self.capacity) if self.capacity > 0 else 0.0


def resource_stats(
    metrics: Sequence[Metric] | None, kind: str, capacity: int, unit: float
) -> ResourceStats | None:
    """The load of one resource; None if the metrics say nothing about it."""
    found = measured(metrics or (), kind)
    if found is None:
        return None
    average, deviation = found
    size = capacity * unit
    return ResourceStats(average * size / 100, deviation * size / 100, size)


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


def scores_of(nodes: NodeColumns, at: Callable[[int], int]) -> npt.NDArray[np.int64]:
    return np.array([at(row) for row in nodes.row_indices().tolist()], dtype=np.int64)


def clamp(x: float, high: float = 1.0) -> float:
    return max(min(x, high), 0.0)


def rounded(x: float) -> int:
    """Half away from zero."""
    whole = math.trunc(x)
    return whole + (int(math.copysign(1, x)) if abs(x - whole) >= 0.5 else 0)
