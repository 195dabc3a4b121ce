"""Leader election over a fake Lease store in virtual time.

Proves the wire form, the timing rules of client-go, and that two candidates never lead at once whatever the
network between them and the server does. The store keeps real JSON and real resourceVersions.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import itertools
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubesched.api.codec import Preserved, decode_preserved, encode
from kubesched.api.coordination_v1 import Lease
from kubesched.client.leader_election import LeaderCallbacks, LeaderElectionSettings, LeaderElector
from kubesched.clock import ManualClock
from kubesched.errors import (
    AlreadyExists,
    Conflict,
    ConnectFailed,
    DeadlineExceeded,
    NotFound,
    ServerError,
)

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
    """What happens to one request: how long each way takes, and whether one of the ways is closed."""

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


def virtual(test):
    """Run an async test in virtual time."""

    @functools.wraps(test)
    def run(in_virtual_time, **fixtures):
        return in_virtual_time(lambda: test(**fixtures))

    names = ["in_virtual_time", *inspect.signature(test).parameters]
    run.__signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    )
    return run


def elapsed() -> float:
    return asyncio.get_running_loop().time()


async def until(condition, limit_s: float = 300.0) -> float:
    """Wait for a condition in steps of virtual milliseconds; returns the time it took."""
    start = elapsed()
    while not condition():
        assert elapsed() - start < limit_s, "did not happen in time"
        await asyncio.sleep(0.01)
    return elapsed() - start


# The wire form


@virtual
async def test_the_first_candidate_creates_the_lease_and_leads(make_clock):
    server = LeaseServer()
    candidate = Candidate("host_1", Connection(server), make_clock())
    async with leading(candidate):
        assert candidate.elector.is_leader()
        assert candidate.elector.leader() == "host_1"
        created = {key: server.spec[key] for key in ("acquireTime", "holderIdentity")}
        assert server.lease["metadata"]["name"] == "kube-scheduler"
        assert server.lease["metadata"]["namespace"] == "kube-system"
        assert server.lease["apiVersion"] == "coordination.k8s.io/v1"
        assert server.lease["kind"] == "Lease"
        await asyncio.sleep(7)
        assert server.spec == {
            **created,
            "leaseDurationSeconds": 15,
            "leaseTransitions": 0,
            "renewTime": server.spec["renewTime"],
        }
        assert created == {
            "acquireTime": "2026-01-01T00:00:00.002000Z",
            "holderIdentity": "host_1",
        }
        assert server.spec["renewTime"] > created["acquireTime"]
    assert candidate.leaders == ["host_1"]
    assert candidate.events == [
        "kube-scheduler: host_1 became leader",
        "kube-scheduler: host_1 stopped leading",
    ]


@virtual
async def test_what_others_wrote_into_the_lease_survives(make_clock):
    server = LeaseServer(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": "kube-scheduler",
                "resourceVersion": "7",
                "labels": {"a": "b"},
                "managedFields": [{"manager": "x", "fieldsV1": {"f:spec": {}}}],
            },
            "spec": {"leaseTransitions": 4, "strategy": "Odd", "fromTheFuture": {"x": 1}},
        }
    )
    candidate = Candidate("a", Connection(server), make_clock())
    async with leading(candidate):
        await asyncio.sleep(5)
        assert server.spec["fromTheFuture"] == {"x": 1}
        assert server.spec["strategy"] == "Odd"
        assert server.spec["leaseTransitions"] == 5
        assert server.lease["metadata"]["labels"] == {"a": "b"}
        assert server.lease["metadata"]["managedFields"][0]["manager"] == "x"


@virtual
async def test_release_empties_the_lease_and_the_next_one_takes_it_at_once(make_clock):
    server = LeaseServer()
    first = Candidate("a", Connection(server), make_clock())
    second = Candidate("b", Connection(server), make_clock(wall_error_s=-86400))
    async with leading(first), running(second):
        await until(lambda: second.elector.leader() == "a")
        await first.end()
        assert first.stopped == 1
        assert {k: server.spec[k] for k in ("holderIdentity", "leaseDurationSeconds")} == {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
        }
        assert server.spec["acquireTime"] == server.spec["renewTime"]
        took = await until(lambda: second.is_working)
        assert took < RETRY_S + 0.1
        assert server.spec["leaseTransitions"] == 1
    assert second.leaders == ["a", "b"]


@virtual
async def test_the_lease_stays_when_release_is_off(make_clock):
    server = LeaseServer()
    candidate = Candidate("a", Connection(server), make_clock(), release_on_cancel=False)
    async with leading(candidate):
        pass
    assert server.spec["holderIdentity"] == "a"


# Timing


def test_a_silent_holder_is_replaced_after_a_full_lease_on_our_own_clock(
    in_virtual_time, make_clock
):
    """Whatever the wall clocks say: the lease looks a day old to one candidate and a day ahead to the other."""

    async def main(wall_error_s):
        server = LeaseServer()
        silent = Candidate("a", Connection(server), make_clock(wall_error_s=wall_error_s))
        async with leading(silent):
            silent.connection.always = Weather(lost="out")
            patient = Candidate("b", Connection(server), make_clock())
            async with running(patient):
                await until(lambda: patient.elector.leader() == "a")
                took = await until(lambda: patient.is_working)
                assert LEASE_S - RETRY_S <= took <= LEASE_S + 0.1
                assert server.spec["leaseTransitions"] == 1

    for wall_error_s in (-86400.0, 0.0, 86400.0):
        in_virtual_time(lambda error=wall_error_s: main(error))


@virtual
async def test_the_duration_that_counts_is_the_one_in_the_lease(make_clock):
    server = LeaseServer()
    silent = Candidate("a", Connection(server), make_clock(), lease_duration_s=60.0)
    async with leading(silent):
        silent.connection.always = Weather(lost="out")
        patient = Candidate("b", Connection(server), make_clock())
        async with running(patient):
            assert await until(lambda: patient.is_working) >= 58.0


@virtual
async def test_the_leader_renews_every_retry_period(make_clock):
    candidate = Candidate("a", Connection(LeaseServer()), make_clock())
    async with leading(candidate):
        before = len(candidate.connection.calls)
        await asyncio.sleep(60)
        assert candidate.connection.calls[before:] == ["update"] * 29  # 2.002 s each


@virtual
async def test_candidates_look_at_a_living_leaders_lease_once_or_twice_in_a_retry_period(
    make_clock,
):
    server = LeaseServer()
    leader, other = (Candidate(name, Connection(server), make_clock()) for name in "ab")
    async with leading(leader), running(other):
        times = []
        for count in range(1, 60):
            await until(lambda count=count: len(other.connection.calls) >= count)
            times.append(elapsed())
        pauses = [b - a for a, b in itertools.pairwise(times)]
        assert min(pauses) >= RETRY_S / 2 - 0.02
        assert max(pauses) <= RETRY_S + 0.02
        assert max(pauses) - min(pauses) > RETRY_S / 3, "they are spread out"


def test_nobody_leads_for_no_longer_than_the_lease_and_a_retry_period(in_virtual_time, make_clock):
    """Whenever the leader falls silent, and however the looks of the other happen to fall."""

    async def main(silent_after_s):
        server = LeaseServer()
        leader, other = (Candidate(name, Connection(server), make_clock()) for name in "ab")
        async with leading(leader), running(other):
            await until(lambda: other.elector.leader() == "a")
            await asyncio.sleep(silent_after_s)
            leader.connection.always = Weather(lost="out")
            assert await until(lambda: other.is_working) < LEASE_S + RETRY_S

    for tenths in range(0, 45, 3):
        in_virtual_time(lambda after=tenths / 10: main(after))


@virtual
async def test_the_leader_gives_up_after_the_renewal_deadline(make_clock):
    candidate = Candidate("a", Connection(LeaseServer()), make_clock())
    async with leading(candidate):
        candidate.connection.always = Weather(lost="refused")
        took = await until(lambda: not candidate.elector.is_leader())
        assert DEADLINE_S <= took <= DEADLINE_S + RETRY_S + 0.1
        assert candidate.task is not None
        await candidate.task
        assert candidate.stopped == 1
        assert not candidate.is_working


@virtual
async def test_a_short_outage_does_not_end_leadership(make_clock):
    candidate = Candidate("a", Connection(LeaseServer()), make_clock())
    async with leading(candidate):
        candidate.connection.always = Weather(lost="out")
        await asyncio.sleep(9)
        candidate.connection.always = FINE
        await asyncio.sleep(60)
        assert candidate.elector.is_leader()
        assert candidate.is_working


@virtual
async def test_answers_that_take_long_are_counted_from_sending(make_clock):
    """Others see a renewal when it reaches the server, not when its answer reaches us."""
    server = LeaseServer()
    slow = Candidate("slow", Connection(server), make_clock())
    others = [Candidate(f"other-{number}", Connection(server), make_clock()) for number in range(9)]
    async with leading(slow), running(*others):
        slow.connection.forecast = [Weather(back_s=4.9)]
        slow.connection.always = Weather(out_s=1.0, lost="out")
        await until(lambda: any(other.is_working for other in others))
        assert not slow.elector.is_leader()
        assert not slow.is_working


@virtual
async def test_leadership_ends_by_itself_even_if_the_loop_stands_still():
    """The clock alone decides: no callback, no timer has to run first."""

    clock = ManualClock()
    candidate = Candidate("a", Connection(LeaseServer()), clock)
    async with leading(candidate):
        assert candidate.elector.is_leader()
        clock.advance(14.9)
        assert candidate.elector.is_leader()
        clock.advance(0.1)
        assert not candidate.elector.is_leader()


# Losing and failing


@virtual
async def test_somebody_else_in_the_lease_ends_leadership_at_once(make_clock):
    server = LeaseServer()
    candidate = Candidate("a", Connection(server), make_clock())
    async with leading(candidate):
        assert server.lease is not None
        stolen = msgspec.json.decode(encode(server.lease))
        stolen["spec"]["holderIdentity"] = "thief"
        server.update(stolen)
        took = await until(lambda: not candidate.elector.is_leader())
        assert took <= RETRY_S + 0.1
        assert candidate.task is not None
        await candidate.task
        assert server.spec["holderIdentity"] == "thief", "what is not ours is not released"
    assert candidate.leaders == ["a", "thief"]


@virtual
async def test_a_conflicting_touch_of_the_lease_is_survived(make_clock):
    """Somebody labels the lease between two renewals."""

    server = LeaseServer()
    candidate = Candidate("a", Connection(server), make_clock())
    async with leading(candidate):
        assert server.lease is not None
        touched = msgspec.json.decode(encode(server.lease))
        touched["metadata"]["labels"] = {"seen": "true"}
        server.update(touched)
        await asyncio.sleep(10)
        assert candidate.is_working
        assert server.spec["leaseTransitions"] == 0
        assert server.lease["metadata"]["labels"] == {"seen": "true"}


@virtual
async def test_a_deleted_lease_is_created_again(make_clock):
    server = LeaseServer()
    candidate = Candidate("a", Connection(server), make_clock())
    async with leading(candidate):
        server.lease = None
        await asyncio.sleep(5)
        assert server.spec["holderIdentity"] == "a"
        assert candidate.elector.is_leader()


@virtual
async def test_a_renewal_whose_answer_was_lost_is_recognised_as_ours(make_clock):
    server = LeaseServer()
    candidate = Candidate("a", Connection(server), make_clock())
    async with leading(candidate):
        acquired = server.spec["acquireTime"]
        candidate.connection.forecast = [Weather(lost="back")]
        await asyncio.sleep(10)
        assert candidate.elector.is_leader()
        assert server.spec["acquireTime"] == acquired
        assert server.spec["leaseTransitions"] == 0


@virtual
async def test_cancelling_while_taking_the_lease_does_not_leave_it_taken(make_clock):
    server = LeaseServer()
    connection = Connection(server, forecast=[FINE, Weather(back_s=3.0)])
    candidate = Candidate("a", connection, make_clock())
    async with running(candidate):
        await until(lambda: server.lease is not None)
        await candidate.end()
    assert server.spec["holderIdentity"] == ""
    assert candidate.stopped == 1
    assert candidate.leaders == []


@virtual
async def test_a_renewal_under_way_does_not_undo_the_release(make_clock):
    server = LeaseServer()
    candidate = Candidate("a", Connection(server), make_clock())
    async with leading(candidate):
        # The renewal is on its way for a while, and arrives between our look and our release.
        candidate.connection.forecast = [Weather(out_s=0.5), Weather(out_s=0.001, back_s=0.6)]
        calls = len(candidate.connection.calls)
        await until(lambda: len(candidate.connection.calls) > calls)
        await candidate.end()
        assert candidate.connection.calls[calls:] == [
            "update",
            "get",
            "update",
            "get",
            "update",
        ]
        assert server.spec["holderIdentity"] == ""
        await asyncio.sleep(5)
        assert server.spec["holderIdentity"] == ""


@virtual
async def test_work_that_fails_ends_leadership_with_its_error(make_clock):
    server = LeaseServer()
    candidate = Candidate("a", Connection(server), make_clock())
    candidate.work_error = ValueError("broken")
    with pytest.raises(ValueError, match="broken"):
        await candidate.elector.run()
    assert candidate.stopped == 1
    assert server.spec["holderIdentity"] == ""


@virtual
async def test_work_has_ended_before_the_lease_is_released(make_clock):
    server = LeaseServer()
    candidate = Candidate("a", Connection(server), make_clock(), drain_s=5.0)
    async with leading(candidate):
        ending = asyncio.create_task(candidate.end())
        await asyncio.sleep(4.9)
        assert candidate.is_working
        assert not candidate.elector.is_leader(), "nothing new is begun meanwhile"
        assert server.spec["holderIdentity"] == "a"
        await ending
        assert server.spec["holderIdentity"] == ""


@virtual
async def test_work_that_does_not_end_keeps_the_lease_from_being_released(make_clock, caplog):
    server = LeaseServer()
    gate = asyncio.Event()

    async def stubborn():
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()

    elector = LeaderElector(
        LeaderElectionSettings(identity="a"),
        Connection(server),
        LeaderCallbacks(on_started_leading=stubborn, on_stopped_leading=lambda: None),
        clock=make_clock(),
        rng=random.Random(1),
    )
    running = asyncio.create_task(elector.run())
    await until(elector.is_leader)
    start = elapsed()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert elapsed() - start <= LEASE_S
    assert server.spec["holderIdentity"] == "a"
    assert "work goes on although the lease is lost" in caplog.text
    gate.set()
    await asyncio.sleep(0)


# Health


@virtual
async def test_health_check_complains_only_about_a_stuck_holder():
    clock = ManualClock()
    server = LeaseServer()
    leader = Candidate("a", Connection(server), clock)
    standby = Candidate("b", Connection(server), clock)
    async with leading(leader), running(standby):
        await until(lambda: standby.elector.leader() == "a")
        assert leader.elector.check(20.0) is None
        clock.advance(35.0)
        assert leader.elector.check(20.0) is None
        clock.advance(0.1)
        expected = "failed election to renew leadership on lease kube-scheduler"
        assert leader.elector.check(20.0) == expected
        assert standby.elector.check(20.0) is None


# Never two at once

delays = st.sampled_from([0.001, 0.5, 2.5, 4.9])
weathers = st.builds(
    Weather,
    out_s=delays,
    back_s=delays,
    lost=st.sampled_from(["out", "", "back", "refused"]),
)
tenths = st.integers(0, 200).map(lambda number: number / 10)
# Trouble comes in spells, after somebody had time to become leader.
spells = st.tuples(
    tenths.map(lambda start_s: start_s * 4 + 5),
    st.sampled_from([14.0, 11.0, 8.0, 2.0, 40.0]),
    weathers,
)
candidates_drawn = st.tuples(
    st.lists(spells, max_size=3),
    st.sampled_from([0.0, 3600.0, -86400.0]),  # wall clock error
    st.sampled_from([0.0, 1e6]),  # origin of the monotonic clock
    tenths,  # when it starts
    st.sampled_from([0.0, 1.0, 2.4]),  # how long its work takes to stop
)


@given(
    drawn=st.lists(candidates_drawn, min_size=2, max_size=3),
    end_at=st.integers(40, 150),
)
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@virtual
async def test_never_two_lead_at_once_and_somebody_leads_in_the_end(make_clock, drawn, end_at):
    server = LeaseServer()
    candidates = [
        Candidate(
            f"host_{number}",
            Connection(server, spells=forecast),
            make_clock(wall_error_s=wall_error_s, origin_s=origin_s),
            drain_s=drain_s,
        )
        for number, (forecast, wall_error_s, origin_s, _, drain_s) in enumerate(drawn)
    ]

    def check() -> None:
        leading = [c.name for c in candidates if c.elector.is_leader()]
        working = [c.name for c in candidates if c.is_working]
        assert len(leading) <= 1, f"{leading} lead"
        assert len(working) <= 1, f"{working} work"
        for name in leading:
            assert server.spec["holderIdentity"].startswith(name), "the lease says otherwise"

    async def watch() -> None:
        while True:
            check()
            await asyncio.sleep(0.05)

    async def live(candidate: Candidate, start_s: float) -> None:
        await asyncio.sleep(start_s)
        for restart in itertools.count():  # as a Deployment restarts what exits
            candidate.elector = candidate.build(f"{candidate.name}_{restart}")
            await candidate.elector.run()
            await asyncio.sleep(1.0)

    watching = asyncio.create_task(watch())
    lives = [
        asyncio.create_task(live(candidate, start_s))
        for candidate, (_, _, _, start_s, _) in zip(candidates, drawn, strict=True)
    ]
    await asyncio.sleep(end_at)
    # From here on the weather is fine, and one of them must come to lead.
    for candidate in candidates:
        candidate.connection.spells = []
    await until(lambda: any(c.elector.is_leader() for c in candidates), limit_s=80.0)
    for task in lives:
        task.cancel()
    await asyncio.wait(lives)
    watching.cancel()
    await asyncio.wait([watching])
    if not watching.cancelled():
        watching.result()
