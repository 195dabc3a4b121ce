"""A basis holds while each premise has the value it had, and names every row that has changed
since.
"""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest

from kubesched.framework.basis import Basis
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.rules import Rule, Scope
from kubesched.testing import make_node, make_pod


@pytest.mark.parametrize("seed", range(30))
def test_it_holds_while_every_premise_has_its_value(seed):
    rng, table, values = Random(seed), NodeTable(), [0] * 4
    rules = [Rule(Scope.NODE, premise=lambda at=at: values[at]) for at in range(4)]
    made = []
    for _ in range(60):
        if rng.random() < 0.3:
            read = rng.sample(range(4), rng.randint(0, 3))
            chosen = [Rule(), Rule(Scope.NODE, premise=None), None, *[rules[at] for at in read]]
            made.append((Basis(table, chosen), {at: values[at] for at in read}))
        if rng.random() < 0.5:
            values[rng.randrange(4)] = rng.randrange(2)
        for basis, had in made:
            assert basis.holds() == all(values[at] == value for at, value in had.items())


def test_a_table_with_another_layout_ends_it():
    table = NodeTable()
    basis = Basis(table, [])
    assert basis.holds()
    table.epoch += 1
    assert not basis.holds()


def test_rows_that_changed_are_dirty_until_it_is_settled():
    table = NodeTable()
    for name in ("a", "b", "c"):
        table.set_node(make_node(name).build())
    nominator = SimpleNamespace(version=1, changes_since=lambda version: ["c", "gone"])
    basis = Basis(table, [], nominator=nominator)
    assert basis.is_settled
    pod = PodInfo(make_pod("p").build())
    table.add_pod(pod, "b")
    nominator.version = 2
    assert not basis.is_settled
    assert basis.dirty_rows() == [table.row_of["b"], table.row_of["c"]]
    basis.settle()
    assert basis.is_settled
    assert basis.dirty_rows() == []


def test_replaced_pod_objects_count_where_pods_are_held():
    table = NodeTable()
    table.set_node(make_node("a").build())
    held, plain = Basis(table, [], follows_swaps=True), Basis(table, [])
    table.swap_log.append(0)
    assert held.dirty_rows() == [0]
    assert plain.dirty_rows() == []


def test_all_rows_are_dirty_once_the_log_is_cut():
    table = NodeTable()
    table.set_node(make_node("a").build())
    basis = Basis(table, [])
    for _ in range(table.pod_log.bound + 1):
        table.pod_log.append(0)
    assert basis.dirty_rows() is None
