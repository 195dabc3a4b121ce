"""Parses a scheduler's /metrics page: samples, histograms and quantiles.

Supports only what measuring needs: sums over label sets, differences between two pages, and
Prometheus' quantile estimate (linear inside a bucket), so both schedulers are treated alike.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kubesched.base.errors import KubeschedError

Labels = Mapping[str, str]

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([^ ]+)(?: [0-9]+)?$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)",?')


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a page."""

    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class HistogramView:
    """Cumulative histogram buckets: upper bound -> observations up to it."""

    buckets: Mapping[float, float] = field(default_factory=dict)
    count: float = 0.0
    total: float = 0.0

    def since(self, before: HistogramView) -> HistogramView:
        """Observations made after `before`."""
        return HistogramView(
            {bound: n - before.buckets.get(bound, 0.0) for bound, n in self.buckets.items()},
            self.count - before.count,
            self.total - before.total,
        )

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def quantile(self, q: float) -> float:
        """Prometheus' histogram_quantile, capped at the highest finite bound; 0 if empty."""
        bounds = sorted(self.buckets)
        if not bounds or not self.count:
            return 0.0
        rank = q * self.count
        lower, below = 0.0, 0.0
        for bound in bounds:
            within = self.buckets[bound]
            if within >= rank:
                if math.isinf(bound):
                    return lower
                if within == below:
                    return bound
                return lower + (bound - lower) * (rank - below) / (within - below)
            lower, below = bound, within
        return lower


class MetricPage:
    """All samples of a page by name."""

    def __init__(self, text: str) -> None:
        """Raises `KubeschedError` for a line that is neither a comment nor a sample."""
        self._samples: dict[str, list[Sample]] = {}
        for line in text.splitlines():
            if not line or line.startswith("#"):
                continue
            match = _SAMPLE.match(line)
            if match is None:
                raise KubeschedError(f"not a metric: {line[:120]!r}")
            name, labels, value = match.groups()
            self._samples.setdefault(name, []).append(
                Sample(dict(_LABEL.findall(labels or "")), float(value))
            )

    def total(self, name: str, where: Labels | None = None) -> float:
        """Sum over all matching label sets."""
        return sum(sample.value for sample in self._fitting(name, where))

    def histogram(self, name: str, where: Labels | None = None) -> HistogramView:
        """Sum over all matching label sets; empty if there is none."""
        buckets: dict[float, float] = {}
        for sample in self._fitting(f"{name}_bucket", where):
            bound = float(sample.labels["le"])
            buckets[bound] = buckets.get(bound, 0.0) + sample.value
        return HistogramView(
            buckets, self.total(f"{name}_count", where), self.total(f"{name}_sum", where)
        )

    def _fitting(self, name: str, where: Labels | None) -> list[Sample]:
        wanted = (where or {}).items()
        return [sample for sample in self._samples.get(name, ()) if wanted <= sample.labels.items()]
