"""Results of scheduling as tables: placements, nodes, and utilisation over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import islice
from typing import NamedTuple

import numpy as np

from kubesched.lab.library.tables import Table
from kubesched.scheduler.factory import Assembly

MAP_NODES = 2_500
"""Nodes that the map of a notebook shows."""
_CELL, _COLUMNS = 12, 60
_CHART_WIDTH, _CHART_HEIGHT = 640, 120


class Placement(NamedTuple):
    """The outcome for one pod."""

    node: str = ""
    attempts: int = 0
    wait_s: float = 0.0
    """Until it was bound, or until now."""
    runner_up: str = ""
    """The best of the other feasible nodes, if there was one."""
    margin: float = np.nan
    """Lead of the node over the runner-up, in points of the weighted total; 0 for equal totals."""
    feasible: int = 0
    left: str = ""
    """`ended` or `evicted`, if it was placed and is gone."""
    reason: str = ""
    """The scheduler's message, if it is pending."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Utilisation at a moment."""

    time_s: float
    pods: int
    pending: int
    nodes_used: int
    requested: dict[str, float]
    """Resource -> share of all nodes' allocatable that pods request."""


def sample_of(assembly: Assembly, time_s: float) -> Sample:
    table = assembly.table
    count = table.high_water
    requested = {}
    for name, index in table.resource_index.items():
        total = int(table.allocatable[index].array[:count].sum())
        if total:
            requested[name] = int(table.requested[index].array[:count].sum()) / total
    pods = table.pod_count.array[:count]
    pending = sum(assembly.scheduler.queue.sizes)
    return Sample(time_s, int(pods.sum()), pending, int(np.count_nonzero(pods)), requested)


class Result:
    """The result of a run. Notebooks show a summary, a map of the nodes, and utilisation."""

    def __init__(
        self,
        assembly: Assembly,
        placements: Sequence[tuple[str, Placement]],
        samples: Sequence[Sample],
        notes: Sequence[str],
    ) -> None:
        self._placements = placements
        self._samples = list(samples)
        self.notes = list(notes)
        """What was left out of the configuration or the objects, and why."""
        self.nodes = _nodes_of(assembly)
        """A row per node: for each resource, the allocatable amount and the sum of requests."""

    @property
    def placed(self) -> int:
        return sum(bool(placement.node) for _, placement in self._placements)

    @property
    def pending(self) -> int:
        return len(self._placements) - self.placed

    @cached_property
    def placements(self) -> Table:
        """One row per pod that had no node when it came, in order of arrival."""
        found = [placement for _, placement in self._placements]
        return Table(
            {
                "pod": [key for key, _ in self._placements],
                "node": [placement.node for placement in found],
                "attempts": np.array([placement.attempts for placement in found], dtype=np.int64),
                "wait": np.array([placement.wait_s for placement in found], dtype=np.float64),
                "runner_up": [placement.runner_up for placement in found],
                "margin": np.array([placement.margin for placement in found], dtype=np.float64),
                "feasible": np.array([placement.feasible for placement in found], dtype=np.int64),
                "left": [placement.left for placement in found],
                "reason": [placement.reason for placement in found],
            }
        )

    @cached_property
    def utilisation(self) -> Table:
        """Samples over time: pods, pending pods, nodes in use, share requested of each resource."""
        samples = self._samples
        names = dict.fromkeys(name for sample in samples for name in sample.requested)
        return Table(
            {
                "time": np.array([sample.time_s for sample in samples], dtype=np.float64),
                "pods": np.array([sample.pods for sample in samples], dtype=np.int64),
                "pending": np.array([sample.pending for sample in samples], dtype=np.int64),
                "nodes_used": np.array([sample.nodes_used for sample in samples], dtype=np.int64),
                **{
                    name: np.array([sample.requested.get(name, 0.0) for sample in samples])
                    for name in names
                },
            }
        )

    # -- notebooks ---------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"Result({self.placed} placed, {self.pending} pending)"

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{self.placed:,} placed, {self.pending:,} pending</b></p>"]
        reasons = Counter(placement.reason for _, placement in self._placements)
        del reasons[""]
        parts += (
            f"<p>{count:,} × {escape(reason)}</p>" for reason, count in reasons.most_common(3)
        )
        parts += (f"<p>note: {escape(note)}</p>" for note in self.notes)
        parts += [self.placements._repr_html_(), self._map(), self._chart()]
        return "".join(parts)

    def _map(self) -> str:
        """A square per node; the more of its cpu is requested, the darker."""
        cells = list[str]()
        for at, node in enumerate(islice(self.nodes.rows(), MAP_NODES)):
            share = node["cpu_requested"] / node["cpu"] if node["cpu"] else 0.0
            title = f"{node['node']}: {share:.0%} of cpu, {node['pods']} pods"
            cells.append(
                f'<rect x="{at % _COLUMNS * _CELL}" y="{at // _COLUMNS * _CELL}" width="10" '
                f'height="10" fill="#3367d6" fill-opacity="{0.08 + 0.92 * min(1.0, share):.2f}">'
                f"<title>{escape(title)}</title></rect>"
            )
        height = (len(cells) + _COLUMNS - 1) // _COLUMNS * _CELL
        return f'<svg width="{_COLUMNS * _CELL}" height="{height}">{"".join(cells)}</svg>'

    def _chart(self) -> str:
        """Share of cpu requested, over time."""
        if len(self._samples) < 2:
            return ""
        ends = max(sample.time_s for sample in self._samples) or 1.0
        points = " ".join(
            f"{sample.time_s / ends * _CHART_WIDTH:.1f},"
            f"{(1 - sample.requested.get('cpu', 0.0)) * _CHART_HEIGHT:.1f}"
            for sample in self._samples
        )
        return (
            f'<p>cpu requested over {ends:g} s</p><svg width="{_CHART_WIDTH}" '
            f'height="{_CHART_HEIGHT}"><polyline points="{points}" fill="none" '
            'stroke="#3367d6" stroke-width="1.5"/></svg>'
        )


def _nodes_of(assembly: Assembly) -> Table:
    table = assembly.table
    rows = np.flatnonzero(table.alive[: table.high_water])
    columns: dict[str, list[str] | np.ndarray[tuple[int], np.dtype[np.int64]]] = {
        "node": [table.names[row] for row in rows.tolist()],
        "pods": table.pod_count.array[rows].astype(np.int64),
    }
    for name, index in table.resource_index.items():
        columns[name] = table.allocatable[index].array[rows].astype(np.int64)
        columns[f"{name}_requested"] = table.requested[index].array[rows].astype(np.int64)
    return Table(columns)
