"""Events in virtual time: what is written when, and what is folded into a series."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from event_stage import EventServer, pod, running, settle
from virtual_tests import virtual

from kubesched.api.core_v1 import Node, ObjectReference
from kubesched.api.meta import ObjectMeta
from kubesched.client import events

# The wire form


@virtual
async def test_the_first_occurrence_is_created(make_clock):
    async with running(make_clock()) as stage:
        stage.recorder.event(
            pod(), pod("other", version="9"), "Normal", "Preempted", "Preempting", "told you"
        )
        await settle()
        assert stage.only_event == {
            "kind": "Event",
            "apiVersion": "events.k8s.io/v1",
            "metadata": {"name": f"web-1.{1_767_225_600_000_000_000:x}", "namespace": "ns"},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "default-scheduler",
            "reportingInstance": "default-scheduler-host",
            "action": "Preempting",
            "reason": "Preempted",
            "regarding": {
                "kind": "Pod",
                "apiVersion": "v1",
                "namespace": "ns",
                "name": "web-1",
                "uid": "uid-web-1",
                "resourceVersion": "7",
            },
            "related": {
                "kind": "Pod",
                "apiVersion": "v1",
                "namespace": "ns",
                "name": "other",
                "uid": "uid-other",
                "resourceVersion": "9",
            },
            "note": "told you",
            "type": "Normal",
        }


@virtual
async def test_the_second_occurrence_patches_the_series_and_later_ones_only_count(make_clock):
    async with running(make_clock()) as stage:
        stage.say(pod(), "first")
        await settle(5)
        stage.say(pod(), "second")
        await settle(5)
        for _ in range(3):
            stage.say(pod(), "later")
        await settle(5)
        assert stage.server.verbs == ["create", "patch"]
        assert stage.only_event["series"] == {
            "count": 2,
            "lastObservedTime": "2026-01-01T00:00:05.000000Z",
        }
        assert stage.only_event["note"] == "first"


@virtual
async def test_a_burst_is_created_first_and_patched_then(make_clock):
    """The second occurrence comes before the first is written."""
    async with running(make_clock()) as stage:
        for _ in range(5):
            stage.say(pod())
        await settle()
        assert stage.server.verbs == ["create", "patch"]
        assert stage.only_event["series"]["count"] == 5


@virtual
async def test_objects_without_namespace_are_told_about_in_default(make_clock):
    async with running(make_clock()) as stage:
        node = Node(metadata=ObjectMeta(name="n1", uid="u"))
        stage.recorder.event(node, None, "Normal", "Why", "Doing", "note")
        await settle()
        assert stage.only_event["metadata"]["namespace"] == "default"
        assert stage.only_event["regarding"] == {
            "kind": "Node",
            "apiVersion": "v1",
            "name": "n1",
            "uid": "u",
        }


@virtual
async def test_legacy_events_are_core_events(make_clock):
    async with running(make_clock()) as stage:
        recorder = stage.broadcaster.legacy_recorder("default-scheduler")
        lease = ObjectReference(
            kind="Lease", api_version="coordination.k8s.io/v1", namespace="kube-system", name="l"
        )
        for note in ("a became leader", "a stopped leading", "a stopped leading"):
            recorder.event(lease, None, "Normal", "LeaderElection", "", note)
            await settle(5)
        first, second = stage.server.events.values()
        assert first == {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": first["metadata"]["name"], "namespace": "kube-system"},
            "involvedObject": {
                "kind": "Lease",
                "apiVersion": "coordination.k8s.io/v1",
                "namespace": "kube-system",
                "name": "l",
            },
            "reason": "LeaderElection",
            "message": "a became leader",
            "source": {"component": "default-scheduler"},
            "reportingComponent": "default-scheduler",
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z",
            "count": 1,
            "type": "Normal",
        }
        assert (second["message"], second["count"]) == ("a stopped leading", 2)
        assert second["firstTimestamp"] < second["lastTimestamp"]


# What is one series


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        pytest.param(lambda s: s.say(pod(), "another note"), True, id="another note"),
        pytest.param(lambda s: s.say(pod(version="8")), False, id="another revision of the pod"),
        pytest.param(lambda s: s.say(pod("web-2")), False, id="another pod"),
        pytest.param(lambda s: s.say(pod(), reason="Other"), False, id="another reason"),
        pytest.param(lambda s: s.say(pod(), related=pod("x")), False, id="another related object"),
        pytest.param(
            lambda s: s.recorder.event(pod(), None, "Normal", "Why", "Scheduling", "note"),
            False,
            id="another type",
        ),
        pytest.param(
            lambda s: s.recorder.event(pod(), None, "Warning", "Why", "Other", "note"),
            False,
            id="another action",
        ),
        pytest.param(
            lambda s: s.broadcaster.recorder("other").event(
                pod(), None, "Warning", "Why", "Scheduling", "note"
            ),
            False,
            id="another reporter",
        ),
    ],
)
@virtual
async def test_what_makes_a_recurrence(make_clock, change, is_same):
    async with running(make_clock()) as stage:
        stage.say(pod())
        change(stage)
        await settle()
        assert len(stage.server.events) == (1 if is_same else 2)


# As time goes by


@virtual
async def test_a_series_that_ended_gets_its_last_count_and_is_forgotten(make_clock):
    async with running(make_clock()) as stage:
        for _ in range(10):
            stage.say(pod())
            await settle(1)
        await settle(events.FINISH_INTERVAL_S - 11)
        assert stage.only_event["series"]["count"] == 2
        await settle(events.FINISH_INTERVAL_S + 20)
        assert stage.only_event["series"] == {
            "count": 10,
            "lastObservedTime": "2026-01-01T00:00:09.000000Z",
        }
        assert stage.cached_count == 0
        stage.say(pod())
        await settle()
        assert len(stage.server.events) == 2


@virtual
async def test_a_series_that_goes_on_is_not_finished(make_clock):
    async with running(make_clock()) as stage:
        for _ in range(20):
            stage.say(pod())
            await settle(60)
        assert stage.server.verbs == ["create", "patch"]


@virtual
async def test_an_event_that_did_not_recur_is_forgotten_without_a_write(make_clock):
    async with running(make_clock()) as stage:
        stage.say(pod())
        await settle(2 * events.FINISH_INTERVAL_S + 1)
        assert stage.server.verbs == ["create"]
        assert stage.cached_count == 0


@virtual
async def test_long_series_are_refreshed_every_half_hour(make_clock):
    async with running(make_clock()) as stage:
        for _ in range(70):
            stage.say(pod())
            await settle(59)
        assert stage.server.verbs == ["create", "patch", "patch", "patch"]
        assert stage.server.times[2:] == pytest.approx([1800.0, 3600.0])
        assert stage.only_event["series"]["count"] == 62, "as many as were said in an hour"


@virtual
async def test_a_series_the_server_forgot_is_created_again_whole(make_clock):
    async with running(make_clock()) as stage:
        stage.say(pod())
        await settle()
        stage.server.events.clear()
        stage.say(pod())
        await settle()
        assert stage.server.verbs == ["create", "patch", "create"]
        assert stage.only_event["series"]["count"] == 2


class DirectServer(EventServer):
    """Also takes events whose answer calls back; the test decides when."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = []

    def start_event(self, event, done):
        self.waiting.append(done)
        return lambda: None


@virtual
async def test_an_answer_that_comes_while_writers_end_leaves_the_event_to_the_last_write(
    make_clock,
):
    server = DirectServer()
    broadcaster = events.EventBroadcaster(
        server, clock=make_clock(), rng=random.Random(1), host_name="host"
    )
    task = asyncio.create_task(broadcaster.run())
    broadcaster.recorder("s").event(pod(), None, "Normal", "Why", "Doing", "note")
    await settle()
    task.cancel()
    await asyncio.sleep(0)  # the group of writers is ending now, and takes no further tasks

    async def retry():
        """What would be left to do of the request."""

    (done,) = server.waiting
    done(retry)
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert server.verbs == ["create"]
    assert not broadcaster.dropped
