"""Devices per node and driver (dynamic resource allocation), from resource slices and claims."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from kubesched.api.resource_v1 import ResourceClaim, ResourceSlice
from kubesched.client.informers.factory import UndeclaredKind
from kubesched.framework.nodes.columns import Indices
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.insight.page.columns import Array
from kubesched.scheduler.factory import Assembly

PREFIX: Final = "devices "
"""Prefix of the resource name under which the page shows a driver's devices."""


def version(assembly: Assembly) -> int:
    """Changes with every slice and claim; 0 if devices are not watched."""
    listers = _listers(assembly)
    return 0 if listers is None else sum(lister.version for lister in listers)


def device_columns(assembly: Assembly, rows: Indices) -> tuple[list[str], dict[str, Array]]:
    """(resources, columns) of the devices that belong to single nodes."""
    listers = _listers(assembly)
    if listers is None:
        return [], {}
    slices, claims = (lister.list() for lister in listers)
    offered = _offered(slices)
    taken = _allocated(claims) & offered.keys()
    drivers = sorted({driver for driver, _, _ in offered})
    columns: dict[str, Array] = {}
    for driver in drivers:
        mine = [key for key in offered if key[0] == driver]
        used = [offered[key] for key in taken if key[0] == driver]
        columns[f"allocatable {PREFIX}{driver}"] = _counts(
            assembly.table, rows, (offered[key] for key in mine)
        )
        columns[f"requested {PREFIX}{driver}"] = _counts(assembly.table, rows, used)
    return [f"{PREFIX}{driver}" for driver in drivers], columns


def _listers(assembly: Assembly) -> tuple[Any, Any] | None:
    listers = next(iter(assembly.frameworks.values())).handle.listers
    if listers is None:
        return None
    try:
        return listers.of(ResourceSlice), listers.of(ResourceClaim)
    except UndeclaredKind:
        return None


_Device = tuple[str, str, str]
"""Driver, pool and name."""


def _offered(slices: Iterable[ResourceSlice]) -> dict[_Device, str]:
    """Device -> node. Only the newest generation of a pool counts."""
    newest: dict[tuple[str, str], int] = {}
    local = [resource_slice for resource_slice in slices if resource_slice.spec.node_name]
    for resource_slice in local:
        pool = (resource_slice.spec.driver, resource_slice.spec.pool.name)
        newest[pool] = max(newest.get(pool, 0), resource_slice.spec.pool.generation)
    return {
        (
            resource_slice.spec.driver,
            resource_slice.spec.pool.name,
            device.name,
        ): resource_slice.spec.node_name or ""
        for resource_slice in local
        if resource_slice.spec.pool.generation
        == newest[resource_slice.spec.driver, resource_slice.spec.pool.name]
        for device in resource_slice.spec.devices or ()
    }


def _allocated(claims: Iterable[ResourceClaim]) -> set[_Device]:
    """Devices allocated to a claim, except by admin access."""
    return {
        (result.driver, result.pool, result.device)
        for claim in claims
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results or ()
        if not result.admin_access
    }


def _counts(table: NodeTable, rows: Indices, nodes: Iterable[str]) -> Array:
    counts = np.zeros(max(table.high_water, 1), dtype=np.int64)
    for node in nodes:
        row = table.row_of.get(node)
        if row is not None:
            counts[row] += 1
    return counts[rows]
