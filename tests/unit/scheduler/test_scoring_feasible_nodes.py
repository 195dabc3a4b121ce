"""Feasible nodes given as a mask are scored as those given as rows; others do not count."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from frameworks import default_framework
from hypothesis import given, settings
from hypothesis import strategies as st
from random_clusters import random_node, random_pod

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import ScorePlugin
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns, PassingColumns
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.pre_filter import run_pre_filter
from kubesched.framework.runtime.score import run_score
from kubesched.scheduler.algorithm import SchedulingAlgorithm
from kubesched.testing import make_node, make_pod


def random_table(rng):
    """Nodes and pods, with a few rows between them that no node has any more."""
    table = NodeTable(4)
    names = [f"n{at}" for at in range(rng.randint(2, 14))]
    for name in names:
        table.set_node(random_node(rng, name).build())
    for at in range(rng.randrange(12)):
        table.add_pod(PodInfo(random_pod(rng, f"old-{at}").build()), rng.choice(names))
    for name in rng.sample(names, rng.randrange(len(names) // 2)):
        table.remove_node(name)
    table.refresh()
    return table


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_both_ways_give_the_same_scores_and_the_same_choice(seed):
    rng = Random(seed)
    table = random_table(rng)
    framework = default_framework(table)
    pod = random_pod(rng, "p").build()
    mask = table.alive[: table.high_water].copy()
    for row in np.flatnonzero(mask).tolist():
        mask[row] = rng.random() < 0.8
    if not mask.any():
        return
    algorithm = SchedulingAlgorithm(table, Random(0))

    def score(nodes):
        state = CycleState()
        run_pre_filter(framework, state, pod, NodeColumns(table))
        return algorithm.score(framework, state, pod, nodes)

    by_mask, by_rows = score(PassingColumns(table, mask)), score(np.flatnonzero(mask))
    assert by_mask.error is None
    assert by_mask.totals.tolist() == by_rows.totals.tolist()
    assert {name: column.tolist() for name, column in by_mask.by_plugin.items()} == {
        name: column.tolist() for name, column in by_rows.by_plugin.items()
    }
    assert by_mask.best_rows().tolist() == by_rows.best_rows().tolist()
    best = max(by_mask.totals)
    expected = [
        row
        for row, total in zip(np.flatnonzero(mask), by_mask.totals, strict=True)
        if total == best
    ]
    assert by_mask.best_rows().tolist() == expected


class Columns(ScorePlugin):
    """Says what it was told to say about each row."""

    name = "Columns"
    says: list[int]

    def score_nodes(self, state, pod, nodes):
        return np.array(self.says)[nodes.rows]


class OneByOne(ScorePlugin):
    """Notes which nodes it was asked about."""

    name = "OneByOne"

    def __init__(self, args, handle):
        super().__init__(args, handle)
        self.asked = []

    def score(self, state, pod, node_info):
        self.asked.append(node_info.node.metadata.name)
        return 7


def three_of_four(says):
    table = NodeTable()
    for at in range(4):
        table.set_node(make_node(f"n{at}").build())
    handle = Handle(table)
    columns, one_by_one = Columns(None, handle), OneByOne(None, handle)
    columns.says = says
    framework = Framework(handle, {"score": [columns, one_by_one]}, {"Columns": 2, "OneByOne": 1})
    feasible = PassingColumns(table, np.array([True, False, True, True]))
    outcome = run_score(framework, CycleState(), make_pod("p").build(), feasible)
    return outcome, one_by_one.asked


def test_what_is_said_of_a_node_that_is_not_feasible_does_not_count():
    outcome, _ = three_of_four([1, 1_000_000, 3, 3])
    assert outcome.error is None
    assert outcome.totals.tolist() == [9, 13, 13]
    assert outcome.best_rows().tolist() == [2, 3]


@pytest.mark.parametrize("score", [101, -1])
def test_a_feasible_node_with_a_score_out_of_range_fails_the_attempt(score):
    outcome, _ = three_of_four([1, -5, score, 3])
    assert f'plugin "Columns" returns an invalid score {score},' in outcome.error.message


def test_a_plugin_that_looks_at_one_node_at_a_time_is_asked_about_feasible_nodes_only():
    _, asked = three_of_four([1, 2, 3, 4])
    assert asked == ["n0", "n2", "n3"]


@pytest.mark.parametrize(
    ("percentage", "nodes", "expected"),
    [
        *((0, 99, 99), (0, 100, 100), (0, 250, 120), (0, 1000, 420), (0, 5000, 500)),
        *((0, 5624, 337), (0, 5625, 281), (0, 10_000, 500), (30, 1000, 300), (100, 1000, 1000)),
    ],
)
def test_the_search_ends_when_enough_nodes_are_feasible(percentage, nodes, expected):
    table = NodeTable()
    algorithm = SchedulingAlgorithm(
        table, Random(1), parallelism=1, percentage_of_nodes_to_score=percentage
    )
    assert algorithm.nodes_to_find(default_framework(table, Handle(table=table)), nodes) == expected
