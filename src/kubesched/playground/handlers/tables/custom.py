"""Columns of custom resources, from the `additionalPrinterColumns` of their definition."""

from __future__ import annotations

import re

from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.objects import Json, JsonObject
from kubesched.playground.handlers.tables.table import AGE, NAME, Column, age
from kubesched.playground.registry.rest_storage import RestStorage

_STEP = re.compile(
    r"\.([A-Za-z0-9_-]+)|\['([^']+)'\]|\[(\d+)\]|\[\?\(@\.([A-Za-z0-9_-]+)==\"([^\"]*)\"\)\]"
)


def custom_columns(registry: RestStorage, resource: ResourceInfo) -> tuple[Column, ...]:
    entry = registry.store.get("customresourcedefinitions.apiextensions.k8s.io", "", resource.key)
    if entry is not None:
        for version in (entry.obj.get("spec") or {}).get("versions") or ():
            if version.get("name") == resource.version and version.get("additionalPrinterColumns"):
                return (NAME, *(_column(column) for column in version["additionalPrinterColumns"]))
    return (NAME, AGE)


def _column(definition: JsonObject) -> Column:
    path, kind = definition.get("jsonPath", ""), definition.get("type", "string")

    def cell(obj: JsonObject, now: float) -> Json:
        value = find(obj, path)
        if value is None:
            return None
        if kind == "date":
            return age(value, now) if isinstance(value, str) else "<invalid>"
        return (
            value
            if kind in ("integer", "number", "boolean") or isinstance(value, str)
            else str(value)
        )

    shown = "string" if kind == "date" else kind
    return Column(
        definition.get("name", ""),
        cell,
        shown,
        definition.get("format", ""),
        definition.get("priority", 0),
    )


def find(obj: Json, path: str) -> Json:
    """The value at a simple JSON path (`.a.b[0].c`, `.a[?(@.type=="Ready")].status`), or None."""
    for field, quoted, index, key, wanted in _STEP.findall(path):
        name = field or quoted
        if name:
            obj = obj.get(name) if isinstance(obj, dict) else None
        elif index:
            obj = obj[int(index)] if isinstance(obj, list) and int(index) < len(obj) else None
        elif isinstance(obj, list):
            obj = next(
                (item for item in obj if isinstance(item, dict) and item.get(key) == wanted), None
            )
        if obj is None:
            return None
    return obj
