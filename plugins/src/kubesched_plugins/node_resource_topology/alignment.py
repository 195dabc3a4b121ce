"""Whether a pod gets all it wants from one NUMA zone, as the kubelet would try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kubesched.framework.api import Node
from kubesched_plugins.node_resource_topology.topology import (
    POD_SCOPE,
    Demand,
    Topology,
    Want,
    Zone,
)

CANNOT_ALIGN_POD: Final = "cannot align pod"
CANNOT_ALIGN_CONTAINER: Final = "cannot align container"
CANNOT_ALIGN_INIT: Final = "cannot align init container"
CANNOT_ALIGN_SIDECAR: Final = "cannot align sidecar container"
_INIT: Final = {"init": CANNOT_ALIGN_INIT, "sidecar": CANNOT_ALIGN_SIDECAR}

_EVERY_ZONE: Final = 2**64 - 1
_ALWAYS_OFFERED: Final = ("cpu", "memory", "pods", "ephemeral-storage")


def why_not(demand: Demand, topology: Topology, node: Node) -> str:
    """Why the pod cannot be aligned on the node; empty if it can."""
    offered = node.status.allocatable or {}
    zones = topology.zones
    if topology.config.scope == POD_SCOPE:
        return "" if _zone_for(demand.pod, zones, offered) is not None else CANNOT_ALIGN_POD
    # Init containers run one after the other, and before the others.
    for kind, wants in demand.init_containers:
        if _zone_for(wants, zones, offered) is None:
            return _INIT[kind]
    for position, wants in enumerate(demand.containers):
        zone_id = _zone_for(wants, zones, offered)
        if zone_id is None:
            return CANNOT_ALIGN_CONTAINER
        if position + 1 < len(demand.containers):
            zones = tuple(_without(zone, wants) if zone.id == zone_id else zone for zone in zones)
    return ""


def _without(zone: Zone, wants: Sequence[Want]) -> Zone:
    taken = {want.name: want.amount for want in wants if not want.is_free}
    left = {name: amount - taken.get(name, 0) for name, amount in zone.available.items()}
    return Zone(zone.id, left, zone.costs)


def _zone_for(
    wants: Sequence[Want], zones: Sequence[Zone], offered: Mapping[str, object]
) -> int | None:
    """The lowest id of the zones that have everything: the kubelet takes that one."""
    fitting = _EVERY_ZONE
    for name, amount, is_free, is_host_level in wants:
        if name not in _ALWAYS_OFFERED and not _is_scalar(name, offered):
            return None
        bits, is_in_zones = 0, False
        for zone_id, left, _costs in zones:
            has = left.get(name)
            if has is not None:
                is_in_zones = True
                if is_free or has >= amount:
                    bits |= 1 << zone_id
        if is_in_zones or not is_host_level:
            fitting &= bits
            if not fitting:
                return None
    return (fitting & -fitting).bit_length() - 1


def _is_scalar(name: str, offered: Mapping[str, object]) -> bool:
    return name in offered and (
        "/" in name or name.startswith(("hugepages-", "attachable-volumes-"))
    )
