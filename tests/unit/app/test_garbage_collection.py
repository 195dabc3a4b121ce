"""The collector in a process with many objects that live long."""

import gc
import weakref

import pytest

from kubesched.app import garbage_collection
from kubesched.app.garbage_collection import GarbageCollection


class Link:
    """One end of a cycle."""

    def __init__(self):
        self.other = None


def cycle():
    one, other = Link(), Link()
    one.other, other.other = other, one
    return one


@pytest.fixture
def collection():
    before = gc.get_threshold(), list(gc.callbacks)
    with GarbageCollection() as made:
        yield made
    assert (gc.get_threshold(), list(gc.callbacks)) == before
    assert gc.get_freeze_count() == 0


def test_objects_that_live_long_are_not_traversed_again(collection):
    full = gc.get_stats()[2]["collections"]
    kept = [[number] for number in range(200_000)]
    assert gc.get_stats()[2]["collections"] == full
    assert len(gc.get_objects(generation=2)) < 10_000, "survivors wait for a full collection"
    assert len(kept) == 200_000


def test_a_young_cycle_is_collected(collection):
    gone = weakref.ref(cycle())
    kept = [[number] for number in range(10_000)]
    assert gone() is None
    assert len(kept) == 10_000


def test_an_old_cycle_is_collected_once_the_process_has_grown(collection, monkeypatch):
    monkeypatch.setattr(garbage_collection, "FULL_AFTER", 300_000)
    collection._frozen_before = 0
    link = cycle()
    kept = [[number] for number in range(200_000)]  # the cycle is frozen by now
    gone = weakref.ref(link)
    del link
    gc.collect(1)
    collection.collect_if_due()
    assert gone() is not None, "too few objects were made since"
    kept += [[number] for number in range(200_000)]
    collection.collect_if_due()
    assert gone() is None
    assert len(kept) == 400_000
