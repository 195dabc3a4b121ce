"""Columns of custom resources, from the `additionalPrinterColumns` of their definition."""

from __future__ import annotations

from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.objects import Json, JsonObject
from kubesched.playground.apimachinery.paths import Path, PathError
from kubesched.playground.handlers.tables.table import AGE, NAME, Column, age
from kubesched.playground.registry.rest_storage import RestStorage


def custom_columns(registry: RestStorage, resource: ResourceInfo) -> tuple[Column, ...]:
    entry = registry.store.get("customresourcedefinitions.apiextensions.k8s.io", "", resource.key)
    if entry is not None:
        for version in (entry.obj.get("spec") or {}).get("versions") or ():
            if version.get("name") == resource.version and version.get("additionalPrinterColumns"):
                return (NAME, *(_column(column) for column in version["additionalPrinterColumns"]))
    return (NAME, AGE)


def _column(definition: JsonObject) -> Column:
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
