"""Sockets that were accepted and have not been spoken to yet.

A connection costs next to nothing until the TLS handshake begins, so all are accepted at once, and wait here until the
client has said something and it is their turn. Turns go round the addresses that clients come from, and the newest of
an address comes first: a probe that has just knocked is worth more than one of thousands that have been standing there.
When there is no room left, the address with the most sockets loses its oldest one.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from dataclasses import dataclass

from kubesched.clock import Clock


@dataclass(slots=True, eq=False)
class Guest:
    """A socket, where it comes from, and since when it is here."""

    sock: socket.socket
    address: str
    since: float
    has_spoken: bool = False


class Entrance:
    """Who waits. Belongs to the event loop it is used in."""

    def __init__(self, max_guests: int, *, clock: Clock) -> None:
        self._max_guests = max_guests
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._guests: dict[str, dict[Guest, None]] = {}
        """By address, oldest first."""
        self._turns: deque[str] = deque()
        """Addresses of which somebody has spoken, each once."""
        self._ready: dict[str, list[Guest]] = {}
        self._somebody = asyncio.Event()
        self._count = 0
        self.turned_away_count = 0

    def __len__(self) -> int:
        return self._count

    def admit(self, sock: socket.socket, address: str) -> None:
        """Take a socket in; it is the entrance's to close until `next` hands it out."""
        if self._count >= self._max_guests:
            self.turned_away_count += 1
            crowd = max(self._guests.values(), key=len)
            self._dismiss(next(iter(crowd)))
        guest = Guest(sock, address, self._clock.monotonic())
        self._guests.setdefault(address, {})[guest] = None
        self._count += 1
        self._loop.add_reader(sock, self._spoke, guest)

    def _spoke(self, guest: Guest) -> None:
        """The client has sent something, or has gone; which of them shows in the handshake."""
        self._loop.remove_reader(guest.sock)
        guest.has_spoken = True
        ready = self._ready.get(guest.address)
        if ready is None:
            ready = self._ready[guest.address] = []
            self._turns.append(guest.address)
        ready.append(guest)
        self._somebody.set()

    async def next(self) -> Guest:
        """Whose turn it is, as soon as there is somebody. The socket is the caller's from now on."""
        while not self._turns:
            self._somebody.clear()
            await self._somebody.wait()
        address = self._turns.popleft()
        ready = self._ready[address]
        guest = ready.pop()
        if ready:
            self._turns.append(address)
        else:
            del self._ready[address]
        self._forget(guest)
        return guest

    def dismiss_before(self, instant: float) -> None:
        """Close those who have been here since before then."""
        for guests in list(self._guests.values()):
            for guest in list(guests):
                if guest.since >= instant:
                    break
                self._dismiss(guest)

    def close(self) -> None:
        self.dismiss_before(float("inf"))

    def _dismiss(self, guest: Guest) -> None:
        if guest.has_spoken:
            ready = self._ready[guest.address]
            ready.remove(guest)
            if not ready:
                del self._ready[guest.address]
                self._turns.remove(guest.address)
        else:
            self._loop.remove_reader(guest.sock)
        self._forget(guest)
        guest.sock.close()

    def _forget(self, guest: Guest) -> None:
        guests = self._guests[guest.address]
        del guests[guest]
        if not guests:
            del self._guests[guest.address]
        self._count -= 1
