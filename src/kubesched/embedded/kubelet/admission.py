"""Whether a node takes a pod that was bound to it.

A kubelet does not trust the scheduler: a pod that does not fit what the node has left is refused for
good (`OutOfcpu` and the like). Here that makes over-commitment visible instead of silent.

Counted are the pods admitted before and not yet ended, in the order of their binding.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.host_ports import HostPort, any_conflict, pod_host_ports
from kubesched.api.quantity import QuantityError
from kubesched.api.resources import NodeAllocatable, PodRequests, filter_requests, node_allocatable
from kubesched.embedded.controllers.metadata import labels_of, name_of, spec_of, uid_of
from kubesched.embedded.controllers.placement import required_affinity
from kubesched.embedded.objects import JsonObject


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a node refuses a pod."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Guest:
    requests: PodRequests
    ports: tuple[HostPort, ...]


@dataclass(slots=True)
class NodeLedger:
    """What one node has given away."""

    allocatable: NodeAllocatable = field(default_factory=NodeAllocatable)
    _guests: dict[str, _Guest] = field(default_factory=dict)
    _used: dict[str, int] = field(default_factory=dict)

    def update(self, node: JsonObject) -> None:
        """Take over what the node offers now; pods that are there stay."""
        self.allocatable = node_allocatable(msgspec.convert({"status": _capacity(node)}, Node))

    def __contains__(self, uid: str) -> bool:
        return uid in self._guests

    def __len__(self) -> int:
        return len(self._guests)

    def admit(self, pod: JsonObject, node: JsonObject) -> Rejection | None:
        """Count the pod in, or say why not."""
        try:
            guest = _guest(pod)
        except QuantityError as error:
            return Rejection("UnexpectedAdmissionError", str(error))
        rejection = self._lacks(guest) or _wrong_place(pod, guest, node, self._guests)
        if rejection is None:
            self._enter(uid_of(pod), guest)
        return rejection

    def enter(self, pod: JsonObject) -> None:
        """Count a pod that runs already, whether it fits or not."""
        if uid_of(pod) not in self._guests:
            self._enter(uid_of(pod), _guest(pod))

    def resize(self, pod: JsonObject) -> Rejection | None:
        """Count the pod at its new size, or say what the node lacks; then it stays as it was."""
        uid = uid_of(pod)
        before = self._guests[uid]
        self.leave(uid)
        guest = _guest(pod)
        rejection = self._lacks(guest)
        self._enter(uid, before if rejection is not None else guest)
        return rejection

    def leave(self, uid: str) -> None:
        guest = self._guests.pop(uid, None)
        if guest is not None:
            for name, amount in _amounts(guest.requests).items():
                self._used[name] -= amount

    def _enter(self, uid: str, guest: _Guest) -> None:
        self._guests[uid] = guest
        for name, amount in _amounts(guest.requests).items():
            self._used[name] = self._used.get(name, 0) + amount

    def _lacks(self, guest: _Guest) -> Rejection | None:
        offered = {
            "cpu": self.allocatable.milli_cpu,
            "memory": self.allocatable.memory,
            "ephemeral-storage": self.allocatable.ephemeral_storage,
            **self.allocatable.scalars,
        }
        if len(self._guests) + 1 > self.allocatable.allowed_pods:
            return _insufficient("pods", 1, len(self._guests), self.allocatable.allowed_pods)
        for name, amount in _amounts(guest.requests).items():
            used, capacity = self._used.get(name, 0), offered.get(name)
            # Upstream: a device that the node does not know is left to its device plugin.
            if amount > 0 and capacity is not None and used + amount > capacity:
                return _insufficient(name, amount, used, capacity)
        return None


def _capacity(node: JsonObject) -> JsonObject:
    return {"allocatable": (node.get("status") or {}).get("allocatable") or {}}


def _guest(pod: JsonObject) -> _Guest:
    record = msgspec.convert({"metadata": pod["metadata"], "spec": spec_of(pod)}, Pod)
    return _Guest(filter_requests(record), pod_host_ports(record))


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
    pod: JsonObject, guest: _Guest, node: JsonObject, guests: dict[str, _Guest]
) -> Rejection | None:
    if not required_affinity(spec_of(pod)).matches(labels_of(node), name_of(node)):
        return Rejection(
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        )
    if guest.ports and any(any_conflict(guest.ports, other.ports) for other in guests.values()):
        return Rejection(
            "NodePorts",
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
        )
    return None
