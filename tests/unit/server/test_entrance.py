"""Who waits at the entrance, who is next, and who has to go when it is full."""

import asyncio
import socket

import pytest

from kubesched.clock import ManualClock
from kubesched.server.entrance import Entrance


class Street:
    """Makes clients and sends them to an entrance."""

    def __init__(self, entrance):
        self.entrance = entrance
        self.clients = {}

    def arrive(self, name, address, *, speaks=True):
        client, sock = socket.socketpair()
        for each in (client, sock):
            each.setblocking(False)
        self.clients[name] = client
        self.entrance.admit(sock, address)
        if speaks:
            client.send(name.encode())

    def is_cut(self, name):
        try:
            return self.clients[name].recv(10) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    async def next(self):
        async with asyncio.timeout(10):
            guest = await self.entrance.next()
        said = guest.sock.recv(10).decode()
        guest.sock.close()
        return said


async def noticed():
    """The loop has looked at its sockets."""
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def street(clock):
    made = Street(Entrance(4, clock=clock))
    yield made
    made.entrance.close()
    for client in made.clients.values():
        client.close()


async def test_turns_go_round_the_addresses_newest_first(street):
    for name in ("a1", "a2", "a3"):
        street.arrive(name, "a")
        await noticed()
    street.arrive("b1", "b")
    await noticed()
    assert [await street.next() for _ in range(4)] == ["a3", "b1", "a2", "a1"]
    assert len(street.entrance) == 0


async def test_who_says_nothing_gets_no_turn(street):
    street.arrive("silent", "a", speaks=False)
    street.arrive("b1", "b")
    assert await street.next() == "b1"
    waiting = asyncio.ensure_future(street.next())
    await noticed()
    assert not waiting.done()
    street.clients["silent"].send(b"at last")
    assert await waiting == "at last"


async def test_when_it_is_full_the_oldest_of_the_largest_crowd_goes(street):
    for name in ("a1", "a2", "a3"):
        street.arrive(name, "a", speaks=name == "a1")
    street.arrive("b1", "b")
    await noticed()
    street.arrive("b2", "b")
    street.arrive("c1", "c")
    await noticed()
    assert [name for name in street.clients if street.is_cut(name)] == ["a1", "a2"]
    assert len(street.entrance) == 4
    assert street.entrance.turned_away_count == 2
    assert {await street.next() for _ in range(3)} == {"b1", "b2", "c1"}


async def test_nobody_waits_for_ever(street, clock):
    street.arrive("old", "a", speaks=False)
    street.arrive("spoken", "a")
    await noticed()
    clock.advance(5)
    street.arrive("new", "a")
    await noticed()
    street.entrance.dismiss_before(clock.monotonic() - 1)
    assert [name for name in street.clients if street.is_cut(name)] == ["old", "spoken"]
    assert await street.next() == "new"


async def test_closing_cuts_everybody(street):
    street.arrive("silent", "a", speaks=False)
    street.arrive("spoken", "b")
    await noticed()
    street.entrance.close()
    assert all(street.is_cut(name) for name in street.clients)
    assert len(street.entrance) == 0
