"""What NodeResourceTopology objects say, and what pods want, in a form that is quick to compare.

Amounts are integers in units of 10⁻⁹, in which quantities are exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kubesched.framework.api import Container, CustomObject, Pod, parse_quantity

RawQuantity = str | int | float
Amounts = Mapping[str, int]

POD_SCOPE: Final = "pod"
CONTAINER_SCOPE: Final = "container"
SINGLE_NUMA_NODE: Final = "single-numa-node"
POLICIES: Final = ("none", "best-effort", "restricted", SINGLE_NUMA_NODE)
DEFAULT_MAX_NUMA_NODES: Final = 8
MOST_NUMA_NODES: Final = 1024
LARGEST_ID: Final = 63
FINGERPRINT: Final = "nodeTopologyPodsFingerprint"
FINGERPRINT_METHOD: Final = "nodeTopologyPodsFingerprintMethod"
FINGERPRINT_ANNOTATION: Final = "topology.node.k8s.io/fingerprint"
_ZONE_NAME: Final = re.compile(r"node-\+?([0-9]{1,9})", re.ASCII)
_DEPRECATED_POLICY: Final = re.compile(
    r"(SingleNUMANode|BestEffort|Restricted)(Pod|Container)Level"
)
_POLICY_OF: Final = {
    "SingleNUMANode": SINGLE_NUMA_NODE,
    "BestEffort": "best-effort",
    "Restricted": "restricted",
}


@dataclass(frozen=True, slots=True)
class NamedValue:
    """An attribute."""

    name: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class Cost:
    """Distance to another zone."""

    name: str = ""
    value: int = 0


@dataclass(frozen=True, slots=True)
class ResourceInfo:
    """What is left of a resource in a zone; what it has in all is not needed."""

    name: str = ""
    available: RawQuantity = 0


@dataclass(frozen=True, slots=True)
class ZoneInfo:
    """A zone as reported; those of type `Node` are NUMA zones."""

    name: str = ""
    type: str = ""
    costs: list[Cost] | None = None
    resources: list[ResourceInfo] | None = None


class NodeResourceTopology(CustomObject):
    """The object that a node's agent keeps current; it has the node's name."""

    resource = "noderesourcetopologies.v1alpha2.topology.node.k8s.io"
    topology_policies: list[str] | None = None
    zones: list[ZoneInfo] | None = None
    attributes: list[NamedValue] | None = None


class Zone(NamedTuple):
    """A NUMA zone."""

    id: int
    available: Amounts
    costs: Mapping[int, int]


class Config(NamedTuple):
    """The kubelet's topology manager, as far as the object tells."""

    policy: str = "none"
    scope: str = CONTAINER_SCOPE
    max_numa_nodes: int = DEFAULT_MAX_NUMA_NODES


class Topology(NamedTuple):
    """The NUMA zones of a node, in the order of the object."""

    config: Config
    zones: Sequence[Zone] = ()
    fingerprint: str = ""
    """Of the pods that the amounts take account of; empty if it is not told."""
    counts_exclusive_only: bool = False
    """Whether the fingerprint is of the pods with exclusive resources only."""
    problems: tuple[str, ...] = ()
    is_single_numa_node: bool = False

    def without(self, taken: Amounts) -> Topology:
        """With so much less in every zone: which zone it comes from is not known."""
        zones = []
        for zone_id, available, costs in self.zones:
            left = dict(available)
            for name, amount in taken.items():
                if amount and (has := left.get(name)) is not None:
                    left[name] = has - amount if has > amount else 0
            zones.append(Zone(zone_id, left, costs))
        return self._replace(zones=zones) if zones else self


def topology_of(obj: NodeResourceTopology) -> Topology:
    """Zones that cannot be understood are left out and named in `problems`."""
    zones: dict[int, Zone] = {}
    problems = []
    for zone in obj.zones or ():
        if zone.type != "Node":
            continue
        zone_id = _zone_id(zone.name)
        if zone_id is None:
            problems.append(f'zone "{zone.name}": the name is not node-ID')
        elif zone_id in zones:
            problems.append(f'zone "{zone.name}" is there twice; the first one counts')
        else:
            available = {}
            for each in zone.resources or ():
                try:
                    available[each.name] = parse_quantity(each.available).nanos
                except ValueError as error:
                    problems.append(f'zone "{zone.name}", {each.name}: {error}')
            named = ((_zone_id(cost.name), cost.value) for cost in zone.costs or ())
            costs = {other: value for other, value in named if other is not None}
            zones[zone_id] = Zone(zone_id, available, costs)
    told = {attribute.name: attribute.value for attribute in reversed(obj.attributes or [])}
    fingerprint = told.get(FINGERPRINT) or (obj.metadata.annotations or {}).get(
        FINGERPRINT_ANNOTATION, ""
    )
    is_exclusive = told.get(FINGERPRINT_METHOD) == "with-exclusive-resources"
    config = config_of(obj)
    return Topology(
        config,
        tuple(zones.values()),
        fingerprint,
        FINGERPRINT in told and is_exclusive,
        tuple(problems),
        config.policy == SINGLE_NUMA_NODE,
    )


def config_of(obj: NodeResourceTopology) -> Config:
    """The deprecated `topologyPolicies` first, then attributes; wrong values are ignored."""
    policy, scope, most = Config()
    if obj.topology_policies and (match := _DEPRECATED_POLICY.fullmatch(obj.topology_policies[0])):
        policy, scope = _POLICY_OF[match[1]], match[2].lower()
    for attribute in obj.attributes or ():
        value = attribute.value
        if attribute.name == "topologyManagerScope" and value in (POD_SCOPE, CONTAINER_SCOPE):
            scope = value
        elif attribute.name == "topologyManagerPolicy" and value in POLICIES:
            policy = value
        elif attribute.name == "topologyManagerMaxNUMANodes":
            number = int(value) if re.fullmatch(r"\+?[0-9]{1,9}", value, re.ASCII) else 0
            most = min(number, MOST_NUMA_NODES) if number > 1 else most
    return Config(policy, scope, most)


def _zone_id(name: str) -> int | None:
    match = _ZONE_NAME.fullmatch(name)
    return int(match[1]) if match and int(match[1]) <= LARGEST_ID else None


# -- what pods want --------------------------------------------------------------------------------


def is_native(name: str) -> bool:
    """Of Kubernetes itself, not of a device plugin."""
    return "/" not in name or "kubernetes.io/" in name


def is_numa_affine(name: str) -> bool:
    """Always taken from NUMA zones, as opposed to devices, of which some are not."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def is_host_level(name: str) -> bool:
    """May be in no zone at all."""
    return name in ("ephemeral-storage", "storage") or not is_native(name)


class Want(NamedTuple):
    """A request that is not zero."""

    name: str
    amount: int
    is_free: bool
    """Taken from any zone, whatever it has left: CPU and memory of pods that are not Guaranteed."""
    is_host_level: bool


class Demand(NamedTuple):
    """What a pod wants of NUMA zones."""

    qos: str
    is_concerned: bool
    """False: a BestEffort pod without devices."""
    init_containers: tuple[tuple[str, tuple[Want, ...]], ...]
    """With the word for their kind."""
    containers: tuple[tuple[Want, ...], ...]
    pod: tuple[Want, ...]
    requests: tuple[Amounts, ...]
    """Of all containers, zeros included, init containers first."""
    pod_requests: Amounts


def demand_of(pod: Pod) -> Demand:
    init, apps = pod.spec.init_containers or [], pod.spec.containers or []
    qos = pod.status.qos_class or qos_of(pod)
    requests = tuple(_amounts(container.resources.requests) for container in (*init, *apps))
    has_devices = any(not is_native(name) for amounts in requests for name in amounts)
    kinds = ["sidecar" if is_sidecar(container) else "init" for container in init]
    whole = effective_requests(pod)
    wants = [_wants(amounts, qos) for amounts in requests]
    return Demand(
        qos,
        qos != "BestEffort" or has_devices,
        tuple(zip(kinds, wants[: len(init)], strict=True)),
        tuple(wants[len(init) :]),
        _wants(whole, qos),
        requests,
        whole,
    )


def _amounts(quantities: Mapping[str, RawQuantity] | None) -> dict[str, int]:
    return {name: parse_quantity(raw).nanos for name, raw in (quantities or {}).items()}


def _wants(amounts: Amounts, qos: str) -> tuple[Want, ...]:
    is_shared = qos != "Guaranteed"
    return tuple(
        Want(name, amount, is_shared and is_numa_affine(name), is_host_level(name))
        for name, amount in amounts.items()
        if amount
    )


def is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def effective_requests(pod: Pod) -> dict[str, int]:
    """Sum of the containers, or the largest init container, plus overhead."""
    largest: dict[str, int] = {}
    for container in pod.spec.init_containers or ():
        for name, amount in _amounts(container.resources.requests).items():
            largest[name] = max(amount, largest.get(name, amount))
    total: dict[str, int] = {}
    for container in pod.spec.containers or ():
        for name, amount in _amounts(container.resources.requests).items():
            total[name] = total.get(name, 0) + amount
    for name, amount in largest.items():
        total[name] = max(amount, total.get(name, amount))
    for name, amount in _amounts(pod.spec.overhead).items():
        total[name] = total.get(name, 0) + amount
    return total


def qos_of(pod: Pod) -> str:
    """The pod's quality of service class, as the API server computes it."""
    whole = pod.spec.resources
    if whole is not None and any(
        name in ("cpu", "memory") or name.startswith("hugepages-")
        for name in (*(whole.requests or ()), *(whole.limits or ()))
    ):
        return _qos(whole.requests, whole.limits)
    containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    found = {_qos(each.resources.requests, each.resources.limits) for each in containers}
    return (found or {"BestEffort"}).pop() if len(found) < 2 else "Burstable"


def _qos(
    requests: Mapping[str, RawQuantity] | None, limits: Mapping[str, RawQuantity] | None
) -> str:
    found = set()
    for name in ("cpu", "memory"):
        request = parse_quantity((requests or {}).get(name, 0)).nanos
        if request != parse_quantity((limits or {}).get(name, 0)).nanos:
            return "Burstable"
        found.add("Guaranteed" if request else "BestEffort")
    return found.pop() if len(found) == 1 else "Burstable"


def exclusive_containers(pod: Pod, in_zones: Iterable[str]) -> Iterator[Container]:
    """Containers that have resources to themselves: devices, whole CPUs, memory."""
    qos, known = pod.status.qos_class or qos_of(pod), set(in_zones)
    sidecars = (each for each in pod.spec.init_containers or () if is_sidecar(each))
    for container in (*sidecars, *(pod.spec.containers or ())):
        for name, raw in (container.resources.requests or {}).items():
            amount = parse_quantity(raw)
            if not is_native(name):
                is_own = name in known
            elif qos != "Guaranteed" or amount.value() <= 0:
                is_own = False
            elif name == "cpu":
                is_own = amount.value() * 1000 == amount.milli_value()
            else:
                is_own = is_numa_affine(name)
            if is_own:
                yield container
                break
