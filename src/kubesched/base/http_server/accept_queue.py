"""Accepted sockets that wait for their TLS handshake.

A connection costs almost nothing until its handshake begins, so sockets are accepted at once and
wait here until the client has sent data and its turn comes. Turns rotate among client addresses;
within an address the newest socket goes first, because a probe that has just connected is worth
more than one of thousands already waiting. When the queue is full, the address with the most
sockets loses its oldest one.

IPv6 clients count as one address per /64 network, the smallest usually assigned to a host.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import deque
from dataclasses import dataclass

from kubesched.base.clock import Clock


@dataclass(slots=True, eq=False)
class WaitingSocket:
    """An accepted socket, the address it counts for, and when it was accepted."""

    sock: socket.socket
    address: str
    since: float
    is_ready: bool = False
    """Whether the client has sent data or closed the connection."""


class AcceptQueue:
    """Sockets waiting for a handshake. Belongs to the event loop it is created in."""

    def __init__(self, max_sockets: int, *, clock: Clock) -> None:
        self._max_sockets = max_sockets
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, dict[WaitingSocket, None]] = {}
        """By address, oldest first."""
        self._turns: deque[str] = deque()
        """Addresses with ready sockets, each once."""
        self._ready: dict[str, list[WaitingSocket]] = {}
        self._has_ready = asyncio.Event()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, sock: socket.socket, address: str) -> None:
        """Add a socket; the queue closes it unless `get` returns it."""
        if self._count >= self._max_sockets:
            largest = max(self._waiting.values(), key=len)
            self._drop(next(iter(largest)))
        waiting = WaitingSocket(sock, fairness_key(address), self._clock.monotonic())
        self._waiting.setdefault(waiting.address, {})[waiting] = None
        self._count += 1
        self._loop.add_reader(sock, self._became_ready, waiting)

    def _became_ready(self, waiting: WaitingSocket) -> None:
        """The client has sent data or closed; the handshake finds out which."""
        self._loop.remove_reader(waiting.sock)
        waiting.is_ready = True
        ready = self._ready.get(waiting.address)
        if ready is None:
            ready = self._ready[waiting.address] = []
            self._turns.append(waiting.address)
        ready.append(waiting)
        self._has_ready.set()

    async def get(self) -> WaitingSocket:
        """Wait for the next ready socket, which the caller then owns."""
        while not self._turns:
            self._has_ready.clear()
            await self._has_ready.wait()
        address = self._turns.popleft()
        ready = self._ready[address]
        waiting = ready.pop()
        if ready:
            self._turns.append(address)
        else:
            del self._ready[address]
        self._forget(waiting)
        return waiting

    def drop_older(self, instant: float) -> None:
        """Close the sockets accepted before `instant`."""
        for members in list(self._waiting.values()):
            for waiting in list(members):
                if waiting.since >= instant:
                    break
                self._drop(waiting)

    def close(self) -> None:
        self.drop_older(float("inf"))

    def _drop(self, waiting: WaitingSocket) -> None:
        if waiting.is_ready:
            ready = self._ready[waiting.address]
            ready.remove(waiting)
            if not ready:
                del self._ready[waiting.address]
                self._turns.remove(waiting.address)
        else:
            self._loop.remove_reader(waiting.sock)
        self._forget(waiting)
        waiting.sock.close()

    def _forget(self, waiting: WaitingSocket) -> None:
        members = self._waiting[waiting.address]
        del members[waiting]
        if not members:
            del self._waiting[waiting.address]
        self._count -= 1


def fairness_key(address: str) -> str:
    """The address that limits are counted by."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(parsed) >> 64 << 64))
