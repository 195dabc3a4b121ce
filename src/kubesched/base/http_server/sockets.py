"""Listening sockets."""

from __future__ import annotations

import socket

BACKLOG = 1024


def open_socket(address: str, port: int, *, share_port: bool = False) -> socket.socket:
    """A bound socket; an unspecified address means all interfaces and both address families.

    Raises:
        OSError: with the address in its text.
    """
    wildcard = address in ("0.0.0.0", "::", "")
    both = wildcard and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in address else socket.AF_INET
    where = "::" if both else address
    try:
        if both:
            return socket.create_server(
                (where, port),
                family=family,
                dualstack_ipv6=True,
                reuse_port=share_port,
                backlog=BACKLOG,
            )
        return socket.create_server(
            (where, port), family=family, reuse_port=share_port, backlog=BACKLOG
        )
    except OSError as error:
        raise OSError(
            error.errno, f"failed to listen on {address}:{port}: {error.strerror}"
        ) from error
