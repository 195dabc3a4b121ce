"""The collector in a process with many objects that live long."""

import gc
import itertools
import weakref

import pytest

from kubesched.base.garbage_collection import MANY_S, MIDDLE, YOUNG, GarbageCollection
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.load import default_config
from kubesched.lab.benchmarking.core_cluster import CoreCluster
from kubesched.scheduler.scheduler import QueueEmpty
from kubesched.scheduler.scheduling_cycle import Assumed
from kubesched.testing import make_node, make_pod


class Link:
    """One end of a cycle."""

    def __init__(self):
        self.other = None


def cycle():
    one, other = Link(), Link()
    one.other, other.other = other, one
    return one


@pytest.fixture(autouse=True)
def frozen_again():
    """Freeze what a test thawed, or collections in later tests go through all that stays."""
    yield
    gc.freeze()


@pytest.fixture
def collection():
    before = gc.get_threshold(), list(gc.callbacks)
    with GarbageCollection(lambda: 0) as made:
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


def young_and_middle() -> int:
    return len(gc.get_objects(generation=0)) + len(gc.get_objects(generation=1))


def test_many_survivors_are_frozen_at_once():
    seconds = itertools.count()
    with GarbageCollection(lambda: 0, timer=lambda: float(next(seconds))):
        kept = [[number] for number in range(1_000)]
        gc.collect(0)
        assert young_and_middle() < 1_000
        assert len(kept) == 1_000


def test_a_cycle_among_few_survivors_is_found_later():
    now = 0.0

    def timer():
        nonlocal now
        now += MANY_S / 2
        return now

    with GarbageCollection(lambda: 0, timer=timer):
        link = cycle()
        gone = weakref.ref(link)
        gc.collect(0)
        del link
        assert gone() is not None, "it was alive"
        kept = [[number] for number in range((MIDDLE + 2) * (YOUNG + 1))]
        assert gone() is None
        assert young_and_middle() < MIDDLE * YOUNG, "what survived the middle generation is frozen"
        assert len(kept) > YOUNG


def test_an_old_cycle_is_collected_once_memory_has_doubled_for_no_reason():
    blocks, known = 5_000_000, 0

    def frozen_cycle():
        link = cycle()
        gc.collect(1)
        return weakref.ref(link)

    with GarbageCollection(lambda: known, lambda: blocks) as collection:
        gone = frozen_cycle()
        blocks *= 2
        collection.collect_if_due()
        assert gone() is not None, "it has not more than doubled"
        blocks += 1
        known = 1_000_000
        collection.collect_if_due()
        assert gone() is not None, "objects of the API explain it"
        known = 0
        collection.collect_if_due()
        assert gone() is None
        gone = frozen_cycle()
        collection.collect_if_due()
        assert gone() is not None, "it has not grown since"


@pytest.mark.slow
def test_pods_that_come_and_go_leave_no_cycles():
    """What a full collection would be for: it is made rarely, since there is nothing to find."""
    cluster = CoreCluster(default_config(), DEFAULT_GATES)
    for number in range(10):
        cluster.add(make_node(f"node-{number}").capacity(cpu="8", memory="8Gi").build())

    def churn(batch: int) -> None:
        pods = [make_pod(f"pod-{batch}-{n}").cpu("1").labels(app="web").build() for n in range(50)]
        for pod in pods:
            cluster.add(pod)
        while not isinstance(outcome := cluster.assembly.scheduler.attempt(), QueueEmpty):
            if isinstance(outcome, Assumed):
                cluster.loop.run(cluster.assembly.scheduler.binding.run(outcome))
        for pod in pods:
            cluster.delete(pod)

    churn(0)  # what is built on first use
    gc.collect()
    gc.disable()
    try:
        churn(1)
        assert gc.collect() < 50 * 4, "every pod leaves a cycle"
    finally:
        gc.enable()
