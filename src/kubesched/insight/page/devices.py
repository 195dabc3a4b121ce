"""Devices per node and driver (dynamic resource allocation), from resource slices and claims."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from kubesched.api.resource_v1 import ResourceClaim, ResourceSlice
from kubesched.client.informers.factory import UndeclaredKind
from kubesched.framework.nodes.columns import Indices
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.insight.explain.devices import holders_of
from kubesched.insight.page.columns import Array
from kubesched.plugins.dynamic_resources.structured.allocated_state import DeviceID
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
    taken = holders_of(claims).keys() & offered.keys()
    drivers = sorted({device.driver for device in offered})
    columns: dict[str, Array] = {}
    for driver in drivers:
        mine = [key for key in offered if key.driver == driver]
        used = [offered[key] for key in taken if key.driver == driver]
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


def _offered(slices: Iterable[ResourceSlice]) -> dict[DeviceID, str]:
    """Device -> node. Only the newest generation of a pool counts."""
    pools: dict[tuple[str, str], tuple[int, dict[DeviceID, str]]] = {}
    for spec in (each.spec for each in slices if each.spec.node_name):
        pool = spec.driver, spec.pool.name
        newest, found = pools.get(pool, (-1, {}))
        if spec.pool.generation > newest:
            newest, found = spec.pool.generation, {}
        if spec.pool.generation == newest:
            found |= {
                DeviceID(*pool, each.name): spec.node_name or "" for each in spec.devices or ()
            }
        pools[pool] = newest, found
    return {device: node for _, found in pools.values() for device, node in found.items()}


def _counts(table: NodeTable, rows: Indices, nodes: Iterable[str]) -> Array:
    counts = np.zeros(max(table.high_water, 1), dtype=np.int64)
    for node in nodes:
        row = table.row_of.get(node)
        if row is not None:
            counts[row] += 1
    return counts[rows]
