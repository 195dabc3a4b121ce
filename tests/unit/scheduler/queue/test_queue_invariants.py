"""Proves that `check_invariants` notices the contradictions it promises to notice: each case breaks
one thing.
"""

from __future__ import annotations

import pytest

from kubesched.framework.events import (
    EVENT_NODE_ADD,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Resource,
)
from kubesched.scheduler.queue.announcements import ClassFailure

REGISTERED = {"Fit": [ClusterEventWithHint(ClusterEvent(Resource.NODE, Action.ALL))]}


def same_pod_in_two_places(queue):
    queue._pool.add_or_update(queue.get_pod("shop", "active"), "x")


def gated_pod_in_active(queue):
    queue.get_pod("shop", "active").gating_plugin = "GateA"


def rejector_changed_unnoticed(queue):
    queue.get_pod("shop", "pooled").unschedulable_plugins = {"Other"}


def class_changed_unnoticed(queue):
    queue.get_pod("shop", "parked").pod_info.class_key = b"other"


def rank_changed_in_place(queue):
    queue.get_pod("shop", "active").timestamp += 1


def expiry_changed_in_place(queue):
    queue.get_pod("shop", "broken").backoff_expiration += 1


def events_without_pods_in_flight(queue):
    queue._in_flight._positions.clear()


def pod_points_beyond_the_events(queue):
    queue._in_flight._positions["uid-flying"] = 99


def gauge_reads_something_else(queue):
    queue._metrics.pending_pods.labels("active").read_from(lambda: 42)


def nomination_in_one_index_only(queue):
    queue.nominator._node_by_uid["ghost"] = "n1"


@pytest.mark.parametrize(
    "damage",
    [
        same_pod_in_two_places,
        gated_pod_in_active,
        rejector_changed_unnoticed,
        class_changed_unnoticed,
        rank_changed_in_place,
        expiry_changed_in_place,
        events_without_pods_in_flight,
        pod_points_beyond_the_events,
        gauge_reads_something_else,
        nomination_in_one_index_only,
    ],
    ids=lambda damage: damage.__name__.replace("_", " "),
)
def test_damage_is_noticed(make_world, damage):
    world = make_world(registered=REGISTERED)
    world.add("broken")
    world.fail(world.pop("broken"))
    world.reject("pooled", "Fit")
    world.add("parked")
    info = world.pop("parked")
    info.pod_info.class_key, info.unschedulable_plugins = b"web", {"Fit"}
    failure = ClassFailure("does not fit", lambda _info: None)
    world.queue.add_unschedulable_if_not_present(info, failure)
    world.add("flying")
    world.pop("flying")
    world.move(EVENT_NODE_ADD, pre_check=lambda pod: False)
    world.add("active")
    world.queue.check_invariants()
    damage(world.queue)
    with pytest.raises(AssertionError):
        world.queue.check_invariants()
