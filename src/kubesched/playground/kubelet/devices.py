"""Devices of fake nodes: what a pool of nodes declares, as ResourceSlices of a driver on each node.

A driver's pool on a node is named like the node. Shared counters are a slice of their own; devices
fill as many slices as they need.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kubesched.api.meta import Record
from kubesched.api.quantity import QuantityError
from kubesched.api.resource_v1 import CounterSet, Device
from kubesched.base.errors import AlreadyExists, FieldProblem
from kubesched.playground.apimachinery.objects import JsonObject, is_deleting, name_of, uid_of
from kubesched.playground.client.controller import Controller, ControllerContext
from kubesched.playground.resources.defaults.cluster import default_resource_slice
from kubesched.playground.resources.validation.resource_slices import (
    device_limit,
    validate_resource_slice,
)

SLICES = "resourceslices.resource.k8s.io"


class PoolDevice(Device):
    """A device that every node of the pool has, or several equal ones."""

    count: int = 0
    """How many: `<name>-0`, `<name>-1`, …; 0 is one device called `name`."""


class PoolDriver(Record):
    """A driver and the devices it offers on every node of the pool."""

    driver: str = ""
    devices: tuple[PoolDevice, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


def build_slices(driver: PoolDriver, node_name: str) -> list[JsonObject]:
    """The slices that the driver publishes for a node."""
    devices = [device for entry in driver.devices for device in _copies(entry)]
    size = device_limit({"devices": devices})
    contents: list[JsonObject] = []
    if driver.shared_counters:
        contents.append({"sharedCounters": _plain(driver.shared_counters)})
    contents += [
        {"devices": devices[start : start + size]} for start in range(0, len(devices), size)
    ]
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node_name}-{driver.driver}-{number}"},
            "spec": {
                "driver": driver.driver,
                "nodeName": node_name,
                "pool": {
                    "name": node_name,
                    "generation": 1,
                    "resourceSliceCount": len(contents),
                },
                **content,
            },
        }
        for number, content in enumerate(contents)
    ]


def _copies(entry: PoolDevice) -> Iterator[JsonObject]:
    device: JsonObject = _plain(entry)
    count = device.pop("count", 0)
    if not count:
        yield device
    for number in range(count):
        yield {**device, "name": f"{entry.name}-{number}"}


def _plain(record: object) -> JsonObject:
    plain: JsonObject = msgspec.to_builtins(record)
    return plain


def driver_problems(driver: PoolDriver, path: str) -> Iterator[FieldProblem]:
    """What is wrong with a driver's devices, in the words of the API server."""
    for index, device in enumerate(driver.devices):
        if device.count < 0:
            here = f"{path}.devices[{index}].count"
            yield FieldProblem(here, f"Invalid value: {device.count}: must not be negative")
    devices = [_plain(device) for device in driver.devices]
    for plain in devices:
        plain.pop("count", None)
    for content in ({"devices": devices}, {"sharedCounters": _plain(driver.shared_counters)}):
        body: JsonObject = {
            "spec": {
                "driver": driver.driver,
                "nodeName": "node",
                "pool": {"name": "node", "resourceSliceCount": 1},
                **content,
            }
        }
        try:
            default_resource_slice(body)
        except QuantityError as error:
            yield FieldProblem(path, str(error))
            continue
        for problem in validate_resource_slice(body):
            yield FieldProblem(f"{path}.{problem.path.removeprefix('spec.')}", problem.body())


class DevicePublisher(Controller[str]):
    """Publishes the devices of nodes as they register; slices go with their node.

    They are not corrected afterwards, so that they may be edited or deleted by hand.
    """

    name = "device-publisher"

    def __init__(
        self, context: ControllerContext, drivers: dict[str, tuple[PoolDriver, ...]]
    ) -> None:
        super().__init__(context)
        self._drivers = drivers
        self._nodes = self.watch("nodes", self._node_changed)

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
