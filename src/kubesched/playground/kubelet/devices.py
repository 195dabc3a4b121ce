"""Devices of fake nodes: a node pool declares them, each node publishes them as ResourceSlices.

A driver's resource pool on a node has the node's name. Shared counters have a slice of their own;
devices fill as many slices as they need.
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
    """A device, or several equal ones, on every node of the pool."""

    count: int = 0
    """Number of devices, named `<name>-0`, `<name>-1`, …; 0 means one device called `name`."""


class PoolDriver(Record):
    """A driver and its devices on every node of the pool."""

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
    """Validation errors of a driver's devices, as the API server reports them."""
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
    """Publishes devices of new nodes once, so that slices can be edited or deleted by hand."""

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
