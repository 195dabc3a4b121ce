"""Bindings without a task: by callback where nothing else is to be awaited, and undone like any
other.

What a lost or refused answer means is in `tests/unit/app/test_app_scheduling_calls`.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from msgspec import structs

from kubesched.api.core_v1 import Node
from kubesched.base.errors import Conflict
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.load import default_config
from kubesched.insight.recording.reader import RecordingReader
from kubesched.insight.recording.recorded_dependencies import open_recording, recorded_dependencies
from kubesched.insight.recording.records import Reached
from kubesched.insight.recording.writer import Limits
from kubesched.scheduler.binding_slots import BindingSlots
from kubesched.scheduler.flight import BINDING_BEGINS, BINDING_DONE
from kubesched.testing import Cluster
from kubesched.testing.builders import make_node, make_pod


class Started:
    """`start_binding` of a client: remembers what was started, and answers when told."""

    def __init__(self, world: Cluster) -> None:
        self.world = world
        self.open = {}
        self.given_up = []

    def __call__(self, pod, node_name, done):
        self.open[pod.metadata.name] = (pod, node_name, done)
        return lambda: self.given_up.append(pod.metadata.name)

    def succeed(self, name):
        pod, node_name, done = self.open.pop(name)
        self.world.bound(pod, node_name)
        done(None)

    def fail(self, name, error):
        async def rest():
            raise error

        self.open.pop(name)[2](rest)


@pytest.fixture
def world():
    with Cluster() as running:
        running.client.start_binding = Started(running)
        running.add(make_node("n1").build())
        yield running


def started(world) -> Started:
    return world.client.start_binding


def test_an_answer_binds_the_pod_without_a_task(world):
    scheduler = world.assembly.scheduler
    world.add(make_pod("a").build())
    world.settle()
    assert set(started(world).open) == {"a"}
    assert (scheduler.binding.direct_count, len(scheduler._bindings)) == (1, 0)
    started(world).succeed("a")
    world.settle()
    assert world.pod("a").spec.node_name == "n1"
    assert scheduler.binding.direct_count == 0
    scheduler.check_invariants()


def test_a_direct_binding_is_counted_while_it_lasts_and_timed(world):
    metrics = world.assembly.scheduler.metrics
    timed = metrics.framework_extension_point_duration_seconds
    bindings = metrics.goroutines.labels("binding")
    world.add(make_pod("a").build())
    world.settle()
    assert bindings.current() == 1
    assert timed.labels("Bind", "Success", "default-scheduler").count == 0
    started(world).succeed("a")
    world.settle()
    assert bindings.current() == 0
    assert timed.labels("Bind", "Success", "default-scheduler").count == 1


@pytest.fixture
def recorded():
    """A world and the recording of its scheduler."""
    recordings = []

    def wrap(dependencies):
        dependencies.client.start_binding = Started(None)
        recording = open_recording(
            None,
            default_config(),
            DEFAULT_GATES,
            limits=Limits(),
            clock=dependencies.clock,
            random=Random(1),
            threaded=False,
        )
        recordings.append(recording)
        return recorded_dependencies(dependencies, recording)

    with Cluster(wrap=wrap) as running:
        running.client.start_binding.world = running
        running.add(make_node("n1").build())
        yield running, recordings[0]


def steps_of(recording):
    """The steps of bindings in a recording, with the code of the ones that failed."""
    recording.recorder.flush()
    (run,) = RecordingReader(recording.storage, "test").runs()
    return [
        (entry.point, "" if entry.outcome is None else entry.outcome[0])
        for entry in run.entries()
        if isinstance(entry, Reached)
    ]


def test_an_answer_lets_a_saturated_scheduler_go_on(world, monkeypatch):
    """Before the watch shows the binding."""
    monkeypatch.setattr("kubesched.scheduler.scheduler.MAX_BINDINGS", 1)
    world.add(make_pod("a").build(), make_pod("b").build())
    world.settle()
    ((first, (_pod, _node_name, done)),) = started(world).open.items()
    done(None)
    world.settle()
    assert set(started(world).open) - {first} == {"a", "b"} - {first}


def test_a_recorded_scheduler_binds_the_same_way(recorded):
    world, recording = recorded
    scheduler = world.assembly.scheduler
    world.add(make_pod("a").build())
    world.settle()
    assert (scheduler.binding.direct_count, len(scheduler._bindings)) == (1, 0)
    assert steps_of(recording) == [(BINDING_BEGINS, "")]
    started(world).succeed("a")
    world.settle()
    assert world.pod("a").spec.node_name == "n1"
    assert steps_of(recording) == [(BINDING_BEGINS, ""), (BINDING_DONE, "")]
    scheduler.check_invariants()


def test_a_recorded_binding_that_fails_has_begun_once(recorded):
    world, recording = recorded
    world.add(make_pod("a").build())
    world.settle()
    started(world).fail("a", Conflict("the pod is being deleted"))
    world.settle()
    assert steps_of(recording) == [(BINDING_BEGINS, ""), (BINDING_DONE, "Error")]


def test_no_checkpoint_is_taken_beside_a_binding_without_a_task(recorded):
    world, recording = recorded
    scheduler, taken = world.assembly.scheduler, []
    world.add(make_pod("a").build())
    world.settle()
    recording.recorder.checkpoint = taken.append
    assert not scheduler._take_checkpoint(recording.recorder)
    started(world).succeed("a")
    world.settle()
    assert scheduler._take_checkpoint(recording.recorder)
    assert len(taken) == 1


def test_a_refused_binding_is_undone_and_tried_again(world):
    world.add(make_pod("a").build())
    world.settle()
    started(world).fail("a", Conflict("the pod is being deleted"))
    world.settle()
    assert world.assembly.scheduler.cache.pod_count == 0, "forgotten"
    world.advance(20)
    assert set(started(world).open) == {"a"}, "after its backoff"


def test_a_scheduler_that_ends_as_a_binding_fails_keeps_no_slot():
    """Simulation seed 180: the task that was to deal with the failure never began."""
    with Cluster() as world:
        world.client.start_binding = Started(world)
        world.add(make_node("n1").build(), make_pod("a").build())
        world.settle()
        slots = world.assembly.scheduler.binding.slots
        assert slots.taken == 1
        started(world).fail("a", Conflict("the pod is being deleted"))
    assert slots.taken == 0


def test_a_pod_that_was_deleted_and_restored_may_be_bound_twice_at_once(world):
    """Simulation seed 83: the cluster went back to an older revision while the answer was under
    way.
    """
    pod = make_pod("a").build()
    world.add(pod)
    world.settle()
    _, _, first_done = started(world).open["a"]
    handlers = world.assembly.handlers
    handlers.pod_deleted(pod, final_state_unknown=True)
    handlers.pod_added(pod)
    world.settle()
    _, _, second_done = started(world).open["a"]
    assert second_done is not first_done
    assert world.assembly.scheduler.binding.direct_count == 2
    first_done(None)
    second_done(None)
    assert world.assembly.scheduler.binding.direct_count == 0


async def test_slots_bound_the_requests_under_way_and_keep_the_order():
    slots = BindingSlots(2)
    log = []
    for name in "abc":
        slots.acquire(lambda name=name: log.append(name))
    assert log == ["a", "b"]
    slots.release()
    assert log == ["a", "b", "c"]
    waiting = asyncio.ensure_future(held(slots, log, "d"))
    cancelled = asyncio.ensure_future(held(slots, log, "never"))
    last = asyncio.ensure_future(held(slots, log, "e"))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.sleep(0)
    slots.release()
    await asyncio.gather(waiting, last)
    assert log == ["a", "b", "c", "d", "e"]
    slots.release()
    free = []
    for _ in range(3):
        slots.acquire(lambda: free.append(1))
    assert len(free) == 2, "no slot was lost or made"


async def held(slots, log, name):
    async with slots.hold():
        log.append(name)


def test_the_end_of_the_loop_calls_off_what_is_under_way(world):
    world.add(make_pod("a").build())
    world.settle()
    scheduler = world.assembly.scheduler
    scheduler.binding.call_off()
    assert started(world).given_up == ["a"]
    assert scheduler.binding.direct_count == 0
    assert scheduler.cache.assumed_count == 0
    scheduler.check_invariants()


def test_room_kept_for_a_pod_that_is_bound_elsewhere_is_announced(world):
    """Another scheduler's binding came first, or that of a restored pod's next attempt."""
    world.delete(world.find(Node, "", "n1"))
    world.add(make_node("n2").capacity(cpu="1", memory="4Gi").build())
    pods = [make_pod(name).cpu("1").build() for name in ("a", "b")]
    for pod in pods:
        world.add(pod)
    world.settle()
    (name,) = started(world).open
    (taken,) = [pod for pod in pods if pod.metadata.name == name]
    spec = structs.replace(taken.spec, node_name="elsewhere")
    world.assembly.handlers.pod_updated(taken, structs.replace(taken, spec=spec))
    world.advance(20)
    assert set(started(world).open) == {"a", "b"}


def test_draining_waits_for_the_answer(world):
    world.add(make_pod("a").build())
    world.settle()
    draining = world.loop.create_task(world.assembly.scheduler.drain(10.0))
    world.settle()
    assert not draining.done()
    started(world).succeed("a")
    world.settle()
    assert draining.done()
    assert world.assembly.scheduler.binding.direct_count == 0


def test_draining_waits_for_work_in_the_background(world):
    scheduler = world.assembly.scheduler
    answered = world.loop.create_future()
    scheduler.background.spawn(asyncio.wait_for(answered, None), "an eviction")
    world.settle()
    draining = world.loop.create_task(scheduler.drain(10.0))
    world.settle()
    assert not draining.done()
    answered.set_result(None)
    world.settle()
    assert draining.done()


def test_no_pod_is_taken_between_the_request_to_stop_and_draining(world):
    world.assembly.scheduler.take_no_more_pods()
    world.add(make_pod("a").build())
    world.settle()
    assert not started(world).open
    world.loop.run(world.assembly.scheduler.drain(10.0))


def test_no_attempt_begins_while_none_may(world):
    scheduler, may = world.assembly.scheduler, [False]
    scheduler.may_begin = lambda: may[0]
    world.add(make_pod("a").build())
    world.settle()
    assert not started(world).open
    may[0] = True
    scheduler.wake()
    world.settle()
    assert set(started(world).open) == {"a"}


def test_a_plugin_that_fails_to_start_fails_the_attempt(world, caplog):
    def broken(pod, node_name, done):
        raise ValueError("a bug")

    working, world.client.start_binding = world.client.start_binding, broken
    world.add(make_pod("a").build())
    world.settle()
    assert "Binding cycle broke" in caplog.text
    world.client.start_binding = working
    world.advance(20)
    assert set(started(world).open) == {"a"}
    world.assembly.scheduler.check_invariants()
