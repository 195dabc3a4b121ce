"""A scheduler over a state decides as one that has watched the same objects."""

from __future__ import annotations

from kubesched.api.core_v1 import Pod
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.memory import in_memory_scheduler
from kubesched.scheduler.scheduler import QUEUE_EMPTY
from kubesched.scheduler.scheduling_cycle import Assumed
from kubesched.testing import make_node, make_pod


def state_of(*objects: object) -> ClusterState:
    state = ClusterState("test")
    for obj in objects:
        state.put(obj)
    return state


def test_placed_pods_count_and_pending_ones_are_in_the_queue() -> None:
    state = state_of(
        make_node("full").capacity(cpu="2").build(),
        make_node("free").capacity(cpu="2").build(),
        make_pod("placed").cpu("2").on("full").build(),
        make_pod("pending").cpu("1").build(),
    )
    scheduler = in_memory_scheduler(state).assembly.scheduler
    outcome = scheduler.attempt()
    assert isinstance(outcome, Assumed)
    assert outcome.node_name == "free"
    assert scheduler.attempt() is QUEUE_EMPTY


def test_listers_hold_every_object() -> None:
    filled = in_memory_scheduler(state_of(make_node("n").build(), make_pod("a").build()))
    assert [pod.metadata.name for pod in filled.listers.of(Pod).list()] == ["a"]


def test_objects_that_the_scheduler_refuses_are_named_and_left_out() -> None:
    bad = make_node("bad").capacity(cpu="many").build()
    filled = in_memory_scheduler(state_of(bad, make_node("good").build()))
    assert len(filled.problems) == 1
    assert filled.problems[0].startswith("Node bad: ")
    assert filled.assembly.scheduler.cache.node_count == 1
