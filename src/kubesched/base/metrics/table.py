"""Reads `metrics.txt`: type, labels, buckets, help and conditions of every metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kubesched.base.metrics.instruments import exponential_buckets
from kubesched.base.tables import described

TABLE = Path(__file__).with_name("metrics.txt")


@dataclass(frozen=True, slots=True)
class Row:
    """A metric as it is registered."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    conditions: tuple[str, ...] = ()


def declared(name: str) -> Row:
    """The only row of that name; raises ValueError."""
    (row,) = rows().get(name, ())
    return row


@cache
def rows() -> Mapping[str, Sequence[Row]]:
    """The rows by name; one whose help or type depends on conditions has several."""
    by_name: dict[str, list[Row]] = {}
    for head, help_text in described(TABLE):
        row = _row(head, help_text)
        by_name.setdefault(row.name, []).append(row)
    return by_name


def _row(head: str, help_text: str) -> Row:
    what, _, conditions = head.partition(" if ")
    what, _, labels = what.partition(" by ")
    name, type_name, *buckets = what.split()
    return Row(
        name,
        type_name,
        help_text,
        tuple(labels.split()),
        _bounds(buckets[0]) if buckets else (),
        tuple(conditions.split()),
    )


def _bounds(text: str) -> tuple[float, ...]:
    start, star, rest = text.partition("*")
    if not star:
        return tuple(map(float, text.split(",")))
    factor, _, count = rest.partition("^")
    return exponential_buckets(float(start), float(factor), int(count))
