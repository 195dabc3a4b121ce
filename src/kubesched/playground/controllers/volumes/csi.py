"""Objects published by storage drivers: a CSINode per node, CSIStorageCapacity per segment.

A segment is a set of nodes that share storage: those with equal values of the driver's topology
keys. Nodes that lack one of the keys belong to no segment and get no volumes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kubesched.api import quantity
from kubesched.base.errors import AlreadyExists
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    is_deleting,
    labels_of,
    name_of,
    spec_of,
    uid_of,
)
from kubesched.playground.client.controller import Controller, ControllerContext
from kubesched.playground.controllers.controller_revisions import compute_hash
from kubesched.playground.controllers.volumes.selection import DEFAULT_CLASS, capacity_bytes

CSI_NODES = "csinodes.storage.k8s.io"
CSI_DRIVERS = "csidrivers.storage.k8s.io"
CAPACITIES = "csistoragecapacities.storage.k8s.io"
CLASSES = "storageclasses.storage.k8s.io"
CAPACITY_NAMESPACE = "kube-system"
DRIVER_NAME = "csi.storage.k8s.io/drivername"

Segment = tuple[tuple[str, str], ...]
"""Topology keys and values, in the driver's order of keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageDriver:
    """A simulated storage system."""

    name: str = "csi.kubesched.io"
    storage_class: str = "standard"
    """The class created for it; "" creates none."""
    is_default: bool = True
    binding_mode: str = "WaitForFirstConsumer"
    reclaim_policy: str = "Delete"
    topology_keys: tuple[str, ...] = ("topology.kubernetes.io/zone",)
    """Labels that determine which nodes reach which volumes; if empty, all nodes reach all."""
    segment_capacity: str = ""
    """Capacity of each segment, as a quantity; "" is unlimited and publishes nothing."""
    volumes_per_node: int | None = None
    """How many volumes a node can attach; None is unlimited."""

    def segment_of(self, node: JsonObject) -> Segment | None:
        """The node's segment; None if it lacks one of the topology keys."""
        labels = labels_of(node)
        if any(key not in labels for key in self.topology_keys):
            return None
        return tuple((key, labels[key]) for key in self.topology_keys)


def segment_of_volume(driver: StorageDriver, volume: JsonObject) -> Segment | None:
    """The segment of a volume of this driver, read from its node affinity."""
    required = (spec_of(volume).get("nodeAffinity") or {}).get("required") or {}
    for term in required.get("nodeSelectorTerms") or ():
        values = {
            match_expression["key"]: match_expression["values"][0]
            for match_expression in term.get("matchExpressions") or ()
            if match_expression.get("operator") == "In"
            and len(match_expression.get("values") or ()) == 1
        }
        if all(key in values for key in driver.topology_keys):
            return tuple((key, values[key]) for key in driver.topology_keys)
    return () if not driver.topology_keys else None


def used_by_segment(driver: StorageDriver, volumes: Iterable[JsonObject]) -> dict[Segment, int]:
    """Bytes allocated by the driver's volumes per segment."""
    used: dict[Segment, int] = {}
    for volume in volumes:
        if (spec_of(volume).get("csi") or {}).get("driver") != driver.name:
            continue
        segment = segment_of_volume(driver, volume)
        if segment is not None:
            used[segment] = used.get(segment, 0) + capacity_bytes(volume)
    return used


class CsiPublisher(Controller[str]):
    """Publishes storage objects. Keys: a node's name for its CSINode, "" for all others."""

    name = "csi-publisher"

    def __init__(self, context: ControllerContext, drivers: Sequence[StorageDriver]) -> None:
        super().__init__(context)
        self._drivers = tuple(drivers)
        self._nodes = self.watch("nodes", self._node_changed)
        self._csi_nodes = self.watch(CSI_NODES)
        self._volumes = self.watch("persistentvolumes", lambda *_: self._capacity_changed())
        self._classes = self.watch(CLASSES, lambda *_: self._capacity_changed())
        self._capacities = self.watch(CAPACITIES)
        self._is_registered = False
        self.queue.add("")

    def sync(self, key: str) -> float | None:
        if key:
            self._publish_node(key)
            return None
        if not self._is_registered:
            for driver in self._drivers:
                self._register(driver)
            self._is_registered = True
        for driver in self._drivers:
            if driver.segment_capacity:
                self._publish_capacity(driver)
        return None

    # -- drivers and nodes -----------------------------------------------------------------------

    def _register(self, driver: StorageDriver) -> None:
        self._ensure(
            CSI_DRIVERS,
            {
                "metadata": {"name": driver.name},
                "spec": {
                    "attachRequired": False,
                    "podInfoOnMount": False,
                    "storageCapacity": bool(driver.segment_capacity),
                    "volumeLifecycleModes": ["Persistent"],
                },
            },
        )
        if driver.storage_class:
            annotations = {DEFAULT_CLASS: "true"} if driver.is_default else {}
            self._ensure(
                CLASSES,
                {
                    "metadata": {"name": driver.storage_class, "annotations": annotations},
                    "provisioner": driver.name,
                    "reclaimPolicy": driver.reclaim_policy,
                    "volumeBindingMode": driver.binding_mode,
                },
            )

    def _ensure(self, resource: str, obj: JsonObject) -> None:
        """Create an object unless it exists; user changes to it are kept."""
        try:
            self.api.create(resource, obj)
        except AlreadyExists:
            return

    def _publish_node(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None or is_deleting(node):
            return
        drivers = [self._node_entry(driver, node) for driver in self._drivers]
        known = self._csi_nodes.get(name)
        if known is None:
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid_of(node)}
            self.api.create(
                CSI_NODES,
                {
                    "metadata": {"name": name, "ownerReferences": [owner]},
                    "spec": {"drivers": drivers},
                },
            )
            return
        ours = {driver.name for driver in self._drivers}
        others = [
            other for other in spec_of(known).get("drivers") or () if other.get("name") not in ours
        ]
        wanted = [*others, *drivers]
        if spec_of(known).get("drivers") != wanted:
            self.api.patch(CSI_NODES, None, name, {"spec": {"drivers": wanted}})

    @staticmethod
    def _node_entry(driver: StorageDriver, node: JsonObject) -> JsonObject:
        entry: JsonObject = {"name": driver.name, "nodeID": name_of(node)}
        if driver.segment_of(node) is not None and driver.topology_keys:
            entry["topologyKeys"] = list(driver.topology_keys)
        if driver.volumes_per_node is not None:
            entry["allocatable"] = {"count": driver.volumes_per_node}
        return entry

    # -- capacity --------------------------------------------------------------------------------

    def _publish_capacity(self, driver: StorageDriver) -> None:
        segments = {
            segment for node in self._nodes if (segment := driver.segment_of(node)) is not None
        }
        classes = [
            name_of(other) for other in self._classes if other.get("provisioner") == driver.name
        ]
        used = used_by_segment(driver, self._volumes)
        total = quantity.value(driver.segment_capacity)
        wanted: dict[str, JsonObject] = {}
        for segment in sorted(segments):
            free = max(0, total - used.get(segment, 0))
            for storage_class in classes:
                obj = _capacity_object(driver, storage_class, segment, free)
                wanted[name_of(obj)] = obj
        known = {
            name_of(capacity): capacity
            for capacity in self._capacities
            if labels_of(capacity).get(DRIVER_NAME) == driver.name
        }
        for name, obj in wanted.items():
            present = known.pop(name, None)
            if present is None:
                self.api.create(CAPACITIES, obj, CAPACITY_NAMESPACE)
            elif present.get("capacity") != obj["capacity"]:
                patch = {"capacity": obj["capacity"], "maximumVolumeSize": obj["maximumVolumeSize"]}
                self.api.patch(CAPACITIES, CAPACITY_NAMESPACE, name, patch)
        for item in known.values():
            self.api.delete_object(CAPACITIES, item)

    # -- events ----------------------------------------------------------------------------------

    def _capacity_changed(self) -> None:
        if any(driver.segment_capacity for driver in self._drivers):
            self.queue.add("")

    def _node_changed(self, kind: str, node: JsonObject, old: JsonObject | None) -> None:
        if kind == "MODIFIED" and old is not None and labels_of(old) == labels_of(node):
            return
        self.queue.add(name_of(node))
        self._capacity_changed()


def allows(terms: Sequence[JsonObject] | None, segment: Segment) -> bool:
    """Whether a class's allowedTopologies include a segment; no terms allow all."""
    if not terms:
        return True
    labels = dict(segment)
    return any(
        bool(term.get("matchLabelExpressions"))
        and all(
            labels.get(requirement.get("key", "")) in (requirement.get("values") or ())
            for requirement in term["matchLabelExpressions"]
        )
        for term in terms
    )


def _capacity_object(
    driver: StorageDriver, storage_class: str, segment: Segment, free: int
) -> JsonObject:
    identity = compute_hash([driver.name, storage_class, [list(pair) for pair in segment]])
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {
            "name": f"csisc-{identity}",
            "namespace": CAPACITY_NAMESPACE,
            "labels": {DRIVER_NAME: driver.name},
        },
        "storageClassName": storage_class,
        "nodeTopology": {"matchLabels": dict(segment)},
        "capacity": str(free),
        "maximumVolumeSize": str(free),
    }
