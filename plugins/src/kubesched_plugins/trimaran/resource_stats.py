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

Amounts = Mapping[str, str | int | float]


class Demand(NamedTuple):
    """CPU in millicores, memory in bytes."""

    milli_cpu: int = 0
    memory: int = 0


_NOTHING: Final = Demand()


def demand_of(amounts: Amounts | None) -> Demand:
    return _demand(amounts.get("cpu", 0), amounts.get("memory", 0)) if amounts else _NOTHING


@lru_cache(maxsize=4096)
def _demand(cpu: str | int | float, memory: str | int | float) -> Demand:
    return Demand(parse_quantity(cpu).milli_value(), parse_quantity(memory).value())


def capacity_of(node: Node) -> Demand:
    """What the node offers to pods."""
    return demand_of(node.status.allocatable)


def requests_of(pod: Pod) -> Demand:
    """Sum of the containers' requests, or the largest init container, plus overhead."""
    return Demand(*demands_of(pod)[:2])


def demands_of(pod: Pod) -> tuple[int, int, int, int]:
    """CPU and memory that the pod requests, and the same of its limits: at least the requests."""
    cpu = memory = cpu_limit = memory_limit = 0
    for container in pod.spec.containers or ():
        requests, limits = _demands(container)
        cpu, memory = cpu + requests[0], memory + requests[1]
        cpu_limit, memory_limit = cpu_limit + limits[0], memory_limit + limits[1]
    for container in pod.spec.init_containers or ():
        requests, limits = _demands(container)
        cpu, memory = max(cpu, requests[0]), max(memory, requests[1])
        cpu_limit, memory_limit = max(cpu_limit, limits[0]), max(memory_limit, limits[1])
    if pod.spec.overhead:
        more_cpu, more_memory = demand_of(pod.spec.overhead)
        cpu, memory = cpu + more_cpu, memory + more_memory
        cpu_limit, memory_limit = cpu_limit + more_cpu, memory_limit + more_memory
    return cpu, memory, max(cpu_limit, cpu), max(memory_limit, memory)


def _demands(container: Container) -> tuple[Demand, Demand]:
    resources = container.resources
    return demand_of(resources.requests), demand_of(resources.limits)


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
