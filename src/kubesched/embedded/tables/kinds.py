"""Which columns each kind has."""

from __future__ import annotations

from kubesched.embedded.registry import Registry
from kubesched.embedded.resources import ResourceInfo
from kubesched.embedded.tables.table import AGE, NAME, Column

DEFAULT_COLUMNS = (NAME, AGE)


def columns_for(registry: Registry, resource: ResourceInfo) -> tuple[Column, ...]:
    return DEFAULT_COLUMNS
