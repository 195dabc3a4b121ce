"""Candidates for a Lease in a store that keeps real JSON and real resourceVersions, and the network
between them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import msgspec

from kubesched.api.codec import Preserved, decode_preserved, encode
from kubesched.api.coordination_v1 import Lease
from kubesched.base.errors import (
    AlreadyExists,
    Conflict,
    ConnectFailed,
    DeadlineExceeded,
    NotFound,
    ServerError,
)
from kubesched.client.leader_election import LeaderCallbacks, LeaderElectionSettings, LeaderElector

LEASE_S, DEADLINE_S, RETRY_S = 15.0, 10.0, 2.0


class LeaseServer:
    """One Lease with optimistic concurrency."""

    def __init__(self, lease: dict | None = None) -> None:
        self.lease = lease
        self._version = 100

    def get(self) -> bytes:
        if self.lease is None:
            raise NotFound('leases.coordination.k8s.io "kube-scheduler" not found')
        return encode(self.lease)

    def create(self, lease: dict) -> bytes:
        if self.lease is not None:
            raise AlreadyExists("already exists")
        return self._store(lease)

    def update(self, lease: dict) -> bytes:
        if self.lease is None:
            raise NotFound("not found")
        if lease["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise Conflict("the object has been modified")
        return self._store(lease)

    def _store(self, lease: dict) -> bytes:
        self._version += 1
        lease["metadata"] |= {"resourceVersion": str(self._version), "uid": "lease-uid"}
        self.lease = lease
        return encode(lease)

    @property
    def spec(self) -> dict:
        assert self.lease is not None
        return self.lease["spec"]


@dataclass(frozen=True)
class Weather:
    """What happens to one request: how long each way takes, and whether one of the ways is
    closed.
    """

    out_s: float = 0.001
    back_s: float = 0.001
    lost: str = ""  # "out", "back", "" or "refused"


FINE = Weather()


@dataclass
class Connection:
    """A candidate's way to the server: `LeaseClient` with a forecast, by request or by time."""

    server: LeaseServer
    forecast: list[Weather] = field(default_factory=list)
    spells: list[tuple[float, float, Weather]] = field(default_factory=list)
    always: Weather = FINE
    calls: list[str] = field(default_factory=list)

    async def get(self) -> Preserved[Lease]:
        return await self._call("get", self.server.get)

    async def create(self, lease: Lease) -> Preserved[Lease]:
        body = msgspec.json.decode(encode(lease))
        return await self._call("create", lambda: self.server.create(body))

    async def update(self, lease: Preserved[Lease]) -> Preserved[Lease]:
        body = lease.json()
        return await self._call("update", lambda: self.server.update(body))

    async def _call(self, name: str, action) -> Preserved[Lease]:
        self.calls.append(name)
        weather = self._weather()
        if weather.lost == "out":
            await asyncio.sleep(weather.out_s)
            raise ConnectFailed("no route")
        if weather.lost == "refused":
            raise ServerError("etcdserver: request timed out")
        # Once sent, a request arrives even if the sender stops waiting for the answer.
        arrival = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(weather.out_s, self._arrive, action, arrival)
        answer = await arrival
        await asyncio.sleep(weather.back_s)
        if weather.lost == "back":
            raise DeadlineExceeded("no answer")
        if isinstance(answer, Exception):
            raise answer
        return decode_preserved(answer, Lease)

    def _weather(self) -> Weather:
        if self.forecast:
            return self.forecast.pop(0)
        for start_s, length_s, weather in self.spells:
            if start_s <= elapsed() < start_s + length_s:
                return weather
        return self.always

    def _arrive(self, action, arrival: asyncio.Future) -> None:
        try:
            answer = action()
        except (NotFound, AlreadyExists, Conflict) as error:
            answer = error
        if not arrival.done():
            arrival.set_result(answer)


class Candidate:
    """An elector with everything it tells."""

    def __init__(
        self, name: str, connection: Connection, clock, *, drain_s: float = 0.0, **changes
    ) -> None:
        self.name = name
        self.connection = connection
        self.leaders: list[str] = []
        self.events: list[str] = []
        self.stopped = 0
        self.is_working = False
        self.work_error: Exception | None = None
        self.drain_s = drain_s
        self.task: asyncio.Task[None] | None = None
        self._clock = clock
        self._changes = changes
        self.elector = self.build(name)

    def build(self, identity: str) -> LeaderElector:
        return LeaderElector(
            LeaderElectionSettings(identity=identity, **self._changes),
            self.connection,
            LeaderCallbacks(
                on_started_leading=self._work,
                on_stopped_leading=self._stop,
                on_new_leader=self.leaders.append,
                record_event=lambda lease, message: self.events.append(f"{lease.name}: {message}"),
            ),
            clock=self._clock,
            rng=random.Random(identity),
        )

    async def _work(self) -> None:
        self.is_working = True
        try:
            if self.work_error is not None:
                raise self.work_error
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(self.drain_s)
            self.is_working = False

    def _stop(self) -> None:
        assert not self.is_working
        self.stopped += 1

    async def end(self) -> None:
        assert self.task is not None
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@contextlib.asynccontextmanager
async def running(*candidates: Candidate) -> AsyncIterator[None]:
    for candidate in candidates:
        candidate.task = asyncio.create_task(candidate.elector.run())
    try:
        yield
    finally:
        for candidate in candidates:
            await candidate.end()


@contextlib.asynccontextmanager
async def leading(candidate: Candidate) -> AsyncIterator[None]:
    async with running(candidate):
        await until(lambda: candidate.is_working)
        yield


def elapsed() -> float:
    return asyncio.get_running_loop().time()


async def until(condition, limit_s: float = 300.0) -> float:
    """Wait for a condition in steps of virtual milliseconds; returns the time it took."""
    start = elapsed()
    while not condition():
        assert elapsed() - start < limit_s, "did not happen in time"
        await asyncio.sleep(0.01)
    return elapsed() - start
