"""Events about the waiting pod itself, about other pods, and the names that each release gives
them.
"""

from __future__ import annotations

import pytest

from kubesched.config.references import REFERENCES
from kubesched.framework.events import Action, ClusterEvent, ClusterEventWithHint, Resource

LABEL = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
ASSIGNED_LABEL = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL)
SCALED_UP = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_UP)
OWN = {"Own": [ClusterEventWithHint(ClusterEvent(Resource.TARGET_POD, Action.UPDATE))]}
ANY = {"Any": [ClusterEventWithHint(ClusterEvent(Resource.POD, Action.ALL))]}


def test_a_change_of_one_pod_in_flight_does_not_help_another(make_world):
    """Although both attempts see the event, and the plugin has no hint that compares pods."""
    world = make_world(registered=OWN)
    pods = {name: world.add(name) for name in ("a", "b")}
    infos = {name: world.pop(name) for name in pods}
    world.update(pods["b"], LABEL)
    for name, place in (("a", "unschedulable"), ("b", "backoff")):
        world.fail(infos[name], "Own")
        assert world.where(name) == place


@pytest.mark.parametrize("version", REFERENCES)
def test_who_waits_for_its_own_change_is_not_helped_by_an_assigned_pod(make_world, version):
    world = make_world(registered=OWN, reference=REFERENCES[version])
    world.reject("a", "Own")
    world.add("b")
    world.pop("b")
    world.move(ASSIGNED_LABEL, world.pod("x", node_name="n"), world.pod("x", node_name="n"))
    assert world.where("a") == "unschedulable"
    # 1.36 looked at every update, and remembered it for pods in flight.
    assert world.queue._in_flight.event_count == (version == "1.36")


def test_a_registration_for_pods_covers_all_kinds_of_them(make_world):
    world = make_world(registered=ANY)
    world.move(SCALED_UP)
    for resource in (Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD, Resource.TARGET_POD):
        assert world.queue._hints.resolve(ClusterEvent(resource, Action.UPDATE)).is_of_interest


@pytest.mark.parametrize(
    ("version", "own", "other"),
    [("1.37", "TargetPod", "UnscheduledPod"), ("1.36", "UnschedulablePod", "UnschedulablePod")],
)
def test_labels_of_pods_without_a_node(make_world, version, own, other):
    world = make_world(registered=ANY, reference=REFERENCES[version], max_backoff_s=0)
    pod = world.reject("a", "Any")
    world.update(pod, LABEL)
    assert world.incoming() == {
        f"active/{other}Add": 1,
        "unschedulable/ScheduleAttemptFailure": 1,
        f"active/{own}UpdatePodLabel": 1,
    }
    deleted = ClusterEvent(Resource.UNSCHEDULED_POD, Action.DELETE)
    assert world.queue.label_of(deleted) == f"{other}Delete"
    assert world.queue.label_of(ASSIGNED_LABEL) == "AssignedPodUpdatePodLabel"
