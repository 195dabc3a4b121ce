"""Claims in the lister, assumed and in flight: which version counts, and that every device is
counted right.
"""

from copy import deepcopy

import pytest
from dra_objects import allocation, claim
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert, structs

from kubesched.api.resource_v1 import AllocationResult
from kubesched.insight.state.memory import MemoryLister
from kubesched.plugins.dynamic_resources.claim_tracker import ClaimTracker
from kubesched.plugins.dynamic_resources.structured.allocated_state import AllocatedState, DeviceID


def at(name, revision, *devices, uid=None, **fields):
    status = {"allocation": allocation(*(("r", "pool", each) for each in devices))}
    made = claim(name, uid=uid, status=status if devices else {}, **fields)
    return structs.replace(
        made, metadata=structs.replace(made.metadata, resource_version=str(revision))
    )


def result(*devices):
    return convert(allocation(*(("r", "pool", each) for each in devices)), AllocationResult)


def device(name):
    return DeviceID("gpu.example.com", "pool", name)


@pytest.fixture
def lister():
    return MemoryLister()


@pytest.fixture
def tracker(lister):
    return ClaimTracker(lister)


def taken(tracker):
    return {each.device for each in tracker.allocated.exclusive}


def test_claims_that_are_there_at_the_start_count(lister):
    lister.put(at("a", 1, "d1"))
    assert taken(ClaimTracker(lister)) == {"d1"}


def test_devices_follow_the_watch(lister, tracker):
    lister.put(at("a", 1))
    assert taken(tracker) == set()
    lister.put(at("a", 2, "d1"))
    assert taken(tracker) == {"d1"}
    lister.put(at("a", 3))
    assert taken(tracker) == set()
    lister.put(at("a", 4, "d2"))
    lister.remove("default", "a")
    assert taken(tracker) == set()


def test_a_claim_that_was_allocated_anew_unseen_counts_as_it_is(lister, tracker):
    """Another scheduler deallocated it and allocated other devices while the watch was broken."""
    lister.put(at("a", 1, "d1"))
    assert taken(tracker) == {"d1"}
    lister.put(at("a", 3, "d2"))
    assert taken(tracker) == {"d2"}
    lister.put(at("a", 4))
    assert taken(tracker) == set()


def test_a_claim_of_the_same_name_is_another_one(lister, tracker):
    lister.put(at("a", 1, "d1", uid="first"))
    lister.put(at("a", 2, "d2", uid="second"))
    assert taken(tracker) == {"d2"}


def test_what_was_written_counts_until_the_watch_is_as_new(lister, tracker):
    lister.put(at("a", 1))
    assert tracker.assume(at("a", 3, "d1"))
    assert taken(tracker) == {"d1"}
    lister.put(at("a", 2))
    assert tracker.get("default", "a").metadata.resource_version == "3"
    assert taken(tracker) == {"d1"}
    lister.put(at("a", 4))
    assert tracker.get("default", "a").metadata.resource_version == "4"
    assert taken(tracker) == set()


def test_an_older_answer_that_comes_late_does_not_replace_a_newer_one(lister, tracker):
    lister.put(at("a", 1, "d1"))
    assert tracker.assume(at("a", 3))
    assert tracker.assume(at("a", 2, "d1")), "the claim is known, at a later revision"
    assert tracker.get("default", "a").metadata.resource_version == "3"
    assert taken(tracker) == set()
    assert tracker.assume(at("a", 4, "d2"))
    assert taken(tracker) == {"d2"}


def test_nothing_is_assumed_of_claims_the_watch_does_not_know(lister, tracker):
    assert not tracker.assume(at("a", 1, "d1"))
    lister.put(at("a", 1, uid="other"))
    assert not tracker.assume(at("a", 2, "d1"))
    assert taken(tracker) == set()


def test_an_assumption_ends_with_the_claim_and_can_be_taken_back(lister, tracker):
    lister.put(at("a", 1))
    tracker.assume(at("a", 2, "d1"))
    tracker.restore("default/a")
    assert taken(tracker) == set()
    tracker.assume(at("a", 2, "d1"))
    lister.remove("default", "a")
    assert taken(tracker) == set()
    assert tracker.get("default", "a") is None


def test_in_flight_devices_are_taken_until_they_are_written_or_given_up(lister, tracker):
    lister.put(at("a", 1))
    tracker.add_in_flight("uid-a", result("d1"), "pod")
    assert tracker.is_in_flight("uid-a")
    assert taken(tracker) == {"d1"}
    assert tracker.remove_in_flight("uid-a", "pod")
    assert not tracker.remove_in_flight("uid-a", "pod")
    assert taken(tracker) == set()


def test_members_of_a_trial_share_an_allocation_until_the_last_lets_go(lister, tracker):
    lister.put(at("a", 1))
    trial = object()
    tracker.add_in_flight("uid-a", result("d1"), "p1", trial)
    assert tracker.shared_by(trial, "uid-a") == result("d1")
    assert tracker.shared_by(object(), "uid-a") is None
    assert tracker.shared_by(None, "uid-a") is None
    tracker.add_in_flight("uid-a", result("d1"), "p2", trial)
    assert tracker.is_written(at("a", 2, "d1"), result("d1"))
    assert not tracker.is_written(at("a", 2, "d2"), result("d1"))
    assert not tracker.remove_in_flight("uid-a", "p1")
    assert not tracker.remove_in_flight("uid-a", "p1"), "once only"
    assert taken(tracker) == {"d1"}
    assert tracker.remove_in_flight("uid-a", "p2")
    assert taken(tracker) == set()


def test_an_allocation_of_one_pod_is_not_shared(lister, tracker):
    tracker.add_in_flight("uid-a", result("d1"), "p1")
    tracker.add_in_flight("uid-a", result("d1"), "p1")
    assert tracker.shared_by(None, "uid-a") is None
    assert not tracker.is_written(at("a", 2, "d1"), result("d1"))


def test_the_watch_may_be_faster_than_the_answer_to_the_write(lister, tracker):
    lister.put(at("a", 1))
    tracker.add_in_flight("uid-a", result("d1"), "pod")
    lister.put(at("a", 2, "d1"))
    assert tracker.allocated.exclusive == {device("d1"): 1}
    assert not tracker.remove_in_flight("uid-a", "pod")
    assert tracker.allocated.exclusive == {device("d1"): 1}


def test_what_is_in_flight_stays_taken_when_the_claim_loses_it_before_the_write_is_answered(
    lister, tracker
):
    lister.put(at("a", 1))
    tracker.add_in_flight("uid-a", result("d1"), "pod")
    lister.put(at("a", 2, "d1"))
    lister.put(at("a", 3))
    assert tracker.is_in_flight("uid-a")
    assert tracker.allocated.exclusive == {device("d1"): 1}
    lister.put(at("a", 4, "d2"))
    assert taken(tracker) == {"d1", "d2"}, "another one than what is in flight"
    assert tracker.remove_in_flight("uid-a", "pod")
    assert taken(tracker) == {"d2"}


def test_a_share_that_is_in_flight_and_shown_consumes_once(lister, tracker):
    share = allocation(("r", "pool", "d", {"shareID": "1", "consumedCapacity": {"mem": "1"}}))
    lister.put(claim("a"))
    tracker.add_in_flight("uid-a", convert(share, AllocationResult), "pod")
    once = deepcopy(tracker.allocated.capacity)
    lister.put(claim("a", status={"allocation": share}))
    assert tracker.allocated.capacity == once
    assert tracker.allocated.shares == {device("d"): 1}
    lister.put(claim("a"))
    assert tracker.allocated.capacity == once
    tracker.remove_in_flight("uid-a", "pod")
    assert not tracker.allocated.capacity


def test_without_consumable_capacity_a_share_takes_the_device(lister):
    tracker = ClaimTracker(lister, consumable_capacity=False)
    share = {"shareID": "1", "consumedCapacity": {"mem": "1"}}
    lister.put(claim("a", status={"allocation": allocation(("r", "pool", "d", share))}))
    assert taken(tracker) == {"d"}
    assert not tracker.allocated.capacity


def test_the_special_claim_is_found_by_its_pod(lister, tracker):
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    annotation = {"resource.kubernetes.io/extended-resource-claim": "true"}
    special = claim("s", meta={"ownerReferences": [owner], "annotations": annotation})
    lister.put(special)
    assert tracker.special_claim_of("u", "p") is special
    assert tracker.special_claim_of("u", "other") is None
    lister.remove("default", "s")
    assert tracker.special_claim_of("u", "p") is None


def test_changes_wake_those_who_wait(lister, tracker):
    with tracker.signals.watching(["default/a"]) as changed:
        lister.put(at("b", 1))
        assert not changed.is_set()
        lister.put(at("a", 1))
        assert changed.is_set()


# -- counted right after any history ---------------------------------------------------------------

names = st.sampled_from(["a", "b"])
devices = st.lists(st.sampled_from(["d1", "d2", "d3"]), max_size=2, unique=True)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("watch"), names, devices),
        st.tuples(st.just("gone"), names, devices),
        st.tuples(st.just("assume"), names, devices),
        st.tuples(st.just("restore"), names, devices),
        st.tuples(st.just("fly"), names, devices),
        st.tuples(st.just("land"), names, devices),
    ),
    max_size=30,
)


@given(steps)
def test_every_history_counts_what_a_fresh_look_would(history):
    lister = MemoryLister()
    tracker = ClaimTracker(lister)
    flying = {}
    revision = 10

    def check():
        counted = [counted for _uid, counted in tracker._counted.values()]
        held = AllocatedState()
        for each in [*flying.values(), *counted]:
            held.add(each)
        # What is in flight and shown may count once or twice, but never not at all.
        assert tracker.allocated.exclusive.keys() == held.exclusive.keys()
        assert all(tracker.is_in_flight(each) for each in flying)
        for each in ("a", "b"):
            known = tracker.get("default", each)
            has_allocation = known is not None and known.status.allocation is not None
            assert (f"default/{each}" in tracker._counted) is has_allocation

    for action, name, chosen in history:
        revision += 1
        uid = f"uid-{name}"
        if action == "watch":
            lister.put(at(name, revision, *chosen))
        elif action == "gone":
            lister.remove("default", name) if lister.get("default", name) else None
        elif action == "assume":
            tracker.assume(at(name, revision, *chosen))
        elif action == "restore":
            tracker.restore(f"default/{name}")
        elif action == "fly" and chosen:
            flying.setdefault(uid, result(*chosen))
            tracker.add_in_flight(uid, flying[uid], "pod")
        elif action == "land":
            tracker.remove_in_flight(uid, "pod")
            flying.pop(uid, None)
        check()
    for uid in list(flying):
        tracker.remove_in_flight(uid, "pod")
        del flying[uid]
        check()
    landed = AllocatedState()
    for _uid, counted in tracker._counted.values():
        landed.add(counted)
    assert tracker.allocated.exclusive == landed.exclusive
