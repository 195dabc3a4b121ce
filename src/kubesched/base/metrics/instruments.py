"""Counters, gauges and histograms, cheap enough to update in every scheduling cycle.

A `Family` is one metric name; its *cells* are the time series, one per combination of label values.
Cells are created on first use and then kept, so a caller on a hot path keeps the cell and pays for
one addition. Only creating a cell takes a lock. The page is written by another thread, so a
histogram's sum may be one observation ahead of its buckets.

Cells also produce their text, because each caches its line prefixes on the first scrape. Reading
and writing are two steps: `read` captures a cell's numbers, `write` turns them into lines, maybe
much later, so that a large family can be written in pieces from one consistent reading.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from math import inf, isfinite, isnan
from operator import add
from threading import Lock
from typing import Generic, TypeVar

_MAX_EXACT_INT = 2.0**53

_MAKING_CELL = Lock()

UNEXPECTED = "unexpected"
"""Replaces label values that are not on the list of allowed ones."""


class _Scalar:
    """One number, stored here or read by a callback when the page is written."""

    __slots__ = ("_prefix", "_read", "value")

    def __init__(self, name: str, labels: str) -> None:
        self.value = 0.0
        self._prefix = f"{name}{{{labels}}} " if labels else f"{name} "
        self._read: Callable[[], float] | None = None

    def read_from(self, read: Callable[[], float]) -> None:
        """Call `read` for each page, so that the metric always matches its source."""
        self._read = read

    def current(self) -> float:
        return self.value if self._read is None else self._read()

    def read(self) -> float:
        return self.current()

    def write(self, numbers: float, out: list[str]) -> None:
        out.append(self._prefix + format_number(numbers))


class Counter(_Scalar):
    """A number that only grows."""

    __slots__ = ()

    def inc(self, amount: float = 1.0) -> None:
        if amount < 0:
            raise ValueError(f"counter {self._prefix.strip()} cannot decrease (asked for {amount})")
        self.value += amount

    def reset(self) -> None:
        self.value = 0.0


class Gauge(_Scalar):
    """A number that goes up and down."""

    __slots__ = ()

    def set(self, value: float) -> None:
        self.value = value

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount

    def dec(self, amount: float = 1.0) -> None:
        self.value -= amount

    def reset(self) -> None:
        """Does nothing: a gauge shows the current state."""


class Histogram:
    """Bucket counts and sum of the observed values.

    `counts[i]` belongs to `bounds[i]` alone (not cumulative; the last one is for values above every
    bound): an observation is one increment, and the scrape adds them up.
    """

    __slots__ = ("_labels", "_name", "_prefixes", "bounds", "counts", "sum")

    def __init__(self, name: str, labels: str, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self._name = name
        self._labels = labels
        self._prefixes: list[str] | None = None

    def observe(self, value: float) -> None:
        bounds = self.bounds
        # Most durations are within the first bound; a search would take longer than all else here.
        self.counts[0 if value <= bounds[0] else bisect_left(bounds, value)] += 1
        self.sum += value

    def reset(self) -> None:
        self.counts = [0] * len(self.counts)
        self.sum = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def read(self) -> tuple[list[int], float]:
        return self.counts.copy(), self.sum

    def write(self, numbers: tuple[list[int], float], out: list[str]) -> None:
        counts, total = numbers
        prefixes = self._prefixes
        if prefixes is None:
            prefixes = self._prefixes = self._build_prefixes()
        cumulative = list(map(str, accumulate(counts)))
        out.extend(map(add, prefixes, cumulative))
        out.append(prefixes[-2] + format_number(total))
        out.append(prefixes[-1] + cumulative[-1])

    def _build_prefixes(self) -> list[str]:
        """One per bucket, then those of `_sum` and `_count`."""
        name, labels = self._name, self._labels
        before = f"{labels}," if labels else ""
        tail = f"{{{labels}}} " if labels else " "
        buckets = [
            f'{name}_bucket{{{before}le="{format_number(bound)}"}} '
            for bound in (*self.bounds, inf)
        ]
        return [*buckets, f"{name}_sum{tail}", f"{name}_count{tail}"]


Cell = TypeVar("Cell", Counter, Gauge, Histogram)


class Family(Generic[Cell]):
    """One metric: name, help, type, label names, and its cells.

    A family without labels has one cell from the start; one with labels is absent from the page
    until its first cell is created, as in upstream's client library.
    """

    __slots__ = (
        "_allowed",
        "_cells",
        "_header",
        "_make",
        "_order",
        "bounds",
        "help",
        "label_names",
        "name",
        "type",
    )

    def __init__(
        self,
        name: str,
        help_text: str,
        type_name: str,
        label_names: Sequence[str],
        make: Callable[[str, str], Cell],
        bounds: tuple[float, ...] = (),
    ) -> None:
        self.name = name
        self.help = help_text
        self.type = type_name
        self.label_names = tuple(label_names)
        self.bounds = bounds
        self._make: Callable[[str, str], Cell] = make
        self._cells: dict[tuple[str, ...], Cell] = {}
        self._allowed: dict[int, frozenset[str]] = {}
        self._order: list[tuple[str, ...]] = []
        self._header = f"# HELP {name} {_escape_help(help_text)}\n# TYPE {name} {type_name}"
        if not label_names:
            self.labels()

    def labels(self, *values: str) -> Cell:
        """The cell for these label values, in the order of `label_names`."""
        try:
            return self._cells[values]
        except KeyError:
            return self._add(values)

    def allow(self, label: str, values: Iterable[str]) -> None:
        """Restricts a label's values (others become `unexpected`). Call before creating cells."""
        self._allowed[self.label_names.index(label)] = frozenset(values)

    def reset(self) -> None:
        """Resets counters and histograms; the cells stay, because callers refer to them."""
        for cell in list(self._cells.values()):
            cell.reset()

    def cells(self) -> dict[tuple[str, ...], Cell]:
        """Every cell that exists, by label values."""
        return dict(self._cells)

    def write(self, out: list[str]) -> None:
        for write in self.writers():
            write(out)

    def writers(self) -> Iterator[Callable[[list[str]], None]]:
        """The family's text in steps, for writers that must yield: the header, then cell by cell.

        The numbers are read when the first step is requested.
        """
        cells = [self._cells[values] for values in self._order.copy()]
        if cells:
            readings = [cell.read() for cell in cells]
            yield self._write_header
            for cell, numbers in zip(cells, readings, strict=True):
                yield partial(cell.write, numbers)

    def _write_header(self, out: list[str]) -> None:
        out.append(self._header)

    def _add(self, values: tuple[str, ...]) -> Cell:
        if len(values) != len(self.label_names) or not all(isinstance(v, str) for v in values):
            raise ValueError(
                f"metric {self.name} takes text for the labels {self.label_names}, got {values!r}"
            )
        if self._allowed:
            kept = tuple(
                value if index not in self._allowed or value in self._allowed[index] else UNEXPECTED
                for index, value in enumerate(values)
            )
            if kept != values:
                return self.labels(*kept) if kept in self._cells else self._make_cell(kept)
        return self._make_cell(values)

    def _make_cell(self, values: tuple[str, ...]) -> Cell:
        with _MAKING_CELL:
            known = self._cells.get(values)
            return self._new_cell(values) if known is None else known

    def _new_cell(self, values: tuple[str, ...]) -> Cell:
        pairs = zip(self.label_names, values, strict=True)
        labels = [f'{label}="{escape_value(value)}"' for label, value in pairs]
        cell = self._make(self.name, ",".join(labels))
        self._cells[values] = cell
        insort(self._order, values)
        return cell


def exponential_buckets(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Bounds that grow by `factor`, multiplied step by step so that they round like upstream's."""
    bounds = [start]
    for _ in range(count - 1):
        bounds.append(bounds[-1] * factor)
    return tuple(bounds)


def format_number(value: float) -> str:
    """Shortest text that reads back as the same number; whole numbers without a fraction."""
    if isfinite(value):
        whole = int(value)
        return str(whole) if whole == value and abs(value) < _MAX_EXACT_INT else repr(float(value))
    if isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"


def escape_value(text: str) -> str:
    if text.isalnum():  # the common case
        return text
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
