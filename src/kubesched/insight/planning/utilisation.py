"""Utilisation of a cluster, from the scheduler's own sums."""

from __future__ import annotations

import numpy as np

from kubesched.api.core_v1 import Node
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.insight.planning.model import Amount, Utilisation
from kubesched.insight.planning.stops import zone_of
from kubesched.insight.state.planned_cluster import PlannedCluster

PODS = "pods"


def utilisation_of(world: PlannedCluster) -> Utilisation:
    """Requests and allocatable of all nodes that are not cordoned, in total and by zone."""
    table = world.assembly.table
    rows_by_zone: dict[str, list[int]] = {}
    for node in world.objects(Node):
        row = table.row_of.get(node.metadata.name)
        if row is not None and not node.spec.unschedulable:
            rows_by_zone.setdefault(zone_of(node), []).append(row)
    rows = [row for zone_rows in rows_by_zone.values() for row in zone_rows]
    return Utilisation(
        nodes=len(rows),
        resources=_sums(table, rows),
        zones={zone: _sums(table, rows_by_zone[zone]) for zone in sorted(rows_by_zone)},
    )


def _sums(table: NodeTable, rows: list[int]) -> dict[str, Amount]:
    at = np.array(rows, dtype=np.intp)
    sums = {}
    for resource, index in table.resource_index.items():
        allocatable = int(table.allocatable[index].array[at].sum())
        requested = int(table.requested[index].array[at].sum())
        if allocatable:
            sums[resource] = Amount(requested=requested, allocatable=allocatable)
    if allowed := int(table.allowed_pods.array[at].sum()):
        sums[PODS] = Amount(requested=int(table.pod_count.array[at].sum()), allocatable=allowed)
    return sums


def tightest(utilisation: Utilisation) -> str:
    """The resource with the largest requested share; empty without nodes."""
    resources = utilisation.resources
    return max(
        resources,
        key=lambda name: resources[name].requested / resources[name].allocatable,
        default="",
    )
