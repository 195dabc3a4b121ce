"""Ports that pods use on their node.

Addresses are compared as text: only `0.0.0.0` stands for every address.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kubesched.api.core_v1 import Container, Pod

ANY_IP = "0.0.0.0"


class HostPort(NamedTuple):
    """A port used, or requested, on a node."""

    ip: str
    protocol: str
    port: int

    def conflicts_with(self, other: HostPort) -> bool:
        """True if both cannot be open on one node."""
        return (
            self.port == other.port
            and self.port > 0
            and self.protocol == other.protocol
            and (self.ip == other.ip or ANY_IP in (self.ip, other.ip))
        )


def pod_host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """The host ports of a running pod: those of its sidecars, then of its app containers.

    Ordinary init containers have ended by then and do not count.
    """
    ports: list[HostPort] = []
    for container in pod.spec.init_containers or ():
        if container.ports and container.is_restartable_init():
            _collect(container, ports)
    for container in pod.spec.containers or ():
        if container.ports:
            _collect(container, ports)
    return tuple(ports)


def any_conflict(wanted: Iterable[HostPort], used: Iterable[HostPort]) -> bool:
    """True if any wanted port conflicts with one in use."""
    used = tuple(used)
    return any(port.conflicts_with(other) for port in wanted for other in used)


def _collect(container: Container, into: list[HostPort]) -> None:
    into.extend(
        HostPort(port.host_ip or ANY_IP, port.protocol or "TCP", port.host_port)
        for port in container.ports or ()
        if port.host_port > 0
    )
