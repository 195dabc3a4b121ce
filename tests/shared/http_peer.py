"""The client end of an HTTP connection over a transport that only records: bytes in, responses
out.
"""

from __future__ import annotations

import asyncio

from kubesched.base.clock import ManualClock
from kubesched.base.http_server.connection import Connection
from kubesched.base.http_server.limits import BodyBudget, Limits
from kubesched.base.http_server.writer import DateHeader


class FakeTransport(asyncio.Transport):
    """Records what was written and how the connection ended."""

    def __init__(self) -> None:
        super().__init__()
        self.out = b""
        self.is_closed = False
        self.closed = asyncio.Event()
        self.aborted = asyncio.Event()
        self.is_reading = True

    def write(self, data: bytes) -> None:
        assert not self.is_closed, "nothing is written after closing"
        self.out += data

    def close(self) -> None:
        self.is_closed = True
        self.closed.set()

    def abort(self) -> None:
        self.aborted.set()

    def pause_reading(self) -> None:
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading
        self.is_reading = True


class Owner:
    """Stands in for a listener."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.budget = BodyBudget(limits.max_buffered_bytes)
        self.date = DateHeader(ManualClock())
        self.connections: set[Connection] = set()

    def opened(self, connection: Connection) -> None:
        self.connections.add(connection)

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)


class HttpPeer:
    """The other end of a connection to an application."""

    def __init__(self, application, limits: Limits | None = None, owner: Owner | None = None):
        self.owner = owner or Owner(limits or Limits())
        self.transport = FakeTransport()
        self.is_disconnected = False
        self.connection = Connection(self.owner, application)
        self.connection.connection_made(self.transport)

    def send(self, data: bytes) -> None:
        self.connection.data_received(data)

    def answers(self) -> list[tuple[int, dict[str, str], bytes]]:
        """Complete responses so far: status, headers, body. For responses with a Content-Length."""
        answers, rest = [], self.transport.out
        while b"\r\n\r\n" in rest:
            head, _, rest = rest.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            headers = {
                name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])
            }
            length = int(headers.get("content-length", 0))
            answers.append((int(lines[0].split()[1]), headers, rest[:length]))
            rest = rest[length:]
        return answers

    def statuses(self) -> list[int]:
        return [status for status, _, _ in self.answers()]

    async def settled(self) -> None:
        """Let the event loop run what is ready."""
        for _ in range(10):
            await asyncio.sleep(0)

    def disconnect(self) -> None:
        """End the connection, unless that has happened already."""
        if not self.is_disconnected:
            self.is_disconnected = True
            self.connection.connection_lost(None)

    async def leave(self) -> None:
        """End the connection, and wait until the response under way has cleaned up."""
        self.disconnect()
        await self.connection.finish()
