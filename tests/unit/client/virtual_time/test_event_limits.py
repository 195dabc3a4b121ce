"""Events in virtual time: what is retried, held back and dropped, and what is left at the end."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter

import pytest
from event_stage import pod, running, settle
from held_entries import held_entries
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from virtual_tests import virtual

from kubesched.base.errors import (
    AlreadyExists,
    ConnectFailed,
    DeadlineExceeded,
    Forbidden,
    NotFound,
    ServerError,
)
from kubesched.client import events
from kubesched.client.event_series import event_name, shorten_note

FULL = 2_000
"""Events that fill a queue in tests which fill it: a twelfth of what there is room for."""

# When the server does not help


@virtual
async def test_an_unreachable_server_is_tried_twelve_times_with_pauses(make_clock):
    async with running(make_clock()) as stage:
        stage.server.faults = [("before", ConnectFailed("no route"))] * 100
        stage.say(pod())
        await settle(300)
        assert stage.server.verbs == ["create"] * 12
        pauses = [later - sooner for sooner, later in itertools.pairwise(stage.server.times)]
        assert min(pauses) >= 10.0
        assert max(pauses) <= 12.51
        assert max(pauses) - min(pauses) > 1.0, "they are spread out"
        assert stage.dropped == {events.GAVE_UP: 1}


@virtual
async def test_an_outage_delays_events_but_loses_none(make_clock):
    async with running(make_clock()) as stage:
        stage.server.faults = [("before", ConnectFailed("no route"))] * 20
        for number in range(10):
            stage.say(pod(f"web-{number}"))
        await settle(90)
        assert len(stage.server.events) == 10
        assert stage.dropped == {}


@pytest.mark.parametrize("error", [Forbidden("no"), ServerError("etcd is ill"), AlreadyExists("x")])
@virtual
async def test_what_the_server_refuses_is_not_repeated(make_clock, error):
    async with running(make_clock()) as stage:
        stage.server.faults = [("before", error)]
        stage.say(pod())
        await settle(60)
        assert stage.server.verbs == ["create"]


@virtual
async def test_a_refused_event_that_recurs_is_created_then(make_clock):
    async with running(make_clock()) as stage:
        stage.server.faults = [("before", Forbidden("not yet"))]
        stage.say(pod())
        await settle()
        stage.say(pod())
        await settle()
        assert stage.server.verbs == ["create", "patch", "create"]
        assert stage.only_event["series"]["count"] == 2
        assert stage.dropped == {events.REJECTED: 1}


@virtual
async def test_a_series_that_appears_between_patch_and_creation_is_patched_again(make_clock):
    async with running(make_clock()) as stage:
        stage.say(pod())
        await settle()
        stage.server.faults = [("before", NotFound("gone")), ("before", AlreadyExists("back"))]
        stage.say(pod())
        await settle(20)
        assert stage.server.verbs == ["create", "patch", "create", "patch"]
        assert stage.only_event["series"]["count"] == 2


@virtual
async def test_a_defect_in_the_client_costs_one_event(make_clock):
    async with running(make_clock()) as stage:
        stage.server.faults = [("before", ValueError("a defect"))]
        stage.say(pod("unlucky"))
        stage.say(pod("lucky"))
        await settle()
        assert stage.only_event["regarding"]["name"] == "lucky"
        assert stage.dropped == {events.FAILED: 1}


@virtual
async def test_a_lost_answer_does_not_make_two_events(make_clock):
    async with running(make_clock()) as stage:
        stage.server.faults = [("after", DeadlineExceeded("no answer"))]
        stage.say(pod())
        await settle(20)
        assert stage.server.verbs == ["create", "create"]
        assert len(stage.server.events) == 1
        assert stage.dropped == {}


# Letting others pass


@virtual
async def test_events_let_urgent_writes_pass_until_there_are_none(make_clock):
    urgent = [True]
    async with running(make_clock(), is_urgent=lambda: bool(urgent)) as stage:
        for number in range(20):
            stage.say(pod(f"web-{number}"))
        await settle(events.PATIENCE_S / 2)
        assert len(stage.server.events) == 0
        urgent.clear()
        await settle(2 * events.LOOK_S)
        assert len(stage.server.events) == 20


@virtual
async def test_one_writer_cares_for_events_that_have_waited_long_enough(make_clock):
    async with running(make_clock(), is_urgent=lambda: True) as stage:
        for number in range(20):
            stage.say(pod(f"web-{number}"))
        await settle(events.PATIENCE_S + 1)
        assert len(stage.server.events) == 20
        assert stage.server.most_under_way == 1


@virtual
async def test_the_longer_events_have_waited_the_more_writers_care_for_them(make_clock):
    async with running(make_clock(), is_urgent=lambda: True) as stage:
        stage.server.delay_s = 10 * events.PATIENCE_S
        for number in range(20):
            stage.say(pod(f"web-{number}"))
        await settle(2.5 * events.PATIENCE_S)
        assert stage.server.most_under_way == 2
        await settle(events.PATIENCE_S)
        assert stage.server.most_under_way == 3


@virtual
async def test_more_writers_write_the_fuller_the_queue_whatever_else_is_urgent(
    make_clock, monkeypatch
):
    monkeypatch.setattr(events, "MAX_QUEUED", FULL)
    async with running(make_clock(), writer_count=16, is_urgent=lambda: True) as stage:
        stage.server.delay_s = events.PATIENCE_S
        for number in range(events.MAX_QUEUED // 4):
            stage.say(pod(f"web-{number}"))
        await settle(1)
        assert stage.server.most_under_way == 1, "a quarter full: a sixteenth of the writers"
        for number in range(events.MAX_QUEUED // 4, events.MAX_QUEUED):
            stage.say(pod(f"web-{number}"))
        await settle(1)
        assert stage.server.most_under_way >= 15, "as good as full"
        assert stage.dropped == {}
        stage.server.delay_s = 0.0
        await settle(10 * events.PATIENCE_S)
        assert len(stage.server.events) > events.MAX_QUEUED // 2


# Bounds


@virtual
async def test_a_full_queue_drops_and_counts(make_clock, caplog, monkeypatch):
    monkeypatch.setattr(events, "MAX_QUEUED", FULL)
    async with running(make_clock()) as stage:
        for number in range(events.MAX_QUEUED + 50):
            stage.say(pod(f"web-{number}"))
        assert stage.dropped == {events.QUEUE_FULL: 50}
        assert caplog.text.count("Event dropped") == 1, "said once, then only counted"
        await settle(10)
        assert len(stage.server.events) == events.MAX_QUEUED
        stage.say(pod("late"))
        await settle()
        assert len(stage.server.events) == events.MAX_QUEUED + 1


@virtual
async def test_writers_are_few(make_clock):
    async with running(make_clock(), writer_count=3) as stage:
        for number in range(50):
            stage.say(pod(f"web-{number}"))
        await settle()
        assert stage.server.most_under_way == 3
        assert len(stage.server.events) == 50


@virtual
async def test_the_cache_is_bounded_and_what_it_forgets_is_written_first(make_clock, monkeypatch):
    monkeypatch.setattr(events, "MAX_CACHED", 20)
    monkeypatch.setattr(events, "FORGET_BATCH", 10)
    async with running(make_clock()) as stage:
        for _ in range(7):
            stage.say(pod("old"))
        await settle()
        for _ in range(3):
            stage.say(pod("old"))
        for number in range(200):
            stage.say(pod(f"web-{number}"))
            await settle(0.1)
        old = [
            event for event in stage.server.events.values() if event["regarding"]["name"] == "old"
        ]
        assert [event["series"]["count"] for event in old] == [10]
        assert stage.cached_count <= 20


@virtual
async def test_names_and_reasons_that_occur_once_are_all_forgotten(make_clock):
    async with running(make_clock()) as stage:

        async def say_many(what):
            for number in range(300):
                about = pod(f"{what}-{number}", namespace=f"{what}-{number}")
                stage.say(about, f"{what} {number}", related=about, reason=f"{what}{number}")
                stage.say(about, reason=f"{what}{number}")
            await settle()
            stage.server.events.clear()
            await settle(2 * events.FINISH_INTERVAL_S + 1)
            return held_entries(stage.broadcaster, without=[stage.server])

        before = await say_many("first")
        assert await say_many("second") == before
        assert stage.cached_count == 0


@pytest.mark.parametrize(
    ("regarding", "type_"),
    [(pod(), "Urgent"), ("a string", "Normal"), (None, "Normal"), (42, "Warning")],
)
@virtual
async def test_nonsense_is_dropped_not_raised(make_clock, regarding, type_):
    async with running(make_clock()) as stage:
        stage.recorder.event(regarding, None, type_, "Why", "Doing", "note")
        await settle()
        assert stage.server.requests == []
        assert stage.dropped == {events.BAD_EVENT: 1}


# The end


@virtual
async def test_stopping_writes_what_is_queued_and_the_last_counts(make_clock):
    async with running(make_clock()) as stage:
        for _ in range(5):
            stage.say(pod("series"))
            await settle(1)
        for number in range(100):
            stage.say(pod(f"web-{number}"))
        await stage.stop()
        assert len(stage.server.events) == 101
        series = next(e for e in stage.server.events.values() if e["regarding"]["name"] == "series")
        assert series["series"]["count"] == 5
        assert stage.dropped == {}


@virtual
async def test_stopping_takes_no_longer_than_allowed(make_clock):
    async with running(make_clock(), flush_s=5.0) as stage:
        stage.server.delay_s = 2.0
        for number in range(100):
            stage.say(pod(f"web-{number}"))
        await settle(1)
        start = asyncio.get_running_loop().time()
        await stage.stop()
        assert asyncio.get_running_loop().time() - start <= 5.01
        written = len(stage.server.events)
        assert written == 2 * events.WRITERS, "two rounds"
        assert stage.dropped == {events.SHUT_DOWN: 100 - written}


@virtual
async def test_stopping_does_not_wait_for_a_server_that_is_gone(make_clock):
    async with running(make_clock()) as stage:
        stage.server.faults = [("before", ConnectFailed("no route"))] * 100
        for number in range(10):
            stage.say(pod(f"web-{number}"))
        await settle(1)
        start = asyncio.get_running_loop().time()
        await stage.stop()
        assert asyncio.get_running_loop().time() - start < 1.0
        assert stage.dropped == {events.SHUT_DOWN: 10}


@virtual
async def test_after_the_end_events_are_dropped(make_clock):
    async with running(make_clock()) as stage:
        await settle(1)
        await stage.stop()
        stage.say(pod())
        assert stage.dropped == {events.SHUT_DOWN: 1}


# Names and notes


@pytest.mark.parametrize(
    ("subject", "is_kept"),
    [("web-1", True), ("node.example.com", True), ("Odd_Name", False), ("x" * 250, False)],
)
def test_names_come_from_the_object_if_they_can(subject, is_kept):
    name = event_name(subject, 0x17F, random.Random(1))
    if is_kept:
        assert name == f"{subject}.17f"
    else:
        assert len(name) == 36


@virtual
async def test_events_of_the_same_moment_have_different_names(make_clock):
    async with running(make_clock()) as stage:
        for number in range(20):
            stage.say(pod(version=str(number)))
        await settle()
        assert len(stage.server.events) == 20


@pytest.mark.parametrize("filler", ["x", "é", "漢", "😀"])
@pytest.mark.parametrize("length", [1020, 1021, 1023, 1024, 1025, 1026, 5000])
def test_notes_fit_into_1024_bytes(filler, length):
    note = filler * (length // len(filler.encode()))
    short = shorten_note(note)
    assert len(short.encode()) <= 1024
    if len(note.encode()) <= 1024:
        assert short == note
    else:
        assert short.endswith(" ...")
        assert note.startswith(short.removesuffix(" ..."))
        assert len(short.encode()) > 1020, "no more is cut than needed"


# No occurrence is lost

faults = st.lists(
    st.tuples(
        st.sampled_from(["before", "after", ""]),
        st.sampled_from([ConnectFailed("no route"), DeadlineExceeded("no answer")]),
    ),
    max_size=30,
)
occurrences = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 0.0, 1.0, 30.0, 400.0])), max_size=40
)


@given(said=occurrences, faults=faults, is_stopped=st.booleans())
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@virtual
async def test_counts_on_the_server_add_up_in_the_end(make_clock, said, faults, is_stopped):
    async with running(make_clock(), flush_s=30.0) as stage:
        stage.server.faults = [*faults]
        for name, pause_s in said:
            stage.say(pod(name))
            await settle(pause_s)
        stage.server.faults.clear()
        if is_stopped:
            await stage.stop()
        else:
            await settle(3 * events.FINISH_INTERVAL_S)
        counted: Counter[str] = Counter()
        for event in stage.server.events.values():
            counted[event["regarding"]["name"]] += event.get("series", {}).get("count", 1)
        assert counted == Counter(name for name, _ in said)
        assert stage.dropped == {}
