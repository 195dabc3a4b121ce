"""Builds a `meta.k8s.io/v1` Table from entries: columns by kind, rows with or without objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from kubesched.playground.apimachinery.objects import JsonObject, parse_timestamp, value_at
from kubesched.playground.registry.representation import partial_metadata
from kubesched.playground.storage.store import Entry

NONE = "<none>"
Cell: TypeAlias = Callable[[JsonObject, float], Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading, how a cell is computed, and whether only `-o wide` shows it."""

    name: str
    cell: Cell
    type: str = "string"
    format: str = ""
    priority: int = 0

    def definition(self) -> JsonObject:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": "",
            "priority": self.priority,
        }


def build_table(
    columns: Sequence[Column],
    entries: Sequence[Entry],
    metadata: JsonObject,
    now: float,
    include_object: str = "",
) -> JsonObject:
    """The entries as a table; `include_object` is None, Metadata (the default) or Object."""
    rows = []
    for entry in entries:
        row: JsonObject = {"cells": [column.cell(entry.obj, now) for column in columns]}
        if include_object == "Object":
            row["object"] = entry.with_managed_fields()
        elif include_object != "None":
            row["object"] = partial_metadata(entry)
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [column.definition() for column in columns],
        "rows": rows,
    }


def name_cell(obj: JsonObject, now: float) -> str:
    name: str = obj["metadata"]["name"]
    return name


def age_cell(obj: JsonObject, now: float) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def age(stamp: str | None, now: float) -> str:
    """Time since a timestamp, in kubectl's short form."""
    if not stamp:
        return "<unknown>"
    return human_duration(now - parse_timestamp(stamp))


def human_duration(seconds: float) -> str:
    """At most two significant units: 45s, 3m10s, 15m, 2h5m, 25h, 3d4h, 12d, 2y30d."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    if total < 0:
        return "0s"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        rest = total % 60
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        rest = hours % 24
        return f"{days}d{rest}h" if rest else f"{days}d"
    if days < 730:
        return f"{days}d"
    years, rest = divmod(days, 365)
    if years < 8:
        return f"{years}y{rest}d" if rest else f"{years}y"
    return f"{years}y"


NAME = Column("Name", name_cell, format="name")
AGE = Column("Age", age_cell)


def text(name: str, *path: str, default: str = "", priority: int = 0) -> Column:
    """A column with the value at a path."""

    def cell(obj: JsonObject, _: float) -> str:
        value = value_at(obj, path)
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value) if value not in (None, "") else default

    return Column(name, cell, priority=priority)


def number(name: str, *path: str) -> Column:
    """A column with the number at a path, 0 if missing."""
    return Column(name, lambda obj, _: value_at(obj, path) or 0, type="integer")
