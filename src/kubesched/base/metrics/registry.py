"""The metrics registry and the page that a scraper reads."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final, TypeVar

from kubesched.base.metrics.instruments import Counter, Family, Gauge, Histogram
from kubesched.base.metrics.table import Row, declared, rows

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"

_METRIC_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_LABEL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")

_F = TypeVar("_F", bound=Family[Any])


class MetricsRegistry:
    """All metrics of one process; names are unique.

    Help texts start with upstream's stability level: `[ALPHA]`, `[BETA]` or `[STABLE]`.
    """

    def __init__(
        self,
        *,
        disabled: Collection[str] = (),
        allowed_labels: Mapping[tuple[str, str], Collection[str]] | None = None,
        shows_hidden: bool = False,
    ) -> None:
        """`disabled` metrics are off the page, and hidden ones unless `shows_hidden`.

        `allowed_labels` maps (metric, label) to values.
        """
        self.shows_hidden = shows_hidden
        self._families: dict[str, Family[Any]] = {}
        self._sorted: list[Family[Any]] | None = None
        self._disabled = frozenset(disabled)
        self._allowed_labels = dict(allowed_labels or {})
        self._unlisted: set[str] = set()

    # Without a help text, `metrics.txt` has the metric.

    def counter(
        self, name: str, help_text: str = "", *, labels: Sequence[str] = ()
    ) -> Family[Counter]:
        return self.add(_row(Row(name, "counter", help_text, tuple(labels))))

    def gauge(self, name: str, help_text: str = "", *, labels: Sequence[str] = ()) -> Family[Gauge]:
        return self.add(_row(Row(name, "gauge", help_text, tuple(labels))))

    def histogram(
        self,
        name: str,
        help_text: str = "",
        *,
        buckets: Sequence[float] = (),
        labels: Sequence[str] = (),
    ) -> Family[Histogram]:
        bounds = tuple(map(float, buckets))
        return self.add(_row(Row(name, "histogram", help_text, tuple(labels), bounds)))

    def add(self, row: Row) -> Family[Any]:
        """A metric of any type; its conditions are not looked at."""
        make: Any = {"counter": Counter, "gauge": Gauge}.get(row.type)
        if make is None:
            if not row.bounds or any(a >= b for a, b in pairwise(row.bounds)):
                problem = f"bucket bounds must grow strictly, got {row.bounds}"
                raise ValueError(f"metric {row.name}: {problem}")
            make = partial(Histogram, bounds=row.bounds)
        return self._register(Family(row.name, row.help, row.type, row.labels, make, row.bounds))

    def families(self) -> Iterator[Family[Any]]:
        """Every family, ordered by name."""
        if self._sorted is None:
            self._sorted = [self._families[name] for name in sorted(self._families)]
        return iter(self._sorted)

    def reset(self) -> None:
        """Reset every counter and histogram; gauges stay."""
        for family in self._families.values():
            family.reset()

    def text(self) -> str:
        """The page in the Prometheus text format: families by name, series by label values."""
        lines: list[str] = []
        for family in self.families():
            family.write(lines)
        lines.append("")
        return "\n".join(lines)

    def _register(self, family: _F) -> _F:
        if not _METRIC_NAME.match(family.name):
            raise ValueError(f'"{family.name}" is not a metric name')
        for label in family.label_names:
            if not _LABEL_NAME.match(label) or (label == "le" and family.type == "histogram"):
                raise ValueError(f'metric {family.name}: "{label}" cannot be a label name')
        if family.name in self._families or family.name in self._unlisted:
            raise ValueError(f"metric {family.name} is registered already")
        for label in family.label_names:
            allowed = self._allowed_labels.get((family.name, label))
            if allowed is not None:
                family.allow(label, allowed)
        if family.name in self._disabled:
            self._unlisted.add(family.name)
            return family
        self._families[family.name] = family
        self._sorted = None
        return family


def _row(given: Row) -> Row:
    if given.help or not rows().get(given.name):
        return given  # of a plugin
    row = declared(given.name)
    assert row.type == given.type, f"metrics.txt says that {row.name} is a {row.type}"
    return row
