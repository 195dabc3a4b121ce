"""Kubelet admission: whether a node accepts a pod that was bound to it.

A kubelet does not trust the scheduler: a pod that does not fit the node's free resources is
rejected permanently (`OutOfcpu` and the like). This makes over-commitment visible. Pods count in
binding order, from their admission until they have ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.host_ports import HostPort, any_conflict, pod_host_ports
from kubesched.api.quantity import QuantityError
from kubesched.api.resources import NodeAllocatable, PodRequests, filter_requests, node_allocatable
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    labels_of,
    name_of,
    spec_of,
    status_of,
    uid_of,
)
from kubesched.playground.apimachinery.pods import required_affinity


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a node rejects a pod."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Footprint:
    requests: PodRequests
    ports: tuple[HostPort, ...]


@dataclass(slots=True)
class NodeLedger:
    """Resources allocated on one node."""

    allocatable: NodeAllocatable = field(default_factory=NodeAllocatable)
    _admitted: dict[str, _Footprint] = field(default_factory=dict)
    _used: dict[str, int] = field(default_factory=dict)

    def update(self, node: JsonObject) -> None:
        """Update the node's allocatable resources; admitted pods stay."""
        offered = {"allocatable": status_of(node).get("allocatable") or {}}
        self.allocatable = node_allocatable(msgspec.convert({"status": offered}, Node))

    def __contains__(self, uid: str) -> bool:
        return uid in self._admitted

    def __len__(self) -> int:
        return len(self._admitted)

    def admit(self, pod: JsonObject, node: JsonObject) -> Rejection | None:
        """Admit the pod, or return why it is rejected."""
        try:
            footprint = _footprint(pod)
        except QuantityError as error:
            return Rejection("UnexpectedAdmissionError", str(error))
        rejection = self._lacks(footprint) or _wrong_place(pod, footprint, node, self._admitted)
        if rejection is None:
            self._enter(uid_of(pod), footprint)
        return rejection

    def enter(self, pod: JsonObject) -> None:
        """Count a pod that already runs, whether it fits or not."""
        if uid_of(pod) not in self._admitted:
            self._enter(uid_of(pod), _footprint(pod))

    def resize(self, pod: JsonObject) -> Rejection | None:
        """Count the pod at its new size; if that does not fit, keep the old size and return why."""
        uid = uid_of(pod)
        before = self._admitted[uid]
        self.leave(uid)
        footprint = _footprint(pod)
        rejection = self._lacks(footprint)
        self._enter(uid, before if rejection is not None else footprint)
        return rejection

    def leave(self, uid: str) -> None:
        footprint = self._admitted.pop(uid, None)
        if footprint is not None:
            for name, amount in _amounts(footprint.requests).items():
                self._used[name] -= amount

    def _enter(self, uid: str, footprint: _Footprint) -> None:
        self._admitted[uid] = footprint
        for name, amount in _amounts(footprint.requests).items():
            self._used[name] = self._used.get(name, 0) + amount

    def _lacks(self, footprint: _Footprint) -> Rejection | None:
        offered = {
            "cpu": self.allocatable.milli_cpu,
            "memory": self.allocatable.memory,
            "ephemeral-storage": self.allocatable.ephemeral_storage,
            **self.allocatable.scalars,
        }
        if len(self._admitted) + 1 > self.allocatable.allowed_pods:
            return _insufficient("pods", 1, len(self._admitted), self.allocatable.allowed_pods)
        for name, amount in _amounts(footprint.requests).items():
            used, capacity = self._used.get(name, 0), offered.get(name)
            # Upstream: a device that the node does not know is left to its device plugin.
            if amount > 0 and capacity is not None and used + amount > capacity:
                return _insufficient(name, amount, used, capacity)
        return None


def _footprint(pod: JsonObject) -> _Footprint:
    record = msgspec.convert({"metadata": pod["metadata"], "spec": spec_of(pod)}, Pod)
    return _Footprint(filter_requests(record), pod_host_ports(record))


def _amounts(requests: PodRequests) -> dict[str, int]:
    return {
        "cpu": requests.milli_cpu,
        "memory": requests.memory,
        "ephemeral-storage": requests.ephemeral_storage,
        **requests.scalars,
    }


def _insufficient(name: str, requested: int, used: int, capacity: int) -> Rejection:
    message = (
        f"Node didn't have enough resource: {name},"
        f" requested: {requested}, used: {used}, capacity: {capacity}"
    )
    return Rejection(f"OutOf{name}", message)


def _wrong_place(
    pod: JsonObject, footprint: _Footprint, node: JsonObject, others: dict[str, _Footprint]
) -> Rejection | None:
    wanted = (spec_of(pod).get("os") or {}).get("name")
    if wanted and wanted != labels_of(node).get("kubernetes.io/os", wanted):
        message = "Failed to admit pod as the OS field doesn't match node OS"
        return Rejection("PodOSNotSupported", message)
    if not required_affinity(spec_of(pod)).matches(labels_of(node), name_of(node)):
        return Rejection(
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        )
    if footprint.ports and any(
        any_conflict(footprint.ports, other.ports) for other in others.values()
    ):
        return Rejection(
            "NodePorts",
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod"
            " ports",
        )
    return None
