"""The storage state of VolumeBinding: volumes, classes and capacities, including assumed ones.

Volumes and capacities are grouped by storage class; the facts that matching reads are derived once
per revision.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from kubesched.api import quantity
from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim
from kubesched.api.names import key_of
from kubesched.api.storage_v1 import CSIDriver, CSINode, CSIStorageCapacity, StorageClass
from kubesched.base.logs import get_logger
from kubesched.framework.handle import Handle, Lister
from kubesched.framework.nodes.columns import Ints
from kubesched.framework.nodes.views import NodeColumns
from kubesched.plugins.helper.live_groups import LiveGroups
from kubesched.plugins.helper.volumes.claims import class_of_volume, storage_capacity
from kubesched.plugins.helper.volumes.csi_nodes import CsiNodeColumns
from kubesched.plugins.helper.volumes.first_match import (
    Ranks,
    Reach,
    first_matches,
    reach_of_affinity,
    reach_of_selector,
)
from kubesched.plugins.helper.volumes.wiring import listers_of
from kubesched.plugins.volume_binding.assume_cache import AssumeCache

log = get_logger(__name__)

FILESYSTEM: Final = "Filesystem"
_ROOMY_KEPT: Final = 32
_Roomy = tuple[tuple[int, int, int], Ints, Ranks]
"""The versions a result is based on, and the result."""


class VolumeFacts(NamedTuple):
    """The parts of a volume that matching reads."""

    volume: PersistentVolume
    capacity_nanos: int
    capacity_bytes: int
    order: tuple[int, str]
    """Smaller volumes first. Upstream breaks ties at random; here the name decides."""
    mode: str
    attributes_class: str
    access_modes: frozenset[str]
    is_deleting: bool
    is_available: bool
    reach: Reach


class CapacityFacts(NamedTuple):
    """The parts of a CSIStorageCapacity that provisioning reads, if it reaches any node."""

    key: str
    capacity_bytes: int
    """0 if not reported."""
    limit_bytes: int
    """The largest volume that can be provisioned."""
    reach: Reach


class Storage:
    """Listers, indexes and assumptions of one profile."""

    def __init__(self, handle: Handle) -> None:
        listers = listers_of(handle)
        claims: Lister[PersistentVolumeClaim] = listers.of(PersistentVolumeClaim)
        volumes: Lister[PersistentVolume] = listers.of(PersistentVolume)
        self.claims = AssumeCache(claims, "persistentvolumeclaims")
        self._volumes_by_class = LiveGroups(volumes, _place_of_volume, facts_of_volume)
        self.volumes = AssumeCache(volumes, "persistentvolumes", self._volumes_by_class.put)
        self.classes: Lister[StorageClass] = listers.of(StorageClass)
        self.drivers: Lister[CSIDriver] = listers.of(CSIDriver)
        self.csi_node_lister: Lister[CSINode] = listers.of(CSINode)
        self.csi_nodes = CsiNodeColumns(handle.table, self.csi_node_lister)
        self._table = handle.table
        self._roomy: dict[tuple[str, int], _Roomy] = {}
        self._capacities_by_class = LiveGroups(
            listers.of(CSIStorageCapacity),
            lambda capacity: capacity.storage_class_name,
            facts_of_capacity,
        )

    def close(self) -> None:
        self.csi_nodes.close()
        self._volumes_by_class.close()
        self._capacities_by_class.close()

    def volumes_for(self, class_name: str, claim_key: str) -> Iterator[VolumeFacts]:
        """Volumes of a class that are free or reserved for the claim by name, also assumed ones."""
        groups = self._volumes_by_class
        return chain(groups.members((class_name, "")), groups.members((class_name, claim_key)))

    def roomy_capacities(
        self, class_name: str, wanted_bytes: int, nodes: NodeColumns
    ) -> tuple[Ints, Ranks]:
        """Capacities of a class with room for a volume, and the first that each node reaches.

        Pods of one workload query this one after the other, so the result for the whole table is
        cached while it is valid.
        """
        table, groups = self._table, self._capacities_by_class
        holds = (groups.version, table.node_log.end, table.epoch)
        known = self._roomy.get((class_name, wanted_bytes))
        if known is None or known[0] != holds:
            roomy = [f for f in groups.members(class_name) if f.limit_bytes >= wanted_bytes]
            roomy.sort(key=lambda facts: facts.key)
            ranked = ((rank, facts.reach) for rank, facts in enumerate(roomy))
            (choice,) = first_matches(NodeColumns(table), ranked, 1)
            if len(self._roomy) >= _ROOMY_KEPT:
                self._roomy.clear()
            amounts = np.array([facts.capacity_bytes for facts in roomy], dtype=np.int64)
            known = (holds, amounts, choice)
            self._roomy[class_name, wanted_bytes] = known
        return known[1], known[2][nodes.rows]


def facts_of_volume(volume: PersistentVolume) -> VolumeFacts | None:
    """None, with a warning, for a volume with an invalid size, which cannot be matched."""
    spec = volume.spec
    try:
        capacity = storage_capacity(volume)
    except quantity.QuantityError as error:
        log.warningf("persistentvolume %s: spec.capacity.storage: %s", volume.metadata.name, error)
        return None
    return VolumeFacts(
        volume=volume,
        capacity_nanos=capacity.nanos,
        capacity_bytes=capacity.value(),
        order=(capacity.nanos, volume.metadata.name),
        mode=FILESYSTEM if spec.volume_mode is None else spec.volume_mode,
        attributes_class=spec.volume_attributes_class_name or "",
        access_modes=frozenset(spec.access_modes or ()),
        is_deleting=volume.metadata.deletion_timestamp is not None,
        is_available=volume.status.phase == "Available",
        reach=reach_of_affinity(spec.node_affinity),
    )


def facts_of_capacity(capacity: CSIStorageCapacity) -> CapacityFacts | None:
    """None for a capacity that no node or no volume can use."""
    meta = capacity.metadata
    try:
        limit = volume_limit(capacity)
    except quantity.QuantityError as error:
        log.warningf("csistoragecapacity %s/%s: %s", meta.namespace, meta.name, error)
        return None
    if limit is None or capacity.node_topology is None:
        return None
    amount = 0 if capacity.capacity is None else quantity.value(capacity.capacity)
    return CapacityFacts(key_of(meta), amount, limit, reach_of_selector(capacity.node_topology))


def volume_limit(capacity: CSIStorageCapacity) -> int | None:
    """The size in bytes of the largest volume that can be provisioned; None if not reported."""
    raw = capacity.maximum_volume_size
    if raw is None:
        raw = capacity.capacity
    return None if raw is None else quantity.value(raw)


def _place_of_volume(volume: PersistentVolume) -> tuple[str, str]:
    """(class, claim it is reserved for, or empty): claims read only free volumes and their own."""
    reference = volume.spec.claim_ref
    reserved_for = "" if reference is None else f"{reference.namespace}/{reference.name}"
    return class_of_volume(volume), reserved_for
