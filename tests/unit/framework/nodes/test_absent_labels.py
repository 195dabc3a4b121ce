"""Columns of labels that no node has: they cost nothing, and become ordinary ones with the first
node that has the label.
"""

from __future__ import annotations

import gc
from random import Random

import pytest

from kubesched.framework.nodes.columns import ABSENT
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.testing import make_node

KEYS = [f"k{n}" for n in range(6)]


def node(name, **labels):
    return make_node(name).labels(**labels).build()


def test_columns_of_absent_labels_share_their_ids_and_go_when_unused():
    table = NodeTable()
    table.set_node(node("n"))
    before = len(table._interned)
    held = [table.label_column(f"made-up-{n}") for n in range(100)]
    assert len({id(column.ids) for column in held}) == 1
    assert len(table._interned) == before
    assert table.label_column("made-up-1") is held[1]
    del held
    gc.collect()
    assert len(table._absent_labels) == 0


def test_a_held_column_learns_of_the_first_node_with_its_label():
    table = NodeTable()
    table.set_node(node("a"))
    column, epoch = table.label_column("rack"), table.epoch
    assert column.ids[table.row_of["a"]] == ABSENT
    row = table.set_node(node("b", rack="r1"))
    assert table.epoch != epoch, "rules that hold on to the ids must be made anew"
    assert table.label_column("rack") is column
    assert column.values[column.ids[row]] == "r1"
    assert column.ids[table.row_of["a"]] == ABSENT
    table.check_invariants()


def test_a_larger_table_has_larger_columns():
    table = NodeTable(2)
    column = table.label_column("rack")
    for n in range(20):
        table.set_node(node(f"n{n}"))
    assert len(column.ids) == table.capacity
    table.set_node(node("last", rack="r1"))
    assert column.values[column.ids[table.row_of["last"]]] == "r1"


@pytest.mark.parametrize("seed", range(30))
def test_columns_follow_any_history(seed):
    random = Random(seed)
    table, held = NodeTable(2), {}
    for _step in range(60):
        name = f"n{random.randrange(8)}"
        if name in table.row_of and random.random() < 0.3:
            table.remove_node(name)
        else:
            labels = {key: f"v{random.randrange(3)}" for key in KEYS if random.random() < 0.15}
            table.set_node(node(name, **labels))
        key = random.choice(KEYS)
        if random.random() < 0.5:
            held[key] = table.label_column(key)
        elif random.random() < 0.2:
            held.pop(key, None)
        for kept, column in held.items():
            assert table.label_column(kept) is column
            for each, row in table.row_of.items():
                value = (table.nodes[row].metadata.labels or {}).get(kept)
                found = None if column.ids[row] == ABSENT else column.values[column.ids[row]]
                assert found == value, (each, kept)
        wanted = {key for n in table.nodes if n for key in n.metadata.labels or ()}
        assert all(table.has_label_keys({key}) == (key in wanted) for key in KEYS)
    table.check_invariants()
