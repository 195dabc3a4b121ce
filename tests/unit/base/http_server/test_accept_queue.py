"""Which socket is next, and which one is dropped when the queue is full."""

import asyncio
import socket

import pytest

from kubesched.base.clock import ManualClock
from kubesched.base.http_server.accept_queue import AcceptQueue, fairness_key


class Clients:
    """Connected clients, by name, whose server ends are in a queue."""

    def __init__(self, queue):
        self.queue = queue
        self.clients = {}

    def connect(self, name, address, *, speaks=True):
        client, sock = socket.socketpair()
        for each in (client, sock):
            each.setblocking(False)
        self.clients[name] = client
        self.queue.put(sock, address)
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
            waiting = await self.queue.get()
        said = waiting.sock.recv(10).decode()
        waiting.sock.close()
        return said


async def noticed():
    """The loop has looked at its sockets."""
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def clients(clock):
    made = Clients(AcceptQueue(4, clock=clock))
    yield made
    made.queue.close()
    for client in made.clients.values():
        client.close()


async def test_turns_go_round_the_addresses_newest_first(clients):
    for name in ("a1", "a2", "a3"):
        clients.connect(name, "a")
        await noticed()
    clients.connect("b1", "b")
    await noticed()
    assert [await clients.next() for _ in range(4)] == ["a3", "b1", "a2", "a1"]
    assert len(clients.queue) == 0


async def test_a_silent_client_gets_no_turn(clients):
    clients.connect("silent", "a", speaks=False)
    clients.connect("b1", "b")
    assert await clients.next() == "b1"
    waiting = asyncio.ensure_future(clients.next())
    await noticed()
    assert not waiting.done()
    clients.clients["silent"].send(b"at last")
    assert await waiting == "at last"


async def test_a_full_queue_drops_the_oldest_socket_of_the_busiest_address(clients):
    for name in ("a1", "a2", "a3"):
        clients.connect(name, "a", speaks=name == "a1")
    clients.connect("b1", "b")
    await noticed()
    clients.connect("b2", "b")
    clients.connect("c1", "c")
    await noticed()
    assert [name for name in clients.clients if clients.is_cut(name)] == ["a1", "a2"]
    assert len(clients.queue) == 4
    assert {await clients.next() for _ in range(3)} == {"b1", "b2", "c1"}


async def test_old_sockets_are_dropped(clients, clock):
    clients.connect("old", "a", speaks=False)
    clients.connect("spoken", "a")
    await noticed()
    clock.advance(5)
    clients.connect("new", "a")
    await noticed()
    clients.queue.drop_older(clock.monotonic() - 1)
    assert [name for name in clients.clients if clients.is_cut(name)] == ["old", "spoken"]
    assert await clients.next() == "new"


async def test_closing_drops_all_sockets(clients):
    clients.connect("silent", "a", speaks=False)
    clients.connect("spoken", "b")
    await noticed()
    clients.queue.close()
    assert all(clients.is_cut(name) for name in clients.clients)
    assert len(clients.queue) == 0


@pytest.mark.parametrize(
    ("address", "key"),
    [
        pytest.param("10.0.0.1", "10.0.0.1", id="IPv4"),
        pytest.param("::ffff:10.0.0.1", "10.0.0.1", id="IPv4 on a dual-stack socket"),
        pytest.param("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::", id="one /64 counts as one client"),
        pytest.param("fe80::1%eth0", "fe80::", id="with a zone"),
        pytest.param("a:b", "a:b", id="not an address"),
    ],
)
def test_the_address_that_limits_count_by(address, key):
    assert fairness_key(address) == key
