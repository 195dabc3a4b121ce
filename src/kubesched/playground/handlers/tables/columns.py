"""Columns by kind; custom resources define their own."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.handlers.tables.cluster import CLUSTER
from kubesched.playground.handlers.tables.custom import custom_columns
from kubesched.playground.handlers.tables.pods import POD_COLUMNS
from kubesched.playground.handlers.tables.table import AGE, NAME, Column, build_table
from kubesched.playground.handlers.tables.workloads import WORKLOADS
from kubesched.playground.registry.rest_storage import RestStorage
from kubesched.playground.storage.store import Entry

DEFAULT_COLUMNS = (NAME, AGE)

COLUMNS = {**CLUSTER, **WORKLOADS, "pods": POD_COLUMNS}


def columns_for(registry: RestStorage, resource: ResourceInfo) -> tuple[Column, ...]:
    if resource.custom:
        return custom_columns(registry, resource)
    return COLUMNS.get(resource.storage_key, DEFAULT_COLUMNS)


def table_of(
    registry: RestStorage,
    resource: ResourceInfo,
    entries: Sequence[Entry],
    metadata: JsonObject,
    include_object: str = "",
) -> JsonObject:
    """The entries as a table; `include_object` is None, Metadata (the default) or Object."""
    columns = columns_for(registry, resource)
    return build_table(columns, entries, metadata, registry.clock.now(), include_object)
