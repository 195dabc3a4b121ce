"""TargetLoadPacking: fills nodes up to a target CPU load, then prefers those with the least load.

The predicted load of a node is its measured load plus the pods that the measurement cannot contain
yet: those bound after, or less than a minute before the end of the metrics' window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kubesched.framework import (
    CycleState,
    Handle,
    NodeColumns,
    ReservePlugin,
    Rule,
    Scope,
    ScorePlugin,
)
from kubesched.framework.api import Container, Node, Pod, parse_quantity
from kubesched_plugins.trimaran.args import TrimaranArgs
from kubesched_plugins.trimaran.metrics import AVERAGE, CPU, LATEST, Collector, Metric, report_of
from kubesched_plugins.trimaran.resource_stats import demand_of, rounded, scores_of

REPORTING_INTERVAL_S: Final = 60
"""How far measurements lag behind, on average."""
KEPT_S: Final = 3600
"""Pods bound longer ago than the longest window of metrics, with much to spare, are forgotten."""


@dataclass(frozen=True, kw_only=True)
class TargetLoadPackingArgs(TrimaranArgs):
    """`TargetLoadPackingArgs` of `kubescheduler.config.k8s.io/v1`."""

    default_requests: dict[str, str | int | float] | None = None
    default_requests_multiplier: str = "1.5"
    target_utilization: int = 40

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.default_requests is None:
            self._set("default_requests", {"cpu": "1000m"})
        if self.target_utilization <= 0:
            self._set("target_utilization", 40)
        try:
            float(self.default_requests_multiplier)
        except ValueError as error:
            raise ValueError(f"unable to parse DefaultRequestsMultiplier: {error}") from None


class Load(NamedTuple):
    """Of a node's CPU, in millicores."""

    node_name: str
    used: float
    capacity: float


def load_of(node: Node, metrics: Sequence[Metric] | None) -> Load | None:
    # The last one counts: an average is not preferred to the latest value here.
    load = [m.value for m in metrics or () if m.type == CPU and m.operator in (AVERAGE, LATEST)]
    capacity = float(demand_of(node.status.capacity).milli_cpu)
    return Load(node.metadata.name, load[-1] / 100 * capacity, capacity) if load else None


class BoundPod(NamedTuple):
    """A pod that may be missing in the metrics."""

    at: int
    """Unix seconds."""
    milli_cpu: int


class TargetLoadPacking(ScorePlugin, ReservePlugin):
    """Scores nodes by how near the CPU load with the pod is to the target."""

    name = "TargetLoadPacking"
    args_type = TargetLoadPackingArgs
    args: TargetLoadPackingArgs
    collector_type: ClassVar[type[Collector[Load | None]]] = Collector

    def __init__(self, args: TargetLoadPackingArgs | None, handle: Handle) -> None:
        args = args or TargetLoadPackingArgs()
        super().__init__(args, handle)
        self.collector = self.collector_type(
            args, load_of, runs=handle.spawn is not None, report=report_of(handle, self.name)
        )
        self._default_milli_cpu = demand_of(args.default_requests).milli_cpu
        self._multiplier = float(args.default_requests_multiplier)
        self._bound: dict[str, dict[str, BoundPod]] = {}
        self._unsubscribe = (
            None
            if handle.listers is None
            else handle.listers.of(Pod).subscribe(self._after_pod_change)
        )

    def close(self) -> None:
        self.collector.close()
        if self._unsubscribe is not None:
            self._unsubscribe()

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> npt.NDArray[np.int64]:
        wanted = state.remember(self.name, lambda: self.predicted_milli_cpu(pod))
        rows = nodes.table.nodes
        return scores_of(nodes, lambda row: self._score(wanted, self.collector.of(rows[row])))

    def score_rule(self, state: CycleState, pod: Pod) -> Rule:
        """Pods bound to a node change its row, too; all else comes with the metrics."""
        return Rule(Scope.ROW, premise=self.collector.version)

    def class_fields(self, pod: Pod) -> None:
        """Scores depend on the spec alone."""

    def _score(self, wanted: int, load: Load | None) -> int:
        if load is None:
            return 0
        predicted = 0.0
        if load.capacity != 0:
            predicted = 100 * (load.used + float(wanted) + float(self._missing(load.node_name)))
            predicted /= load.capacity
        target = float(self.args.target_utilization)
        if predicted > 100 and predicted > target:
            return 0
        if predicted > target:
            return rounded(target * (100 - predicted) / (100 - target))
        return rounded((100 - target) * predicted / target + target)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.note_bound(pod, node_name, int(self.handle.clock.now()))

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._forget(pod, node_name)

    def predicted_milli_cpu(self, pod: Pod) -> int:
        """What the pod will use: its limits, else its requests with a surcharge."""
        used = sum(self._predicted(container) for container in pod.spec.containers or ())
        return used + demand_of(pod.spec.overhead).milli_cpu

    def _predicted(self, container: Container) -> int:
        limits, requests = container.resources.limits or {}, container.resources.requests or {}
        if "cpu" in limits:
            return parse_quantity(limits["cpu"]).milli_value()
        if "cpu" in requests:
            return rounded(parse_quantity(requests["cpu"]).milli_value() * self._multiplier)
        return self._default_milli_cpu

    # -- pods that the metrics may miss ------------------------------------------------------------

    def _missing(self, node_name: str) -> int:
        end = self.collector.snapshot.window_end
        bound = self._bound.get(node_name)
        if bound is None:
            return 0
        return sum(pod.milli_cpu for pod in bound.values() if end - pod.at < REPORTING_INTERVAL_S)

    def note_bound(self, pod: Pod, node_name: str, at: int) -> None:
        """Count the pod from that time (Unix seconds) on; once noted, the time stays."""
        bound = self._bound.setdefault(node_name, {})
        while bound:
            oldest = next(iter(bound))
            if at - bound[oldest].at < KEPT_S:
                break
            del bound[oldest]
        if pod.metadata.uid not in bound:
            bound[pod.metadata.uid] = BoundPod(at, self.predicted_milli_cpu(pod))

    def _forget(self, pod: Pod, node_name: str) -> None:
        bound = self._bound.get(node_name, {})
        bound.pop(pod.metadata.uid, None)
        if not bound:
            self._bound.pop(node_name, None)

    def _after_pod_change(self, old: Pod | None, new: Pod | None) -> None:
        """Pods bound by other schedulers, and pods that are gone.

        A pod that is assigned when it is first seen (all are after a restart) counts from its
        creation. The original counts it as new, and every node as loaded twice after a start.
        """
        if new is None:
            if old is not None and old.spec.node_name:
                self._forget(old, old.spec.node_name)
        elif new.spec.node_name and old is None:
            created = new.metadata.creation_timestamp
            if created:
                at = int(datetime.fromisoformat(created).timestamp())
                self.note_bound(new, new.spec.node_name, at)
        elif new.spec.node_name and old is not None and not old.spec.node_name:
            self.note_bound(new, new.spec.node_name, int(self.handle.clock.now()))
