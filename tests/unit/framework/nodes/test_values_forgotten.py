"""Values of node labels that no node has any more do not fill their columns, and ids that change
their meaning are noticed by those who keep some.
"""

from random import Random

import numpy as np
import pytest

from kubesched.framework.nodes import columns
from kubesched.framework.nodes.domain_counter import Domains
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.views import NodeColumns
from kubesched.plugins.helper.value_tables import ValueTable
from kubesched.testing import make_node

HOST = "kubernetes.io/hostname"


def node(name: str, **labels: str):
    return make_node(name).label(HOST, name).labels(**labels).build()


def test_nodes_that_come_and_go_leave_a_bounded_number_of_values():
    table = NodeTable()
    column = table.label_column(HOST)
    table.set_node(node("stays"))
    column = table.label_column(HOST)
    epochs = set()
    for n in range(5000):
        table.set_node(node(f"n{n}"))
        table.remove_node(f"n{n}")
        epochs.add(table.epoch)
        assert len(column.values) <= columns.SPARE_VALUES + 4
    assert 2 <= len(epochs) <= 8, "kept answers are made anew, but rarely"
    assert column.values[column.ids[table.row_of["stays"]]] == "stays"
    assert column.id_of("n1") == columns.ABSENT
    table.check_invariants()


def test_the_last_node_with_a_label_takes_its_values_with_it():
    table = NodeTable()
    table.set_node(node("a", rack="r1"))
    column = table.label_column("rack")
    table.set_node(node("a"))
    assert column.values == []
    table.set_node(node("a", rack="r2"))
    assert column.values[column.ids[table.row_of["a"]]] == "r2"


@pytest.mark.parametrize("seed", range(20))
def test_whoever_keeps_ids_follows_any_history(seed, monkeypatch):
    monkeypatch.setattr(columns, "SPARE_VALUES", 2)
    random = Random(seed)
    table = NodeTable()
    table.set_node(node("first", rack="0"))
    column = table.label_column("rack")
    domains = Domains(table, "rack", None)
    rule = ValueTable(column, lambda value: int(value) % 3 == 0, absent=False)
    for _ in range(120):
        name = f"n{random.randrange(12)}"
        if name in table.row_of and random.random() < 0.4:
            table.remove_node(name)
        else:
            table.set_node(node(name, rack=str(random.randrange(40))))
        if random.random() < 0.5:
            continue
        table.check_invariants()
        domains.sync()
        rows = np.flatnonzero(table.alive[: table.high_water])
        racks = [table.nodes[row].metadata.labels["rack"] for row in rows]
        assert [column.values[at] for at in domains.domain_of[rows]] == racks
        assert domains.count == len(set(racks))
        assert [domains.nodes[column.id_of(rack)] for rack in racks] == list(
            map(racks.count, racks)
        )
        expected = {row: int(rack) % 3 == 0 for row, rack in zip(rows.tolist(), racks, strict=True)}
        view = NodeColumns(table)
        found = dict(
            zip(np.arange(table.high_water)[view.rows].tolist(), rule.over(view), strict=True)
        )
        assert {row: bool(found[row]) for row in expected} == expected
    assert column.generation > 1
