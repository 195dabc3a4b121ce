"""One key's failure stays its own; the cast starts, runs, stops and repeats itself exactly."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import ClassVar

import pytest

from kubesched.base.clock import ManualClock, SystemClock
from kubesched.base.errors import Conflict, ServerError
from kubesched.playground.client.controller import Controller, ControllerContext, HeartbeatClock
from kubesched.playground.client.events import EventRecorder
from kubesched.playground.client.informers import Index, Informer, InformerFactory
from kubesched.playground.client.local import LocalApi
from kubesched.playground.control_plane import build_registry
from kubesched.playground.controller_manager import CONTROLLER_NAMES, ControllerOptions, start_all
from kubesched.playground.kubelet.options import KubeletOptions
from kubesched.playground.storage.store import Store


def build_api(clock, seed=1):
    registry = build_registry(Store(), clock=clock, rng=random.Random(seed))
    return LocalApi(registry)


class Scripted(Controller[str]):
    """Does what the test says, and remembers when."""

    name: ClassVar[str] = "scripted"

    def __init__(self, context, script):
        super().__init__(context)
        self.script = script
        self.seen = []

    def sync(self, key):
        self.seen.append((key, self.clock.monotonic()))
        outcomes = self.script.get(key, [])
        outcome = outcomes.pop(0) if outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
def clock():
    return ManualClock(0.0)


@pytest.fixture
def scripted(clock):
    def make(**script):
        api = build_api(clock)
        recorder = EventRecorder(api, clock)
        context = ControllerContext(
            api, clock, 1, InformerFactory(api), recorder, HeartbeatClock(clock)
        )
        return Scripted(context, script)

    return make


@pytest.mark.parametrize("error", [Conflict("stale"), ServerError("down"), ValueError("a bug")])
def test_a_failing_key_is_tried_again_and_does_not_stop_the_others(scripted, clock, error, caplog):
    caplog.set_level(logging.CRITICAL)
    controller = scripted(bad=[error, error])
    controller.queue.add("bad")
    controller.queue.add("good")
    controller.process()
    assert [key for key, _ in controller.seen] == ["bad", "good"]
    clock.advance(0.1)
    controller.process()
    clock.advance(0.1)
    controller.process()
    assert [key for key, _ in controller.seen] == ["bad", "good", "bad", "bad"]
    assert (controller.queue.failures("bad"), len(controller.queue)) == (0, 0)


def test_a_bug_is_logged_with_its_key(scripted, caplog):
    controller = scripted(bad=[ValueError("a bug")])
    controller.queue.add("bad")
    controller.process()
    (record,) = [r for r in caplog.records if r.getMessage() == "Failed; trying again"]
    assert (record.values["controller"], record.values["key"]) == ("scripted", "bad")
    assert "a bug" in caplog.text


def test_a_key_that_fails_for_ever_is_never_tried_faster_than_its_back_off(scripted, clock):
    controller = scripted(bad=[ServerError("down")] * 10_000)
    controller.queue.add("bad")
    for _ in range(36_000):
        controller.process()
        clock.advance(0.1)
    # An hour: a dozen quick tries, then one a minute.
    assert 65 <= len(controller.seen) <= 80


def test_a_key_is_looked_at_again_when_it_asked_for_it(scripted, clock):
    controller = scripted(a=[5.0, None])
    controller.queue.add("a")
    controller.process()
    clock.advance(4.9)
    controller.process()
    clock.advance(0.1)
    controller.process()
    assert controller.seen == [("a", 0.0), ("a", 5.0)]


def test_a_turn_can_be_limited(scripted):
    controller = scripted()
    for key in "abc":
        controller.queue.add(key)
    assert [controller.process(2), controller.process(2), controller.process(2)] == [2, 1, 0]


# -- informers ------------------------------------------------------------------------------------


def obj(name, **labels):
    return {"metadata": {"namespace": "n", "name": name, "labels": labels}}


COLOUR = Index(lambda each: each["metadata"]["labels"].values())


def test_an_index_follows_its_objects():
    informer = Informer("things")
    informer.add_index(COLOUR)
    a, b = obj("a", x="red"), obj("b", x="red", y="blue")
    informer.apply("ADDED", a, None)
    informer.apply("ADDED", b, None)
    assert informer.find(COLOUR, "red") == [a, b]
    changed = obj("a", x="green")
    informer.apply("MODIFIED", changed, a)
    assert informer.find(COLOUR, "red") == [b]
    assert informer.find(COLOUR, "green") == [changed]
    informer.apply("DELETED", b, b)
    assert informer.find(COLOUR, "red") == []
    assert informer.values(COLOUR) == ["green"]


def test_an_index_asked_for_late_knows_what_is_there():
    informer = Informer("things")
    informer.apply("ADDED", obj("a", x="red"), None)
    informer.add_index(COLOUR)
    assert informer.count(COLOUR, "red") == 1


def test_handlers_see_the_view_already_changed_and_the_state_before():
    informer = Informer("things")
    seen = []
    informer.add_handler(lambda kind, new, old: seen.append((kind, informer.get("n/a"), old)))
    first, second = obj("a", x="1"), obj("a", x="2")
    informer.apply("ADDED", first, None)
    informer.apply("MODIFIED", second, first)
    informer.apply("DELETED", second, second)
    assert seen == [("ADDED", first, None), ("MODIFIED", second, first), ("DELETED", None, second)]


def test_a_factory_hands_out_one_view_per_resource_and_starts_late_ones_at_once(clock):
    api = build_api(clock)
    factory = InformerFactory(api)
    assert factory.informer("namespaces") is factory.informer("namespaces")
    assert len(factory.informer("namespaces")) == 0
    factory.start()
    assert len(factory.informer("namespaces")) == 4
    assert len(factory.informer("priorityclasses.scheduling.k8s.io")) == 2
    factory.stop()
    api.create("namespaces", {"metadata": {"name": "late"}})
    assert len(factory.informer("namespaces")) == 4


# -- the cast -------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_cluster_to_the_last_byte(make_world):
    def story(seed):
        world = make_world(5, seed=seed)
        world.deployment(replicas=4)
        world.workload("statefulsets.apps", "db", labels={"app": "db"}, replicas=2)
        world.workload("daemonsets.apps", "log", labels={"app": "log"})
        world.run(7.3)
        world.delete("pods", world.pods()[0]["metadata"]["name"])
        world.patch("deployments.apps", "web", {"spec": {"replicas": 2}})
        world.run(60)
        return {
            resource.key: world.list(resource)
            for resource in world.registry.catalog
            if resource.is_stored
        }

    assert story(11) == story(11)
    assert story(11) != story(12)


def test_controllers_can_be_left_out(make_world):
    world = make_world(1, disabled=frozenset({"deployment", "kubelet-pods"}))
    world.deployment(replicas=1)
    world.workload("replicasets.apps", "rs", labels={"app": "rs"}, replicas=1)
    world.run(10)
    assert len(world.list("replicasets.apps")) == 1
    assert world.pods()[0]["status"]["phase"] == "Pending"
    with pytest.raises(KeyError):
        world.cast["deployment"]


def test_a_misspelt_controller_is_refused():
    with pytest.raises(ValueError, match=r"no such controller: deploymnt; known: .*deployment"):
        ControllerOptions(disabled=frozenset({"deploymnt"}))


def test_names_are_unique():
    assert len(set(CONTROLLER_NAMES)) == len(CONTROLLER_NAMES)


def test_an_idle_cluster_writes_nothing_but_heartbeats(make_world):
    world = make_world(3)
    world.deployment(replicas=3)
    world.workload("statefulsets.apps", "db", labels={"app": "db"}, replicas=2)
    world.workload("daemonsets.apps", "log", labels={"app": "log"})
    world.run(60)
    before = {
        resource.key: [each["metadata"]["resourceVersion"] for each in world.list(resource)]
        for resource in world.registry.catalog
        if resource.is_stored and "leases" not in resource.key
    }
    world.run(1800)
    after = {
        key: [each["metadata"]["resourceVersion"] for each in world.list(key)] for key in before
    }
    assert after == before


def test_every_controller_runs_that_has_something_to_do(world):
    # without drivers to play, and without the kind
    absent = ("csi-publisher", "provisioner", "device-publisher", "podgroup-protection")
    for name in CONTROLLER_NAMES:
        if name in absent:
            with pytest.raises(KeyError):
                world.cast[name]
        else:
            assert world.cast[name].name == name
    assert any(event["source"]["component"] == "kubelet" for event in world.list("events"))


async def test_the_cast_runs_in_tasks_of_its_own_until_stopped():
    clock = SystemClock()
    api = build_api(clock)
    cast = start_all(
        api, clock, random.Random(1), ControllerOptions(kubelet=KubeletOptions(nodes=2))
    )
    labels = {"app": "web"}
    made = asyncio.Event()
    api.subscribe("pods", lambda kind, pod, old: made.set())
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        running = group.create_task(cast.run())
        api.create(
            "deployments.apps",
            {
                "metadata": {"name": "web"},
                "spec": {
                    "selector": {"matchLabels": labels},
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {"containers": [{"name": "c", "image": "i"}]},
                    },
                },
            },
            "default",
        )
        await made.wait()
        cast.stop()
        await running
    assert api.registry.store.collection("deployments.apps").subscribers == []


async def test_cancelling_the_cast_ends_every_task():
    clock = SystemClock()
    cast = start_all(build_api(clock), clock, random.Random(1))
    running = asyncio.create_task(cast.run())
    await asyncio.sleep(0)
    before = len(asyncio.all_tasks())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert before > len(CONTROLLER_NAMES) - 5
    assert asyncio.all_tasks() == {asyncio.current_task()}
