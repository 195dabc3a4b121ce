"""Proves which pods count as nominated to which node, and what is handed out about them."""

from __future__ import annotations

import pytest

from kubesched.config.references import REFERENCES
from kubesched.framework.events import Action, ClusterEvent, ClusterEventWithHint, Resource
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nominating_info import CLEAR_NOMINATION, KEEP_NOMINATION, NominatingInfo

TO_N1 = NominatingInfo(override=True, node_name="n1")
TO_N2 = NominatingInfo(override=True, node_name="n2")


def nominated(world):
    """node -> names, in order."""
    world.queue.nominator.check_invariants()
    return {
        node: [ref.name for ref in refs]
        for node, refs in world.queue.nominator.references().items()
    }


@pytest.mark.parametrize(
    ("status", "info", "expected"),
    [
        pytest.param("", TO_N1, {"n1": ["a"]}, id="an override names the node"),
        pytest.param("n2", TO_N1, {"n1": ["a"]}, id="and wins over the status"),
        pytest.param(
            "n2", KEEP_NOMINATION, {"n2": ["a"]}, id="without override the status names it"
        ),
        pytest.param("n2", None, {"n2": ["a"]}, id="no information means no override"),
        pytest.param(
            "", KEEP_NOMINATION, {}, id="a pod without nomination in its status is not registered"
        ),
        pytest.param("n2", CLEAR_NOMINATION, {}, id="clearing registers nothing"),
    ],
)
def test_where_a_pod_is_nominated_to(world, status, info, expected):
    world.queue.nominator.add_nominated_pod(PodInfo(world.pod("a", nominated=status)), info)
    assert nominated(world) == expected


def test_a_pod_is_nominated_to_one_node_at_a_time(world):
    pod = PodInfo(world.pod("a"))
    world.queue.nominator.add_nominated_pod(pod, TO_N1)
    world.queue.nominator.add_nominated_pod(pod, TO_N2)
    assert nominated(world) == {"n2": ["a"]}
    assert list(world.queue.nominator.nominated_nodes()) == ["n2"]


def test_a_node_lists_its_pods_in_the_order_of_registration(world):
    for name in ("c", "a", "b"):
        world.queue.nominator.add_nominated_pod(PodInfo(world.pod(name)), TO_N1)
    world.queue.nominator.add_nominated_pod(PodInfo(world.pod("c")), TO_N1)
    assert nominated(world) == {"n1": ["a", "b", "c"]}


def test_a_pod_the_informer_no_longer_knows_is_not_nominated(world):
    pod = PodInfo(world.pod("a"))
    world.queue.nominator.add_nominated_pod(pod, TO_N1)
    world.known_pods.clear()
    world.queue.nominator.add_nominated_pod(pod, TO_N2)
    assert nominated(world) == {}


def test_a_pod_that_has_a_node_is_not_nominated(world):
    pod = PodInfo(world.pod("a"))
    world.pod("a", node_name="n7")
    world.queue.nominator.add_nominated_pod(pod, TO_N1)
    assert nominated(world) == {}


@pytest.mark.parametrize(
    ("old_status", "new_status", "before", "after"),
    [
        pytest.param(
            "",
            "",
            TO_N1,
            {"n1": ["a"]},
            id="an update without nomination keeps the one made in memory",
        ),
        pytest.param(
            "", "n2", TO_N1, {"n2": ["a"]}, id="a nomination that appears in the status wins"
        ),
        pytest.param("n1", "n2", TO_N1, {"n2": ["a"]}, id="a changed status wins"),
        pytest.param("n1", "", TO_N1, {}, id="a status that was cleared clears the nomination"),
        pytest.param("", "", None, {}, id="without any nomination there is none"),
    ],
)
def test_updates_of_a_nominated_pod(world, old_status, new_status, before, after):
    nominator = world.queue.nominator
    old = world.pod("a", nominated=old_status)
    if before is not None:
        nominator.add_nominated_pod(PodInfo(old), before)
    nominator.update_nominated_pod(old, PodInfo(world.pod("a", nominated=new_status)))
    assert nominated(world) == after


def test_an_update_to_another_pod_of_the_same_name_moves_the_nomination(world):
    nominator = world.queue.nominator
    old = world.pod("a", uid="first")
    nominator.add_nominated_pod(PodInfo(old), TO_N1)
    nominator.update_nominated_pod(old, PodInfo(world.pod("a", uid="second")))
    assert [ref.uid for ref in nominator.references()["n1"]] == ["second"]


def test_deleting_is_by_uid(world):
    pod = world.pod("a")
    world.queue.nominator.add_nominated_pod(PodInfo(pod), TO_N1)
    world.queue.nominator.delete_nominated_pod(world.pod("a", uid="someone-else"))
    assert nominated(world) == {"n1": ["a"]}
    world.queue.nominator.delete_nominated_pod(pod)
    world.queue.nominator.delete_nominated_pod(pod)
    assert nominated(world) == {}


def test_pods_are_resolved_in_every_queue_and_handed_out_as_copies(make_world):
    world = make_world(registered={"P": []})
    names = ("active", "pooled", "resting", "flying")
    world.reject("pooled", "P", priority=2)
    world.add("resting", priority=3)
    world.fail(world.pop("resting"))
    world.add("flying", priority=4)
    world.pop("flying")
    world.add("active", priority=1)
    for name in names:
        world.queue.nominator.add_nominated_pod(PodInfo(world.known_pods["shop", name]), TO_N1)
    result = world.queue.nominator.nominated_pods_for_node("n1")
    # A pod being tried is in no queue: what is handed out for it has no spec.
    assert [(pod.name, pod.uid, pod.priority) for pod in result] == [
        ("active", "uid-active", 1),
        ("pooled", "uid-pooled", 2),
        ("resting", "uid-resting", 3),
        ("flying", "uid-flying", 0),
    ]
    result[0].priority = 99
    assert world.info("active").pod_info.priority == 1
    assert world.queue.nominator.nominated_pods_for_node("n2") == []


def test_adding_a_nominated_pod_to_the_queue_registers_it(world):
    world.add("a", nominated="n1")
    assert nominated(world) == {"n1": ["a"]}


def test_deleting_a_pod_from_the_queue_unregisters_it(world):
    world.queue.delete(world.add("a", nominated="n1"))
    assert nominated(world) == {}


@pytest.mark.parametrize("place", ["active", "backoff", "unschedulable"])
def test_updates_in_every_queue_reach_the_nominator(make_world, place):
    world = make_world(registered={"P": []})
    pod = world.add("a")
    if place != "active":
        info = world.pop("a")
        if place == "backoff":
            world.queue.activate({"a": pod})
        world.fail(info, "P")
    assert world.where("a") == place
    newer = world.pod("a", nominated="n1")
    world.queue.update(pod, newer, [])
    assert nominated(world) == {"n1": ["a"]}
    assert world.where("a") == place


def test_updates_of_a_pod_in_flight_do_not_reach_the_nominator(world):
    pod = world.add("a")
    world.pop("a")
    world.queue.update(pod, world.pod("a", nominated="n1"), [])
    assert nominated(world) == {}


def test_a_general_update_that_frees_a_pod_registers_what_its_status_says(make_world):
    """1.36 registers again on the way into activeQ, which drops a nomination that only memory
    knew.
    """
    general = ClusterEvent(Resource.TARGET_POD, Action.UPDATE)
    own = ClusterEventWithHint(ClusterEvent(Resource.POD, Action.ALL))
    for version, kept in (("1.36", {}), ("1.37", {"n1": ["a"]})):
        reference = REFERENCES[version]
        world = make_world(registered={"P": [own]}, max_backoff_s=0, reference=reference)
        pod = world.reject("a", "P")
        world.queue.nominator.add_nominated_pod(PodInfo(pod), TO_N1)
        world.update(pod, general)
        assert world.where("a") == "active"
        assert nominated(world) == kept


def test_a_gated_pod_is_nominated_before_it_may_be_tried(make_world):
    for version, known in (("1.36", {}), ("1.37", {"n1": ["a"]})):
        world = make_world(reference=REFERENCES[version])
        world.close_gate("a")
        world.add("a", nominated="n1")
        assert world.where("a") == "gated"
        assert nominated(world) == known


def test_a_pod_whose_second_entry_is_dropped_is_in_no_queue(world):
    """It was replaced under its UID, as after a restore, while its attempt goes on."""
    pod = world.add("a", nominated="n1")
    world.pop("a")
    world.queue.delete(pod)
    world.add("a", nominated="n1")
    (known,) = world.queue.nominator.nominated_pods_for_node("n1")
    assert known.pod.spec.scheduler_name, "it waits to be tried, so its spec is known"
    assert world.queue.pop() is None
    (known,) = world.queue.nominator.nominated_pods_for_node("n1")
    assert not known.pod.spec.scheduler_name
    world.queue.nominator.check_invariants()
