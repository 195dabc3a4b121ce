"""Shapes of fake nodes: pools of equal nodes, from a file or from the defaults.

A file of kind `NodePools` lists pools. A pool with a `count` has that many nodes; the remaining
requested nodes are divided evenly among the pools without one. Zones are assigned round-robin over
all nodes, so every prefix of the list is as balanced as possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import field

from kubesched.api import quantity
from kubesched.api.meta import Record
from kubesched.api.names import label_key_problems, label_value_problems
from kubesched.base.errors import FieldProblem
from kubesched.config import field_problems
from kubesched.config.schema import decode_file
from kubesched.playground.apimachinery.objects import JsonObject, timestamp
from kubesched.playground.kubelet.devices import PoolDriver, driver_problems

API_VERSION = "kubesched.io/v1alpha1"
KIND = "NodePools"
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

_DEFAULT_CAPACITY = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"}


class PoolTaint(Record):
    """A taint on every node of the pool."""

    key: str = ""
    value: str = ""
    effect: str = ""


class PoolImage(Record):
    """An image on every node of the pool."""

    names: tuple[str, ...] = ()
    size_bytes: int = 0


class NodePool(Record):
    """Nodes that differ only in name, address and zone."""

    name: str = ""
    """Prefix of the node names; defaults to `node`."""
    count: int = 0
    """Number of nodes; 0 takes a share of the requested total."""
    zones: tuple[str, ...] = ("zone-a", "zone-b", "zone-c")
    region: str = "region-1"
    architecture: str = "amd64"
    operating_system: str = "linux"
    instance_type: str = ""
    capacity: dict[str, str] = field(default_factory=lambda: dict(_DEFAULT_CAPACITY))
    allocatable: dict[str, str] = field(default_factory=dict)
    """Allocatable resources, where they differ from the capacity."""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    taints: tuple[PoolTaint, ...] = ()
    images: tuple[PoolImage, ...] = ()
    declared_features: tuple[str, ...] = ()
    drivers: tuple[PoolDriver, ...] = ()
    """Resource drivers with the devices of each node."""
    unschedulable: bool = False


class NodePoolFile(Record):
    """The file format."""

    api_version: str = ""
    kind: str = ""
    pools: tuple[NodePool, ...] = ()


DEFAULT_POOLS = (NodePool(),)


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node to register."""

    pool: NodePool
    name: str
    ordinal: int
    """Index among all nodes of the cluster; determines zone and addresses."""


def plan_nodes(pools: tuple[NodePool, ...], total: int) -> list[PlannedNode]:
    """The nodes to register, in order of registration."""
    counted = sum(pool.count for pool in pools)
    open_pools = [pool for pool in pools if not pool.count]
    rest = max(0, total - counted) if open_pools else 0
    planned: list[PlannedNode] = []
    for pool in pools:
        size = pool.count
        if not size:
            share = open_pools.index(pool)
            size = rest // len(open_pools) + (share < rest % len(open_pools))
        prefix = pool.name or "node"
        planned += [
            PlannedNode(pool, f"{prefix}-{number}", len(planned) + number) for number in range(size)
        ]
    return planned


def pod_cidr(ordinal: int) -> str:
    """The address range of a node's pods: a /24 of 10.0.0.0/8."""
    return f"10.{(ordinal >> 8) & 255}.{ordinal & 255}.0/24"


def host_ip(ordinal: int) -> str:
    """A node's own address, within 172.16.0.0/12."""
    return f"172.{16 + ((ordinal >> 16) & 15)}.{(ordinal >> 8) & 255}.{ordinal & 255}"


def build_node(planned: PlannedNode, now: float, version: str) -> JsonObject:
    """The Node object that a kubelet of this version registers."""
    pool = planned.pool
    labels = {
        "beta.kubernetes.io/arch": pool.architecture,
        "beta.kubernetes.io/os": pool.operating_system,
        "kubernetes.io/arch": pool.architecture,
        "kubernetes.io/hostname": planned.name,
        "kubernetes.io/os": pool.operating_system,
    }
    if pool.region:
        labels["topology.kubernetes.io/region"] = pool.region
    if pool.zones:
        labels["topology.kubernetes.io/zone"] = pool.zones[planned.ordinal % len(pool.zones)]
    if pool.instance_type:
        labels["node.kubernetes.io/instance-type"] = pool.instance_type
    cidr = pod_cidr(planned.ordinal)
    spec: JsonObject = {"podCIDR": cidr, "podCIDRs": [cidr]}
    if pool.taints:
        spec["taints"] = [
            {key: value for key, value in _taint(taint).items() if value} for taint in pool.taints
        ]
    if pool.unschedulable:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": planned.name,
            "labels": {**labels, **pool.labels},
            "annotations": dict(pool.annotations),
        },
        "spec": spec,
        "status": _status(planned, now, version),
    }


_WELL = (
    ("MemoryPressure", "False", "HasSufficientMemory", "has sufficient memory available"),
    ("DiskPressure", "False", "HasNoDiskPressure", "has no disk pressure"),
    ("PIDPressure", "False", "HasSufficientPID", "has sufficient PID available"),
    ("Ready", "True", "Ready", "is posting ready status"),
)


def ready_conditions(now: float) -> list[JsonObject]:
    """Conditions that a healthy kubelet reports."""
    return [
        {
            "type": condition_type,
            "status": status,
            "lastHeartbeatTime": timestamp(now),
            "lastTransitionTime": timestamp(now),
            "reason": f"Kubelet{reason}",
            "message": f"kubelet {message}",
        }
        for condition_type, status, reason, message in _WELL
    ]


def load_node_pools(data: bytes, source: str = "") -> tuple[NodePool, ...]:
    """Parse the pools in a file.

    Raises:
        ConfigError: with every problem, each with field path, line and column.
    """
    return decode_file(data, source, NodePoolFile, _problems).pools


def _taint(taint: PoolTaint) -> dict[str, str]:
    return {"key": taint.key, "value": taint.value, "effect": taint.effect}


def _status(planned: PlannedNode, now: float, version: str) -> JsonObject:
    pool = planned.pool
    status: JsonObject = {
        "capacity": dict(pool.capacity),
        "allocatable": {**pool.capacity, **pool.allocatable},
        "conditions": ready_conditions(now),
        "addresses": [
            {"type": "InternalIP", "address": host_ip(planned.ordinal)},
            {"type": "Hostname", "address": planned.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "machineID": f"{planned.ordinal:032x}",
            "systemUUID": f"{planned.ordinal:032x}",
            "bootID": f"{planned.ordinal:032x}",
            "kernelVersion": "fake",
            "osImage": "kubesched",
            "containerRuntimeVersion": "fake://1.0.0",
            "kubeletVersion": version,
            "kubeProxyVersion": "",
            "operatingSystem": pool.operating_system,
            "architecture": pool.architecture,
        },
    }
    if pool.images:
        status["images"] = [
            {"names": list(image.names), "sizeBytes": image.size_bytes} for image in pool.images
        ]
    if pool.declared_features:
        status["declaredFeatures"] = sorted(pool.declared_features)
    return status


# -- validation -----------------------------------------------------------------------------------


def header_problems(api_version: str, kind: str, wanted: str) -> Iterator[FieldProblem]:
    """Validation errors of a file's apiVersion and kind."""
    if api_version != API_VERSION:
        yield field_problems.not_supported("apiVersion", api_version, [API_VERSION])
    if kind != wanted:
        yield field_problems.not_supported("kind", kind, [wanted])


def _problems(file: NodePoolFile) -> Iterator[FieldProblem]:
    yield from header_problems(file.api_version, file.kind, KIND)
    if not file.pools:
        yield field_problems.required("pools", "at least one pool is needed")
    names: set[str] = set()
    for index, pool in enumerate(file.pools):
        path = f"pools[{index}]"
        name = pool.name or "node"
        if name in names:
            yield field_problems.duplicate(f"{path}.name", name)
        names.add(name)
        yield from _pool_problems(pool, path)


def _pool_problems(pool: NodePool, path: str) -> Iterator[FieldProblem]:
    if pool.count < 0:
        yield field_problems.invalid(f"{path}.count", pool.count, "must not be negative")
    for field_name, amounts in (("capacity", pool.capacity), ("allocatable", pool.allocatable)):
        for resource, amount in amounts.items():
            try:
                quantity.parse(amount)
            except quantity.QuantityError as error:
                yield field_problems.invalid(f"{path}.{field_name}[{resource}]", amount, str(error))
    for key, value in pool.labels.items():
        for problem in (*label_key_problems(key), *label_value_problems(value)):
            yield field_problems.invalid(f"{path}.labels[{key}]", value, problem)
    for index, taint in enumerate(pool.taints):
        if not taint.key:
            yield field_problems.required(f"{path}.taints[{index}].key")
        if taint.effect not in TAINT_EFFECTS:
            yield field_problems.not_supported(
                f"{path}.taints[{index}].effect", taint.effect, TAINT_EFFECTS
            )
    names: set[str] = set()
    for index, driver in enumerate(pool.drivers):
        here = f"{path}.drivers[{index}]"
        if driver.driver in names:
            yield field_problems.duplicate(f"{here}.driver", driver.driver)
        names.add(driver.driver)
        yield from driver_problems(driver, here)
