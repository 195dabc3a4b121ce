"""Leader election in virtual time: the wire form, and the timing rules of client-go."""

from __future__ import annotations

import asyncio
import itertools

from lease_candidates import (
    DEADLINE_S,
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

from kubesched.base.clock import ManualClock

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


# Timing


def test_a_silent_holder_is_replaced_after_a_full_lease_on_our_own_clock(
    in_virtual_time, make_clock
):
    """Whatever the wall clocks say: the lease looks a day old to one candidate and a day ahead to
    the other.
    """

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


def test_a_gap_in_leadership_lasts_no_longer_than_the_lease_and_a_retry_period(
    in_virtual_time, make_clock
):
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
        clock.advance(12.4)
        assert candidate.elector.is_leader()
        clock.advance(0.1)
        assert not candidate.elector.is_leader()
