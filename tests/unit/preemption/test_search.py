"""A search among many nodes leaves turns of the event loop to others, and finds the same."""

from __future__ import annotations

import asyncio
import inspect
from random import Random

import numpy as np
import pytest

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.preemption import search
from kubesched.preemption.search import Pace, finished, portions
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.pods import PodInfo


@pytest.mark.parametrize("seed", range(20))
def test_portions_are_the_rows_in_order_and_none_is_much_too_large(seed, monkeypatch):
    rng = Random(seed)
    monkeypatch.setattr(search, "PORTION", rng.choice([1, 4, 50]))
    table = NodeTable(64)
    for row in range(64):
        table.pod_count.cells[row] = rng.choice([0, 0, 1, 7])
    rows = np.array(rng.sample(range(64), rng.choice([0, 1, 5, 40])), dtype=np.intp)
    seen, total = [], 0
    for start, end, work in portions(table, rows):
        assert work == sum([table.pod_count.cells[row] + 1 for row in rows[start:end].tolist()])
        assert work < search.PORTION + 8
        seen += rows[start:end].tolist()
        total += work
    assert seen == rows.tolist()
    assert total == sum([table.pod_count.cells[row] + 1 for row in rows.tolist()])


def test_a_pace_is_spent_when_a_further_portion_would_be_too_much():
    pace = Pace()
    pace.spend(search.PORTION // 2 - 1)
    assert not pace.is_spent()
    pace.spend(1)
    assert pace.is_spent()
    assert not pace.is_spent()


def full_world(make_world, kept_priority):
    world = make_world()
    for number in range(6):
        world.node(f"n{number}", "2")
        world.on(f"n{number}", f"low-{number}", hour=1, priority=number)
        world.on(f"n{number}", f"other-{number}", hour=2, priority=kept_priority)
    return world


@pytest.mark.parametrize(
    ("cpu", "kept_priority"),
    [("2", 7), ("1", 7), ("2", 100)],
    ids=["two victims", "one victim", "no candidate"],
)
async def test_a_suspended_preemption_gives_the_same_answer(
    make_world, monkeypatch, cpu, kept_priority
):
    def ask():
        world = full_world(make_world, kept_priority)
        pod = world.pending("p", cpu=cpu, priority=50).build()
        world.listers.of(Pod).put(pod)
        state, statuses = world.fail(pod)
        return world, world.plugin.post_filter(state, pod, statuses)

    world, expected = ask()
    assert not inspect.isawaitable(expected)
    monkeypatch.setattr(search, "PORTION", 3)
    suspended_world, answer = ask()
    assert not suspended_world.spawned, "nothing is evicted before all nodes were looked at"
    turns = 0

    async def count_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    result, status = await answer
    counting.cancel()
    assert (result, status and status.message) == (expected[0], expected[1] and expected[1].message)
    assert len(suspended_world.spawned) == len(world.spawned)
    assert turns >= 5


@pytest.mark.parametrize(
    ("is_kept", "portions_done"),
    [(False, 6), (True, 1)],  # without kept verdicts all nodes are screened once before the dry run
    ids=["dry run", "kept verdicts"],
)
def test_what_changes_while_a_search_is_suspended_is_looked_at_again(
    make_world, monkeypatch, is_kept, portions_done
):
    """A node that was hopeless becomes a candidate when it has been looked at; nothing else happens afterwards."""
    monkeypatch.setattr(search, "PORTION", 3)
    monkeypatch.setattr("kubesched.preemption.evaluator.visiting_order", lambda rows, _random: rows)
    world, memo = make_world(), {}
    kept = []
    for number in range(6):
        world.node(f"n{number}", "2")
        world.on(f"n{number}", f"low-{number}", priority=0)
        kept.append(world.on(f"n{number}", f"kept-{number}", priority=100))

    def candidates():
        pod = world.pending("p", cpu="2", priority=50).build()
        state = CycleState()
        state.class_memo = memo
        outcome = world.algorithm.schedule(world.framework, state, PodInfo(pod))
        statuses = outcome.error.diagnosis.node_to_status
        return world.plugin.evaluator._find_candidates(state, pod, statuses, is_current=True)

    if is_kept:
        assert isinstance(finished(candidates()), tuple)
        for number in (0, 1):
            world.on(f"n{number}", f"late-{number}", cpu="0", priority=100)
    suspended = candidates()
    for _ in range(portions_done):
        next(suspended)
    world.cache.remove_pod(kept[0])
    assert isinstance(finished(suspended), tuple), "the node has been looked at"
    assert not isinstance(finished(candidates()), tuple)
