"""Views select their part of a column, however many rows pass."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.views import NodeColumns, PassingColumns
from kubesched.testing import make_node

ROWS = 140


@pytest.fixture
def table() -> NodeTable:
    table = NodeTable(256)
    for row in range(ROWS):
        node = make_node(f"n{row}")
        if row % 4:
            node.label("shelf", f"s{row % 7}")
        table.set_node(node.build())
    return table


@pytest.mark.parametrize("missing", [0, 1, 2, 20, 139])
def test_a_mask_selects_what_its_rows_select(table, missing):
    """The columns have room for more than the 140 rows."""
    rng = Random(missing)
    for _ in range(10):
        mask = np.ones(ROWS, dtype=np.bool_)
        mask[rng.sample(range(ROWS), missing)] = False
        by_mask, by_rows = PassingColumns(table, mask), NodeColumns(table, mask.nonzero()[0])
        column = np.arange(256) * 3
        expected = [3 * row for row in range(ROWS) if mask[row]]
        assert by_mask.part_of(column).tolist() == by_rows.part_of(column).tolist() == expected
        assert by_mask.label_ids("shelf").tolist() == by_rows.label_ids("shelf").tolist()


@pytest.mark.parametrize("missing", [1, 2, 5, 6, 40, 900])
def test_a_mask_of_many_rows_selects_what_its_rows_select(missing):
    """Runs of rows between few gaps, at either end and beside each other, too."""
    rng, column = Random(missing), np.arange(3500) * 3
    for gaps in (
        rng.sample(range(3000), missing),
        range(missing),
        range(3000 - missing, 3000),
        [0, 2999],
    ):
        mask = np.ones(3000, dtype=np.bool_)
        mask[list(gaps)] = False
        view = PassingColumns(NodeTable(4096), mask)
        expected = [3 * row for row in range(3000) if mask[row]]
        assert view.part_of(column).tolist() == view.part_of(column).tolist() == expected
        assert view.among(np.array([0, 7])).part_of(column).tolist() == [expected[0], expected[7]]


def test_values_of_a_label_are_counted_among_the_rows(table):
    rng = Random(1)
    labels = [table.nodes[row].metadata.labels.get("shelf") for row in range(ROWS)]
    for count in range(1, ROWS + 1, 3):
        rows = sorted(rng.sample(range(ROWS), count))
        mask = np.isin(np.arange(ROWS), rows)
        distinct = len({labels[row] for row in rows})
        assert NodeColumns(table, np.array(rows)).number_of_values("shelf") == distinct
        assert PassingColumns(table, mask).number_of_values("shelf") == distinct
        among = np.array([row % 3 == 0 for row in rows])
        distinct = len({labels[row] for row in rows if row % 3 == 0})
        assert PassingColumns(table, mask).number_of_values("shelf", among) == distinct
    assert NodeColumns(table).number_of_values("absent") == 1
