"""Figures of a replay over time: waits, utilisation, fragmentation, nodes in use.

The time that each node is in use is exact. Utilisation, fragmentation and pending pods are sampled
at regular intervals, and their means are over the samples. A node is in use while it has a pod that
belongs neither to a DaemonSet nor to the kubelet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kubesched.api.core_v1 import Pod
from kubesched.insight.state.replacements import is_daemon, is_mirror
from kubesched.lab.traces.fragmentation import GpuFragmentation, plain
from kubesched.lab.traces.outcome import Outcome, Series, Waits
from kubesched.scheduler.factory import Assembly

SAMPLES = 240
DIGITS = 6
"""Decimal places of every figure; more would be floating-point noise."""


class Meter:
    """Measures one replay."""

    def __init__(
        self, assembly: Assembly, ends_s: float, gpus: GpuFragmentation | None = None
    ) -> None:
        self._table = assembly.table
        self._queue = assembly.scheduler.queue
        self._ends_s = ends_s
        self._gpus = gpus
        self._pods_on: dict[str, int] = {}
        """Nodes in use -> number of their pods that count."""
        self._used_s: dict[str, float] = {}
        self._since: dict[str, float] = {}
        self._most_used = 0
        self._submitted: dict[str, float] = {}
        self._waits: dict[str, float] = {}
        self._nodes: dict[str, str] = {}
        """Pod key -> the node that it got last."""
        self.evictions = 0
        self._series = Series(
            at_s=[],
            utilisation={},
            fragmentation={},
            gpu_fragmentation=[],
            pending=[],
            nodes_used=[],
        )

    # -- what happens ------------------------------------------------------------------------------

    def submitted(self, key: str, now: float) -> None:
        """A pod was submitted; after an eviction it keeps its first time."""
        self._submitted.setdefault(key, now)

    def bound(self, key: str, pod: Pod, now: float) -> None:
        self._nodes[key] = pod.spec.node_name
        if key in self._submitted:
            self._waits.setdefault(key, max(0.0, now - self._submitted[key]))  # clocks round
        self.occupies(pod, now)

    def occupies(self, pod: Pod, now: float) -> None:
        name = pod.spec.node_name
        if is_daemon(pod) or is_mirror(pod):
            return
        count = self._pods_on.get(name, 0)
        self._pods_on[name] = count + 1
        if not count:
            self._since[name] = now
            self._most_used = max(self._most_used, len(self._pods_on))

    def left(self, pod: Pod, now: float) -> None:
        name = pod.spec.node_name
        if name not in self._pods_on or is_daemon(pod) or is_mirror(pod):
            return
        self._pods_on[name] -= 1
        if not self._pods_on[name]:
            del self._pods_on[name]
            self._used_s[name] = self._used_s.get(name, 0.0) + now - self._since.pop(name)

    # -- samples -----------------------------------------------------------------------------------

    @property
    def next_sample_s(self) -> float:
        """When the next sample is due; infinity after the last one."""
        number = len(self._series.at_s)
        return self._ends_s * number / (SAMPLES - 1) if number < SAMPLES else math.inf

    def sample(self) -> None:
        """Take the sample that is due next."""
        now, table, series = self.next_sample_s, self._table, self._series
        alive = table.alive[: table.high_water]
        used = self._used_rows()
        series.at_s.append(round(now, DIGITS))
        for name in dict.fromkeys((*table.resource_index, *series.utilisation)):
            index = table.resource_index.get(name)
            free = np.zeros(int(np.count_nonzero(alive)), dtype=np.int64)
            share = 0.0
            if index is not None:  # else no node offers it any more
                allocatable = table.allocatable[index].array[: table.high_water][alive]
                total = int(allocatable.sum())
                if not total and name not in series.utilisation:
                    continue
                requested = table.requested[index].array[: table.high_water][alive]
                share = int(requested.sum()) / total if total else 0.0
                free = np.maximum(allocatable - requested, 0)
            # Zero before a resource first appears.
            before = [0.0] * (len(series.at_s) - 1)
            series.utilisation.setdefault(name, list(before)).append(round(share, DIGITS))
            fragmented = round(plain(free, used[alive]), DIGITS)
            series.fragmentation.setdefault(name, before).append(fragmented)
        if self._gpus is not None:
            series.gpu_fragmentation.append(round(self._gpus.rate(), DIGITS))
        series.pending.append(sum(self._queue.sizes))
        series.nodes_used.append(len(self._pods_on))

    def _used_rows(self) -> npt.NDArray[np.bool_]:
        used = np.zeros(self._table.high_water, dtype=np.bool_)
        rows = (self._table.row_of.get(name) for name in self._pods_on)
        used[[row for row in rows if row is not None]] = True
        return used

    # -- the result --------------------------------------------------------------------------------

    def outcome(self, config: str, seed: int, notes: Sequence[str]) -> Outcome:
        ends_s = self._ends_s
        for name, since in self._since.items():
            self._used_s[name] = self._used_s.get(name, 0.0) + ends_s - since
        self._since.clear()
        waits = np.array(sorted(self._waits.values()))
        series = self._series
        return Outcome(
            config=config,
            seed=seed,
            submitted=len(self._submitted),
            placed=len(self._waits),
            unplaced=len(self._submitted) - len(self._waits),
            evictions=self.evictions,
            attempts=self._queue.scheduling_cycle,
            waits=_waits(waits),
            utilisation={name: _mean(values) for name, values in series.utilisation.items()},
            fragmentation={name: _mean(values) for name, values in series.fragmentation.items()},
            gpu_fragmentation=_mean(series.gpu_fragmentation) if self._gpus is not None else None,
            nodes_used=round(sum(self._used_s.values()) / ends_s, DIGITS)
            if ends_s
            else float(len(self._pods_on)),
            nodes_used_most=self._most_used,
            series=series,
            placements=self._nodes,
            notes=list(notes),
        )


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), DIGITS) if values else 0.0


def _quantile(ordered: npt.NDArray[np.float64], share: float) -> float:
    """Nearest-rank quantile; 0 if there are no values."""
    if not len(ordered):
        return 0.0
    index = max(0, int(np.ceil(share * len(ordered))) - 1)
    return round(float(ordered[index]), DIGITS)


def _waits(ordered: npt.NDArray[np.float64]) -> Waits:
    mean = round(float(ordered.mean()), DIGITS) if len(ordered) else 0.0
    return Waits(
        p50=_quantile(ordered, 0.5),
        p90=_quantile(ordered, 0.9),
        p99=_quantile(ordered, 0.99),
        mean=mean,
        longest=_quantile(ordered, 1.0),
    )
