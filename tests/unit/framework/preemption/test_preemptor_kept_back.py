"""A preemptor is not tried before its victims are going, and what helped it meanwhile is not
forgotten.
"""

from __future__ import annotations

import pytest

from kubesched.framework.events import Hint
from kubesched.framework.handle import Handle
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.insight.state.memory import MemoryListers
from kubesched.plugins.default_preemption import STILL_RUNNING, DefaultPreemption
from kubesched.testing.builders import make_node, make_pod

PREEMPTOR, OTHER, VICTIM = (make_pod(name).build() for name in ("preemptor", "other", "victim"))


@pytest.fixture
def plugin() -> DefaultPreemption:
    listers = MemoryListers()
    for pod in (PREEMPTOR, OTHER, VICTIM):
        listers.of(type(pod)).put(pod)
    return DefaultPreemption(None, Handle(table=NodeTable(), listers=listers))


def test_an_event_that_came_too_early_counts_when_the_next_victim_goes(
    plugin: DefaultPreemption,
) -> None:
    executor = plugin.evaluator.executor
    executor._preempting.add(PREEMPTOR.metadata.uid)
    assert plugin.pre_enqueue(PREEMPTOR) is STILL_RUNNING
    executor._preempting.clear()
    assert plugin.after_pod_deletion(PREEMPTOR, VICTIM, None) is Hint.QUEUE
    assert plugin.pre_enqueue(PREEMPTOR) is None
    assert plugin.after_pod_deletion(PREEMPTOR, VICTIM, None) is Hint.SKIP, "once is enough"


def test_without_such_an_event_others_decide(plugin: DefaultPreemption) -> None:
    plugin.evaluator.executor._preempting.add(PREEMPTOR.metadata.uid)
    plugin.pre_enqueue(PREEMPTOR)
    assert plugin.after_pod_deletion(OTHER, VICTIM, None) is Hint.SKIP


def test_pods_that_are_gone_are_not_remembered(plugin: DefaultPreemption) -> None:
    executor = plugin.evaluator.executor
    executor._preempting.add("gone")
    gone = make_pod("gone").uid("gone").build()
    assert executor.keeps_back(gone)
    executor._forget_the_gone()
    assert not executor.was_kept_back(gone)


async def test_a_victim_that_gave_up_its_place_before_its_deletion_is_seen_wakes_the_preemptor(
    world,
) -> None:
    """It was on its way to the node and never got there: no event will tell of its place any
    more.
    """
    world.add_node(make_node("n").capacity(cpu="1"))
    victim = world.on("n", "victim")

    async def delete(pod) -> None:
        world.cache.remove_pod(pod)
        preemptor = world.listers.of(type(pod)).get("default", "preemptor")
        assert world.plugin.pre_enqueue(preemptor) is STILL_RUNNING

    world.client.delete_pod = delete
    world.preempt(world.pending("preemptor"))
    await world.run_spawned()
    assert world.listers.of(type(victim)).get("default", "victim") is not None
    assert world.activations.activated == ["default/preemptor"]
