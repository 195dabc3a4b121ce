"""A backlog of equal pods through the whole scheduler: one is tried for all, and all are told what
it met with.
"""

from __future__ import annotations

from kubesched.testing import Cluster, make_node, make_pod

COUNT = 12


def waiting(number):
    return make_pod(f"waiting-{number}").uid(f"waiting-{number}").cpu("2").label("app", "web")


def attempts(world):
    """Attempts that ended without a node, as the metric counts them."""
    cells = world.assembly.scheduler.metrics.schedule_attempts_total.cells()
    return sum(int(cell.value) for (result, _), cell in cells.items() if result == "unschedulable")


def tried(world):
    return world.assembly.scheduler.decisions.count


def full_cluster(world, pods=COUNT):
    world.add(make_node("n1").capacity(cpu="4", memory="8Gi").build())
    for part in range(2):
        world.add(make_pod(f"old-{part}").uid(f"old-{part}").cpu("2").on("n1").build())
    for number in range(pods):
        world.add(waiting(number).build())
    world.settle()
    world.advance(60)


def test_a_pod_that_ends_makes_room_for_the_first_pod_and_one_attempt_for_the_others():
    with Cluster() as world:
        full_cluster(world)
        assert (tried(world), attempts(world)) == (COUNT, COUNT)
        world.delete(world.pod("old-0"))
        world.settle()
        assert world.client.bindings == {"default/waiting-0": "n1"}
        assert tried(world) == COUNT + 2  # the one that fits and the next
        assert attempts(world) == 2 * COUNT - 1
        queue = world.assembly.scheduler.queue
        assert {queue.get_pod("default", f"waiting-{n}").attempts for n in range(1, COUNT)} == {2}


def test_a_failure_that_repeats_counts_as_any_other():
    with Cluster() as world:
        full_cluster(world)
        metrics = world.assembly.scheduler.metrics
        failed = tried(world)
        for number in range(4):
            world.add(make_pod(f"new-{number}").uid(f"new-{number}").on("n1").build())
            world.delete(world.pod(f"new-{number}"))
            world.settle()
            world.advance(20)
            failed += 1
            assert tried(world) == failed
            assert attempts(world) == COUNT * (number + 2)
            assert metrics.preemption_attempts_total.value == failed
        newest = world.assembly.scheduler.decisions.newest()[0]
        assert (newest.name, newest.attempt, newest.queue) == ("waiting-0", 5, "unschedulable")
        assert newest.message == world.condition("waiting-0")[1]


def test_every_pod_is_told_when_the_reason_changes():
    with Cluster() as world:
        full_cluster(world)
        before = world.condition("waiting-5")
        world.add(make_node("n2").capacity(cpu="2", memory="8Gi").taint("k", "v").build())
        world.settle()
        world.update(make_node("n2").capacity(cpu="3", memory="8Gi").taint("k", "v").build())
        world.advance(1)
        world.advance(301)
        conditions = {world.condition(f"waiting-{number}") for number in range(COUNT)}
        assert conditions == {world.condition("waiting-0")}
        assert before not in conditions
        assert "untolerated taint" in world.condition("waiting-0")[1]


def test_room_for_all_places_all_in_their_order():
    with Cluster() as world:
        full_cluster(world)
        world.add(make_node("large").capacity(cpu="64", memory="64Gi").build())
        world.settle()
        assert list(world.client.bindings) == [f"default/waiting-{n}" for n in range(COUNT)]


def test_pods_of_different_apps_take_turns():
    with Cluster() as world:
        full_cluster(world, pods=0)
        for number in range(6):
            world.add(waiting(number).label("app", f"app-{number % 2}").build())
            world.advance(0.01)
        world.advance(60)
        for old in ("old-0", "old-1"):
            world.delete(world.pod(old))
            world.advance(20)
        assert list(world.client.bindings) == ["default/waiting-0", "default/waiting-1"]
