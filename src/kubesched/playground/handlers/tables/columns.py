"""Columns by kind, from `columns.txt`; custom resources define their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeAlias

from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.objects import Json, JsonObject
from kubesched.playground.apimachinery.paths import Path, PathError
from kubesched.playground.handlers.tables import cells, pods
from kubesched.playground.handlers.tables.durations import age
from kubesched.playground.registry.representation import partial_metadata
from kubesched.playground.registry.rest_storage import RestStorage
from kubesched.playground.storage.store import Entry

Cell: TypeAlias = Callable[[JsonObject, float], Any]

_SOURCE = re.compile(
    r"(?P<mark>#|\?|\[\])?(?:(?P<path>\.[\w.\[\]=]+)|(?P<function>\w+)\((?P<now>now)?\))"
)
_TYPES = {"#": "integer", "[]": "integer", "?": "boolean", None: "string"}


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


# -- built-in kinds -------------------------------------------------------------------------------


def _parse(text: str) -> dict[str, tuple[Column, ...]]:
    columns: dict[str, tuple[Column, ...]] = {}
    kinds: list[str] = []
    for line in text.splitlines():
        if line.startswith("["):
            kinds = line[1:-1].split(", ")
        elif line and not line.startswith("#"):
            column = _column(*re.split(r"\s{2,}", line))
            for kind in kinds:
                columns[kind] = (*columns.get(kind, ()), column)
    return columns


def _column(name: str, source: str = "", *options: str) -> Column:
    match = _SOURCE.fullmatch(source or {"Name": ".metadata.name", "Age": "age(now)"}[name])
    assert match is not None, f"{name}: {source}"
    default = next((option for option in options if option != "wide"), "")
    if match["path"]:
        cell = _value_cell(Path(match["path"]), match["mark"], default)
    else:
        cell = _function_cell(match["function"], needs_time=bool(match["now"]))
    shown_as = "name" if name == "Name" else ""
    return Column(name, cell, _TYPES[match["mark"]], shown_as, int("wide" in options))


def _value_cell(path: Path, mark: str | None, default: str) -> Cell:
    def cell(obj: JsonObject, _now: float) -> Json:
        values = path.values(obj)
        value = values[0] if values else None
        if mark == "#":
            return value or 0
        if mark == "[]":
            return len(value or ())
        if mark == "?":
            return bool(value)
        return ",".join(map(_text, values)) or default

    return cell


def _text(value: Json) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _function_cell(name: str, *, needs_time: bool) -> Cell:
    if name == "age":
        return lambda obj, now: age(obj["metadata"].get("creationTimestamp"), now)
    function = getattr(cells, name, None) or getattr(pods, name)
    return function if needs_time else lambda obj, _now: function(obj)


COLUMNS = _parse(resources.files(__package__).joinpath("columns.txt").read_text(encoding="utf-8"))
DEFAULT_COLUMNS = (_column("Name"), _column("Age"))


# -- custom resources -----------------------------------------------------------------------------


def _custom_columns(registry: RestStorage, resource: ResourceInfo) -> tuple[Column, ...]:
    """The `additionalPrinterColumns` of a definition."""
    entry = registry.store.get("customresourcedefinitions.apiextensions.k8s.io", "", resource.key)
    if entry is not None:
        for version in (entry.obj.get("spec") or {}).get("versions") or ():
            if version.get("name") == resource.version and version.get("additionalPrinterColumns"):
                return (_column("Name"), *map(_custom_column, version["additionalPrinterColumns"]))
    return DEFAULT_COLUMNS


def _custom_column(definition: JsonObject) -> Column:
    kind = definition.get("type", "string")
    try:
        path = Path(definition.get("jsonPath", ""))
    except PathError:
        path = None  # JSON paths have more forms; such a column stays empty

    def cell(obj: JsonObject, now: float) -> Json:
        value = next(iter(path.values(obj)), None) if path is not None else None
        if value is None:
            return None
        if kind == "date":
            return age(value, now) if isinstance(value, str) else "<invalid>"
        is_plain = kind in ("integer", "number", "boolean") or isinstance(value, str)
        return value if is_plain else str(value)

    return Column(
        definition.get("name", ""),
        cell,
        "string" if kind == "date" else kind,
        definition.get("format", ""),
        definition.get("priority", 0),
    )


# -- tables ---------------------------------------------------------------------------------------


def table_of(
    registry: RestStorage,
    resource: ResourceInfo,
    entries: Sequence[Entry],
    metadata: JsonObject,
    include_object: str = "",
) -> JsonObject:
    """The entries as a table; `include_object` is None, Metadata (the default) or Object."""
    if resource.custom:
        columns = _custom_columns(registry, resource)
    else:
        columns = COLUMNS.get(resource.storage_key, DEFAULT_COLUMNS)
    now = registry.clock.now()
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
