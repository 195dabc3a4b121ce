"""Leader election in virtual time: how leadership ends, and that two never lead at once whatever
the network does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lease_candidates import (
    FINE,
    LEASE_S,
    RETRY_S,
    Candidate,
    Connection,
    LeaseServer,
    Weather,
    elapsed,
    leading,
    running,
    until,
)
from virtual_tests import virtual

from kubesched.api.codec import encode
from kubesched.client.leader_election import LeaderCallbacks, LeaderElectionSettings, LeaderElector

# Losing and failing


@virtual
async def test_another_holder_of_the_lease_ends_leadership_at_once(make_clock):
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
    """A user labels the lease between two renewals."""

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


# Never two at once

delays = st.sampled_from([0.001, 0.5, 2.5, 4.9])
weathers = st.builds(
    Weather,
    out_s=delays,
    back_s=delays,
    lost=st.sampled_from(["out", "", "back", "refused"]),
)
tenths = st.integers(0, 200).map(lambda number: number / 10)
# Faults come in spells, after a candidate had time to become leader.
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


@pytest.mark.slow
@given(
    drawn=st.lists(candidates_drawn, min_size=2, max_size=3),
    end_at=st.integers(40, 150),
)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@virtual
async def test_never_two_lead_at_once_and_one_leads_in_the_end(make_clock, drawn, end_at):
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
