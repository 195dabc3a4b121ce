"""A search among many nodes leaves turns of the event loop to others, and finds the same."""

from __future__ import annotations

import asyncio
import inspect
from random import Random

import numpy as np
import pytest

from kubesched.api.core_v1 import Pod
from kubesched.preemption import search
from kubesched.preemption.search import Pace, portions
from kubesched.snapshot.node_table import NodeTable


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
