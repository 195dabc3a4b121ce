"""The node table as columns: all rows, changed rows, devices, and one node in full.

Devices (dynamic resource allocation) are counted per node and driver, from resource slices and
claims.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from kubesched.api.core_v1 import Node
from kubesched.api.names import key_of
from kubesched.api.resource_v1 import ResourceClaim, ResourceSlice
from kubesched.client.informers.factory import UndeclaredKind
from kubesched.framework.nodes.columns import Indices
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.insight.explain.devices import holders_of
from kubesched.insight.page.columns import Array, texts
from kubesched.insight.page.pending import handle_of, workload_of
from kubesched.plugins.dynamic_resources.structured.allocated_state import DeviceID
from kubesched.scheduler.factory import Assembly

ZONE: Final = "topology.kubernetes.io/zone"
PODS: Final = "pods"
CORDONED, TAINTED, NOT_READY = 1, 2, 4
"""Bits of the column `flags`."""
_HARD_EFFECTS: Final = ("NoSchedule", "NoExecute")
MAX_LABEL_KEYS: Final = 500
MAX_NODE_PODS: Final = 1000
MAX_DRAWN: Final = 200, 5000
"""Nodes and pods that a screen has room for one by one."""


def live_rows(table: NodeTable) -> Indices:
    """Rows of all nodes.

    Not in the scheduler's node order: reading that would fix it too early for a cycle.
    """
    return np.flatnonzero(table.alive[: table.high_water])


def node_columns(table: NodeTable) -> tuple[dict[str, Any], dict[str, Array]]:
    """(header, columns) of all nodes."""
    rows = live_rows(table)
    zones = table.label_column(ZONE)
    names = table.names
    columns: dict[str, Array] = {
        "row": rows.astype(np.int32),
        "name": texts(names[row] for row in rows.tolist()),
        "zone": zones.ids[rows].astype(np.int32),
        "flags": _flags(table, rows),
    }
    columns |= _amounts(table, rows)
    header = {
        "resources": resources_of(table),
        "zones": list(zones.values),
        "labelKeys": label_keys(table),
    }
    return header, columns


def label_keys(table: NodeTable) -> list[str]:
    """Label keys that occur on nodes, except those that identify single nodes."""
    many = table.node_count > 1
    keys = [key for key in table.label_keys() if not (many and key == "kubernetes.io/hostname")]
    return sorted(keys)[:MAX_LABEL_KEYS]


def label_values(table: NodeTable, key: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """One label of all nodes: ids into `values`, -1 if a node lacks it."""
    column = table.label_column(key)
    rows = live_rows(table)
    header = {"key": key, "values": list(column.values)}
    return header, {"row": rows.astype(np.int32), "value": column.ids[rows].astype(np.int32)}


def changed_rows(table: NodeTable, rows: Iterable[int]) -> dict[str, Any]:
    """The rows as plain lists, for an event stream message."""
    at = np.array(sorted({row for row in rows if table.alive[row]}), dtype=np.intp)
    columns = {"row": at, "flags": _flags(table, at), **_amounts(table, at)}
    return {name: values.tolist() for name, values in columns.items()}


def identities(table: NodeTable, rows: Iterable[int]) -> list[tuple[int, str, int]]:
    """(row, name, zone) of rows whose nodes changed; the name is empty for a removed node."""
    zones = table.label_column(ZONE).ids
    return [(row, table.names[row], int(zones[row])) for row in sorted(set(rows))]


def resources_of(table: NodeTable) -> list[str]:
    """Resources that occur on nodes, in table order, then the number of pods."""
    used = [
        name
        for name, index in table.resource_index.items()
        if table.allocatable[index].array[: table.high_water].any()
    ]
    return [*used, PODS]


def _amounts(table: NodeTable, rows: Indices) -> dict[str, Array]:
    columns: dict[str, Array] = {}
    for name in resources_of(table)[:-1]:
        index = table.resource_index[name]
        columns[f"allocatable {name}"] = table.allocatable[index].array[rows]
        columns[f"requested {name}"] = table.requested[index].array[rows]
    columns[f"allocatable {PODS}"] = table.allowed_pods.array[rows]
    columns[f"requested {PODS}"] = table.pod_count.array[rows]
    return columns


def _flags(table: NodeTable, rows: Indices) -> Array:
    # Interned like other derived columns: only rows with changed nodes are recomputed.
    column = table.interned("page flags", flags_of)
    values = np.array([*column.values, 0], dtype=np.uint8)
    return values[column.ids[rows]]


def flags_of(node: Node) -> int:
    flags = CORDONED if node.spec.unschedulable else 0
    if any(taint.effect in _HARD_EFFECTS for taint in node.spec.taints or ()):
        flags |= TAINTED
    conditions = {condition.type: condition.status for condition in node.status.conditions or ()}
    if conditions.get("Ready", "True") != "True":
        flags |= NOT_READY
    return flags


def placements(assembly: Assembly) -> dict[str, Any] | None:
    """Every node with its pods, for drawing pods inside nodes; None if there are too many."""
    table, handle = assembly.table, handle_of(assembly)
    rows = live_rows(table)
    if len(rows) > MAX_DRAWN[0] or table.pod_count.array[rows].sum() > MAX_DRAWN[1]:
        return None
    amounts = {name: column.tolist() for name, column in _amounts(table, rows).items()}
    zones, flags = table.label_column(ZONE), _flags(table, rows)
    return {
        "nodes": [
            {
                "name": table.names[row],
                "zone": zones.values[zones.ids[row]] if zones.ids[row] >= 0 else "",
                "flags": int(flags[at]),
                "amounts": {name: amount[at] for name, amount in amounts.items()},
            }
            for at, row in enumerate(rows.tolist())
        ],
        "pods": [
            {
                "pod": info.key,
                "node": table.names[row],
                "cpu": info.requests.milli_cpu,
                "memory": info.requests.memory,
                "workload": workload_of(handle, info.pod),
            }
            for row in rows.tolist()
            for info in table.pods[row].values()
        ],
    }


def node_details(table: NodeTable, name: str) -> dict[str, Any] | None:
    """One node with labels, taints, conditions and pods; None if it does not exist."""
    row = table.row_of.get(name)
    node = None if row is None else table.nodes[row]
    if row is None or node is None:
        return None
    pods = list(table.pods[row].values())
    amounts = _amounts(table, np.array([row], dtype=np.intp))
    return {
        "name": name,
        "labels": dict(node.metadata.labels or {}),
        "cordoned": bool(node.spec.unschedulable),
        "taints": [
            _taint(taint.key, taint.value, taint.effect) for taint in node.spec.taints or ()
        ],
        "amounts": {
            resource: [
                int(amounts[f"requested {resource}"][0]),
                int(amounts[f"allocatable {resource}"][0]),
            ]
            for resource in resources_of(table)
        },
        "podCount": len(pods),
        "pods": [
            {
                "pod": key_of(pod.pod.metadata),
                "cpu": pod.requests.milli_cpu,
                "memory": pod.requests.memory,
            }
            for pod in pods[:MAX_NODE_PODS]
        ],
    }


def _taint(key: str, value: str | None, effect: str) -> str:
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


DEVICES: Final = "devices "
"""Prefix of the resource name under which the page shows a driver's devices."""


def device_version(assembly: Assembly) -> int:
    """Changes with every slice and claim; 0 if devices are not watched."""
    listers = _device_listers(assembly)
    return 0 if listers is None else sum(lister.version for lister in listers)


def device_columns(assembly: Assembly, rows: Indices) -> tuple[list[str], dict[str, Array]]:
    """(resources, columns) of the devices that belong to single nodes."""
    listers = _device_listers(assembly)
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
        columns[f"allocatable {DEVICES}{driver}"] = _device_counts(
            assembly.table, rows, (offered[key] for key in mine)
        )
        columns[f"requested {DEVICES}{driver}"] = _device_counts(assembly.table, rows, used)
    return [f"{DEVICES}{driver}" for driver in drivers], columns


def _device_listers(assembly: Assembly) -> tuple[Any, Any] | None:
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


def _device_counts(table: NodeTable, rows: Indices, nodes: Iterable[str]) -> Array:
    counts = np.zeros(max(table.high_water, 1), dtype=np.int64)
    for node in nodes:
        row = table.row_of.get(node)
        if row is not None:
            counts[row] += 1
    return counts[rows]
