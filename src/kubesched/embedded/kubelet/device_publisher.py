"""The resource drivers of fake nodes: slices are made when a node registers, and go with it.

They are not corrected afterwards, so that they may be edited or deleted by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from kubesched.embedded.apimachinery.objects import JsonObject, is_deleting, name_of, uid_of
from kubesched.embedded.client.controller import Controller, ControllerContext
from kubesched.embedded.kubelet.devices import PoolDriver, build_slices
from kubesched.errors import AlreadyExists

SLICES = "resourceslices.resource.k8s.io"


class DevicePublisher(Controller[str]):
    """Publishes the devices of nodes as they register."""

    name: ClassVar[str] = "device-publisher"

    def __init__(
        self, context: ControllerContext, drivers: Iterable[tuple[str, tuple[PoolDriver, ...]]]
    ) -> None:
        super().__init__(context)
        self._drivers = dict(drivers)
        self._nodes = self.informers.informer("nodes")
        self._nodes.add_handler(self._node_changed)

    def sync(self, key: str) -> float | None:
        node = self._nodes.get(key)
        if node is None or is_deleting(node):
            return None
        owner = {"apiVersion": "v1", "kind": "Node", "name": key, "uid": uid_of(node)}
        for driver in self._drivers[key]:
            for resource_slice in build_slices(driver, key):
                resource_slice["metadata"]["ownerReferences"] = [owner]
                try:
                    self.api.create(SLICES, resource_slice)
                except AlreadyExists:
                    continue  # restored from disk
        return None

    def _node_changed(self, kind: str, node: JsonObject, old: JsonObject | None) -> None:
        if kind == "ADDED" and name_of(node) in self._drivers:
            self.queue.add(name_of(node))
