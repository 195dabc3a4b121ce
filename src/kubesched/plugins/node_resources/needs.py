"""A pod's needs by resource, and the check against an empty node."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, NamedTuple

from kubesched.api.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    NodeAllocatable,
    PodRequests,
    is_extended,
)


class Need(NamedTuple):
    """An amount of one resource; scalar resources may be served by devices instead of the node."""

    name: str
    amount: int
    is_scalar: bool
    charged: int = 0
    """How much more of a native resource a bound pod has on its node already."""

    @property
    def reason(self) -> str:
        return f"Insufficient {self.name}"


def needs_of(
    requests: PodRequests,
    ignored_resources: Container[str] = (),
    ignored_groups: Container[str] = (),
) -> tuple[Need, ...]:
    """All positive requests, in the order in which shortages are reported.

    Only extended resources can be ignored. Upstream reports scalar resources in random order; here
    they are in the pod's order.
    """
    native = (
        Need(CPU, requests.milli_cpu, False),
        Need(MEMORY, requests.memory, False),
        Need(EPHEMERAL_STORAGE, requests.ephemeral_storage, False),
    )
    scalars = (
        Need(name, amount, True)
        for name, amount in requests.scalars.items()
        if not (
            is_extended(name)
            and (name in ignored_resources or name.partition("/")[0] in ignored_groups)
        )
    )
    return tuple(need for need in (*native, *scalars) if need.amount > 0)


def beyond(needs: tuple[Need, ...], charged: PodRequests) -> tuple[Need, ...]:
    """What a bound pod needs beyond what its node is charged with, which may be nothing.

    # Upstream: a scalar resource without growth is not looked at, even if the node has too little,
    # and whether it exceeds the node is decided by the growth alone.
    """
    beyond = []
    for need in needs:
        growth = max(0, need.amount - charged.get(need.name))
        if not need.is_scalar:
            beyond.append(Need(need.name, growth, False, need.amount - growth))
        elif growth:
            beyond.append(Need(need.name, growth, True))
    return tuple(beyond)


def is_left_to_devices(
    need: Need, allocatable: NodeAllocatable, device_backed: Container[str]
) -> bool:
    """True if the node has none of the resource itself and a device class backs it."""
    return need.is_scalar and allocatable.get(need.name) <= 0 and need.name in device_backed


def fits_empty_node(
    needs: tuple[Need, ...], allocatable: NodeAllocatable, device_backed: Container[str]
) -> bool:
    if allocatable.allowed_pods < 1:
        return False
    for need in needs:  # no generator: called once per class of waiting pods
        if need.amount > allocatable.get(need.name) and not is_left_to_devices(
            need, allocatable, device_backed
        ):
            return False
    return True


def has_grown(
    needs: tuple[Need, ...],
    old: NodeAllocatable,
    new: NodeAllocatable,
    device_backed: Container[str],
) -> bool:
    """True if a node offers more of anything the pod needs, including pod slots."""
    if new.allowed_pods > old.allowed_pods:
        return True
    return any(
        new.get(need.name) > old.get(need.name) or is_left_to_devices(need, new, device_backed)
        for need in needs
    )


def requests_fragment(requests: PodRequests) -> dict[str, Any]:
    """The signature fragment: the request vector with upstream's keys."""
    return {
        "v1.Pod.Spec.ContainerRequestsAndOverheads()": {
            "MilliCPU": requests.milli_cpu,
            "Memory": requests.memory,
            "EphemeralStorage": requests.ephemeral_storage,
            "AllowedPodNumber": 0,
            "ScalarResources": requests.scalars or None,
        }
    }
