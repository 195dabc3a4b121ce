"""Objects published by storage drivers: the driver with its class, and a CSINode per node.

A driver's volumes can be reached from the zone in which they were created. Nodes without a zone get
no volumes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

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
from kubesched.playground.controllers.volumes.selection import DEFAULT_CLASS

CSI_NODES = "csinodes.storage.k8s.io"
CSI_DRIVERS = "csidrivers.storage.k8s.io"
CLASSES = "storageclasses.storage.k8s.io"
ZONE = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageDriver:
    """A simulated storage system with endless room in every zone."""

    name: str = "csi.kubesched.io"
    storage_class: str = "standard"
    """The class created for it."""
    is_default: bool = True
    binding_mode: str = "WaitForFirstConsumer"
    reclaim_policy: str = "Delete"
    volumes_per_node: int | None = None
    """How many volumes a node can attach; None is unlimited."""


class CsiPublisher(Controller[str]):
    """Publishes storage objects. Keys: a node's name for its CSINode, "" for the drivers."""

    name = "csi-publisher"

    def __init__(self, context: ControllerContext, drivers: Sequence[StorageDriver]) -> None:
        super().__init__(context)
        self._drivers = tuple(drivers)
        self._nodes = self.watch("nodes", self._node_changed)
        self._csi_nodes = self.watch(CSI_NODES)
        self.queue.add("")

    def sync(self, key: str) -> float | None:
        if key:
            self._publish_node(key)
        else:
            for driver in self._drivers:
                self._register(driver)
        return None

    def _register(self, driver: StorageDriver) -> None:
        """Create the driver and its class unless they exist; user changes to them are kept."""
        spec = {
            "attachRequired": False,
            "podInfoOnMount": False,
            "storageCapacity": False,
            "volumeLifecycleModes": ["Persistent"],
        }
        storage_class = {
            "metadata": {
                "name": driver.storage_class,
                "annotations": {DEFAULT_CLASS: "true"} if driver.is_default else {},
            },
            "provisioner": driver.name,
            "reclaimPolicy": driver.reclaim_policy,
            "volumeBindingMode": driver.binding_mode,
        }
        with contextlib.suppress(AlreadyExists):
            self.api.create(CSI_DRIVERS, {"metadata": {"name": driver.name}, "spec": spec})
        with contextlib.suppress(AlreadyExists):
            self.api.create(CLASSES, storage_class)

    def _publish_node(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None or is_deleting(node):
            return
        drivers = [_node_entry(driver, node) for driver in self._drivers]
        known = self._csi_nodes.get(name)
        if known is None:
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid_of(node)}
            metadata = {"name": name, "ownerReferences": [owner]}
            self.api.create(CSI_NODES, {"metadata": metadata, "spec": {"drivers": drivers}})
            return
        ours = {driver.name for driver in self._drivers}
        others = [
            other for other in spec_of(known).get("drivers") or () if other.get("name") not in ours
        ]
        wanted = [*others, *drivers]
        if spec_of(known).get("drivers") != wanted:
            self.api.patch(CSI_NODES, None, name, {"spec": {"drivers": wanted}})

    def _node_changed(self, kind: str, node: JsonObject, old: JsonObject | None) -> None:
        if kind != "MODIFIED" or old is None or labels_of(old) != labels_of(node):
            self.queue.add(name_of(node))


def _node_entry(driver: StorageDriver, node: JsonObject) -> JsonObject:
    entry: JsonObject = {"name": driver.name, "nodeID": name_of(node)}
    if ZONE in labels_of(node):
        entry["topologyKeys"] = [ZONE]
    if driver.volumes_per_node is not None:
        entry["allocatable"] = {"count": driver.volumes_per_node}
    return entry
