"""Proves that pods which wait with their class fare as if each of them had been tried.

The twin is the same queue without classes: every woken pod is tried. Both live through the same
random history in a world where pods of a class fit or fail alike, and must place the same pods in
the same order, with the same counts of attempts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from kubesched.framework.engine import reads
from kubesched.framework.events import Action, ClusterEvent, ClusterEventWithHint, Hint, Resource
from kubesched.scheduler.queue.announcements import SLICE, ClassFailure

ROOM = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
CLASSES = ["a", "a2", "b", "c"]  # of the same letter: of the same spec
PRIORITIES = {"a": 0, "a2": 0, "b": 0, "c": 5}


@reads("class")
def may_help(pod, old, new):
    return Hint.QUEUE if pod.metadata.labels["class"] in new else Hint.SKIP


@reads("spec")
def may_help_spec(pod, old, new):
    spec = pod.metadata.labels["class"][0]
    return Hint.QUEUE if any(kind[0] == spec for kind in new) else Hint.SKIP


def register():
    return {
        "Fit": [ClusterEventWithHint(ROOM, may_help_spec)],
        "Taint": [ClusterEventWithHint(TAINT, may_help)],
    }


@dataclass
class Side:
    """One of the two queues, and the room in its cluster."""

    world: object
    by_class: bool
    room: int = 0
    open_to: frozenset = frozenset()
    rejector: str = "Fit"
    placed: list = field(default_factory=list)
    attempts: int = 0
    settled: int = 0
    told: list = field(default_factory=list)

    def add(self, number, kind):
        self.world.add(f"p{number}", labels={"class": kind}, priority=PRIORITIES[kind])

    def tell(self, info):
        self.told.append(info.pod_info.name)

    def conclude(self, info):
        kind = info.pod_info.pod.metadata.labels["class"]
        self.attempts += 1
        if kind in self.open_to and self.room:
            self.room -= 1
            self.placed.append(info.pod_info.name)
            self.world.queue.assumed(info)
            self.world.queue.done(info.pod_info.uid)
            return
        info.unschedulable_plugins = {self.rejector}
        failure = None
        if self.by_class:
            info.pod_info.class_key = kind.encode()
            info.pod_info.shape_key = kind[:1].encode()
            failure = ClassFailure(self.rejector, self.tell)
        self.world.queue.add_unschedulable_if_not_present(info, failure)
        if failure is not None:
            self.settled += failure.settled

    def run(self):
        while (info := self.world.queue.pop()) is not None:
            self.world.advance(0.001)
            self.conclude(info)
            self.world.queue.check_invariants()

    def event(self, event, kinds, room, rejector):
        self.room, self.open_to, self.rejector = room, frozenset(kinds), rejector
        self.world.advance(0.001)  # an attempt that ended at the same instant would tie with it
        self.world.move(event, None, frozenset(kinds))
        self.world.queue.check_invariants()

    def entries(self):
        """What is known of every waiting pod; times differ, since trying takes time."""
        return {
            info.pod_info.name: (
                place,
                info.attempts,
                info.unschedulable_count,
                set(info.unschedulable_plugins),
            )
            for place, info, *_ in self.world.queue.entries()
        }

    def order(self):
        """The pods of each priority in the order in which they would be tried."""
        infos = [info for _place, info, *_ in self.world.queue.entries()]
        infos.sort(key=lambda info: (-(info.pod_info.pod.spec.priority or 0), info.timestamp))
        return [info.pod_info.name for info in infos]


kinds = st.sets(st.sampled_from(CLASSES), min_size=1).map(sorted)
steps = st.one_of(
    st.tuples(st.just("add"), st.lists(st.sampled_from(CLASSES), min_size=1, max_size=6)),
    st.tuples(st.just("event"), kinds, st.integers(0, 3), st.booleans()),
    st.tuples(st.just("delete"), st.integers(0, 30)),
    st.tuples(st.just("touch"), st.integers(0, 30)),
    st.tuples(st.just("activate"), st.integers(0, 30)),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 3.0, 400.0])),
)

# A pod that an event helps while it is tried goes behind the others in the twin; the head of a
# class stays its head. And a pod on its own that fails beside its class goes behind it.
overtaken = st.tuples(st.just("in flight"), kinds, kinds) | st.tuples(st.just("dissolve"))


def play(history, sides):
    count = 0
    for name, *arguments in history:
        if name == "add":
            for kind in arguments[0]:
                count += 1
                for side in sides:
                    side.add(count, kind)
        for side in sides:
            perform(side, name, arguments)
            side.run()
            side.world.queue.check_invariants()
        yield


def perform(side, name, arguments):
    world = side.world
    if name == "event":
        opened, room, taints = arguments
        side.event(TAINT if taints else ROOM, opened, room, "Taint" if taints else "Fit")
    elif name == "in flight":
        first, second = arguments
        side.event(ROOM, first, 0, "Fit")
        info = world.queue.pop()
        if info is not None:
            world.move(ROOM, None, frozenset(second))
            side.conclude(info)
    elif name == "dissolve":
        world.queue.dissolve_classes()
    elif name == "wait":
        world.advance(arguments[0])
        world.queue.run_timers()
    elif name != "add":
        change(world, name, f"p{arguments[0]}")


def change(world, name, pod_name):
    info = world.info(pod_name)
    if info is None:
        return
    pod = info.pod_info.pod
    if name == "delete":
        world.queue.delete(pod)
    elif name == "activate":
        world.queue.activate({pod_name: pod})
    else:
        status = structs.replace(pod.status, message="touched")
        newer = structs.replace(pod, status=status)
        world.known_pods["shop", pod_name] = newer
        world.queue.update(pod, newer, ())


@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(steps, max_size=12))
@example([("add", ["a", "b", "a", "b", "a"]), ("event", ["a", "b"], 2, False)] * 3)
@example([("add", ["a", "a", "a"]), ("delete", 1), ("wait", 400.0), ("wait", 400.0)])
@example([("add", ["a"]), ("event", ["a"], 0, True), ("add", ["a"]), ("wait", 400.0)])
@example([("add", ["a"]), ("event", ["a"], 0, False), ("add", ["b"]), ("wait", 400.0)])
def test_pods_are_placed_in_the_order_in_which_trying_all_would_place_them(make_world, history):
    sides = [Side(make_world(registered=register(), max_backoff_s=0), by) for by in (True, False)]
    ours, twin = sides
    for _ in play(history, sides):
        assert ours.placed == twin.placed
        assert ours.entries() == twin.entries()
        assert ours.order() == twin.order()
        assert ours.world.rejections() == twin.world.rejections()
        assert ours.world.incoming() == twin.world.incoming()
        assert ours.attempts + ours.settled == twin.attempts
        assert ours.attempts <= twin.attempts


def test_classes_that_are_woken_together_keep_the_order_in_which_they_were_tried_last(make_world):
    sides = [Side(make_world(registered=register(), max_backoff_s=0), by) for by in (True, False)]
    history = [("add", ["a", "a", "b", "b"])]
    history += [("event", kinds, 0, False) for kinds in (["a"], ["a", "b"], ["a", "b"])]
    history.append(("event", ["a", "b"], 3, False))
    for _ in play(history, sides):
        pass
    assert sides[0].placed == sides[1].placed == ["p3", "p4", "p1"]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(steps | overtaken, max_size=12))
@example([("add", ["a", "a", "a"]), ("in flight", ["a"], ["a"]), ("event", ["a"], 1, False)])
def test_no_pod_is_forgotten_while_backoffs_differ(make_world, history):
    sides = [Side(make_world(registered=register()), by_class) for by_class in (True, False)]
    ours, twin = sides
    for _ in play(history, sides):
        assert len(ours.placed) == len(twin.placed)
        assert len(ours.entries()) == len(twin.entries())
        assert ours.attempts <= twin.attempts


def parked(make_world, count, kind="a"):
    side = Side(make_world(registered=register(), max_backoff_s=0), by_class=True)
    for number in range(count):
        side.add(number, kind)
    side.run()
    return side


@pytest.mark.slow
def test_one_pod_is_tried_for_its_class(make_world):
    side = parked(make_world, 1000)
    side.attempts = 0
    side.event(ROOM, ["a"], 0, "Fit")
    side.run()
    assert (side.attempts, side.settled) == (1, 999)
    assert side.world.info("p999").attempts == 2


def test_pods_behind_the_head_wait_in_the_pool(make_world):
    side = parked(make_world, 3)
    side.event(ROOM, ["a"], 2, "Fit")
    assert [side.world.where(f"p{number}") for number in range(3)] == [
        "active",
        "unschedulable",
        "unschedulable",
    ]
    assert side.world.queue.is_behind_head("shop", "p2")
    side.run()
    assert side.placed == ["p0", "p1"]
    assert not side.world.queue.is_behind_head("shop", "p2")


def test_a_head_that_is_deleted_lets_the_next_pod_be_tried(make_world):
    side = parked(make_world, 3)
    side.event(ROOM, ["a"], 1, "Fit")
    side.world.queue.delete(side.world.known_pods["shop", "p0"])
    assert side.world.where("p1") == "active"


def test_a_head_that_fails_in_a_way_of_its_own_lets_the_next_pod_be_tried(make_world):
    side = parked(make_world, 3)
    side.event(ROOM, ["a"], 1, "Fit")
    side.world.fail(side.world.pop("p0"), "Fit")
    assert side.world.where("p1") == "active"


def test_a_head_whose_gate_closes_lets_the_next_pod_be_tried(make_world):
    side = parked(make_world, 3)
    side.world.close_gate("p0")
    side.event(ROOM, ["a"], 1, "Fit")
    assert [side.world.where(name) for name in ("p0", "p1", "p2")] == [
        "gated",
        "active",
        "unschedulable",
    ]


def test_a_pod_that_is_nominated_leaves_its_class(make_world):
    side = parked(make_world, 2)
    pod = side.world.known_pods["shop", "p1"]
    status = structs.replace(pod.status, nominated_node_name="n")
    side.world.queue.update(pod, structs.replace(pod, status=status), ())
    side.event(ROOM, ["a"], 0, "Fit")
    assert [side.world.where(name) for name in ("p0", "p1")] == ["active", "active"]


def test_a_class_that_is_dissolved_while_it_is_awake_wakes_all_its_pods(make_world):
    side = parked(make_world, 3)
    side.event(ROOM, ["a"], 1, "Fit")
    side.world.queue.dissolve_classes()
    assert {side.world.where(f"p{number}") for number in range(3)} == {"active"}


def test_pods_of_a_dissolved_class_are_flushed_in_the_order_of_arrival(make_world):
    """As in a queue made from a checkpoint. With other pods their time stamps may be equal."""
    side = Side(make_world(registered=register(), max_backoff_s=0), by_class=True)
    for number, kind in enumerate("aba"):
        side.add(number, kind)
    tried = [side.world.queue.pop() for _ in range(3)]
    for info in tried:
        side.by_class = info is not tried[1]
        side.conclude(info)
    saved = side.world.queue.save()
    side.world.queue.dissolve_classes()
    side.world.advance(400.0)
    side.world.queue.run_timers()
    flushed = [side.world.queue.pop() for _ in range(3)]
    assert [info.pod_info.key for info in flushed] == [pod.key for pod in saved.unschedulable]
    assert flushed == tried


def test_a_new_reason_is_told_to_the_pods_that_were_not_tried(make_world):
    side = parked(make_world, SLICE + 50)
    side.event(ROOM, ["a"], 0, "Taint")
    side.run()
    assert side.told == []
    assert side.world.queue.next_deadline() <= side.world.clock.monotonic()
    side.world.queue.run_timers()
    assert len(side.told) == SLICE
    side.world.queue.run_timers()
    assert side.told == [f"p{number}" for number in range(1, SLICE + 50)]
    assert side.world.queue.next_deadline() > side.world.clock.monotonic()


def test_an_old_reason_is_not_told_again(make_world):
    side = parked(make_world, 10)
    side.event(ROOM, ["a"], 0, "Fit")
    side.run()
    side.world.queue.run_timers()
    assert side.told == []


@pytest.mark.parametrize("by_class", [True, False])
def test_a_pod_that_is_touched_stays_in_its_place(make_world, by_class):
    side = Side(make_world(registered=register(), max_backoff_s=0), by_class)
    for number in range(3):
        side.add(number, "a")
    side.run()
    change(side.world, "touch", "p0")
    side.event(ROOM, ["a"], 1, "Fit")
    side.run()
    assert side.placed == ["p0"]


def test_a_head_takes_its_place_behind_older_pods_of_another_class(make_world):
    """Two classes become one while the head of the younger is tried."""
    side = Side(make_world(registered=register(), max_backoff_s=0), by_class=True)
    queue = side.world.queue
    side.add(0, "a")
    side.conclude(queue.pop())
    side.rejector = "Taint"
    side.add(1, "a")
    side.conclude(queue.pop())
    for event in (TAINT, ROOM):
        side.world.move(event, None, frozenset("a"))
    tried = {info.pod_info.name: info for info in (queue.pop(), queue.pop())}
    side.conclude(tried["p0"])
    side.conclude(tried["p1"])
    queue.check_invariants()
    assert [info.pod_info.name for _place, info, *_ in queue.entries()] == ["p0", "p1"]
