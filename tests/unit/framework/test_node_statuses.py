"""Verdicts kept as columns say exactly what verdicts kept by name say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.framework.node_statuses import NodeStatusColumns, rows_with_code
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.runtime.filter import FilterOutcome
from kubesched.framework.status import (
    Code,
    NodeToStatus,
    Status,
    error_status,
    unresolvable,
    unschedulable,
)
from kubesched.framework.verdicts import Verdicts
from kubesched.testing import make_node

STATUSES = [
    unschedulable("a"),
    unschedulable("a", "b"),
    unresolvable("b"),
    Status(Code.PENDING, ["c"]),
    error_status("d"),
]
NAMES = [f"n{number}" for number in range(6)]


def make_table() -> NodeTable:
    table = NodeTable(8)
    table.set_node(make_node("gone").build())
    for name in NAMES:
        table.set_node(make_node(name).zone(name[-1] if name < "n3" else "z").build())
    table.remove_node("gone")  # rows and names are not the same thing
    return table


@st.composite
def both_kinds(draw):
    """(columns, by name) of the same verdicts, over a table."""
    table = make_table()
    verdicts = draw(st.dictionaries(st.sampled_from(NAMES), st.integers(0, len(STATUSES) - 1)))
    extra = draw(st.dictionaries(st.sampled_from([*NAMES, "nowhere"]), st.sampled_from(STATUSES)))
    absent = draw(st.sampled_from([None, *STATUSES[:3]]))
    others = NodeToStatus(extra, absent)
    rows = np.array([table.row_of[name] for name in verdicts], dtype=np.intp)
    ids = np.array(list(verdicts.values()), dtype=np.int32)
    columns = NodeStatusColumns(table, rows, ids, STATUSES, others)
    plain = NodeToStatus(extra | {name: STATUSES[at] for name, at in verdicts.items()}, absent)
    return table, columns, plain


@given(both_kinds(), st.integers(6, 9))
def test_columns_answer_like_names(kinds, node_count) -> None:
    table, columns, plain = kinds
    for _ in range(2):  # before and after names were asked for
        assert len(columns) == len(plain)
        assert columns.histogram(node_count) == plain.histogram(node_count)
        for code in Code:
            assert (
                rows_with_code(columns, table, code).tolist()
                == rows_with_code(plain, table, code).tolist()
            )
        for name in [*NAMES, "nowhere", "unheard of"]:
            assert columns.get(name) is plain.get(name) or columns.get(name) == plain.get(name)
        assert dict(columns.explicit) == dict(plain.explicit)
        for code in Code:
            assert sorted(columns.nodes_for_code(NAMES, code)) == sorted(
                plain.nodes_for_code(NAMES, code)
            )


@given(both_kinds(), st.sampled_from([*NAMES, "nowhere"]), st.sampled_from(STATUSES))
def test_a_verdict_set_later_counts(kinds, name, status) -> None:
    table, columns, plain = kinds
    columns.histogram(6)
    for each in (columns, plain):
        each.set(name, status)
    assert columns.get(name) == status
    assert dict(columns.explicit) == dict(plain.explicit)
    assert len(columns) == len(plain)
    assert columns.histogram(8) == plain.histogram(8)
    for code in Code:
        found = rows_with_code(columns, table, code).tolist()
        assert found == rows_with_code(plain, table, code).tolist()


def test_rows_come_in_node_order() -> None:
    table = make_table()
    everything = NodeToStatus(absent_status=unschedulable("x"))
    found = rows_with_code(everything, table, Code.UNSCHEDULABLE)
    assert [table.names[row] for row in found.tolist()] == [
        table.names[row] for row in table.order_rows.tolist()
    ]


def test_verdicts_do_not_outlive_the_nodes_they_are_about() -> None:
    table = make_table()
    columns = NodeStatusColumns(
        table, np.array([1]), np.array([0], dtype=np.int32), [unschedulable("a")]
    )
    assert columns.histogram(1) == ["1 a"], "messages need no names"
    table.remove_node("n1")
    with pytest.raises(AssertionError, match="nodes have changed"):
        _ = columns.explicit


@given(st.data())
def test_classifying_finds_the_first_rejection_of_each_node(data) -> None:
    """Whatever integers a plugin uses for its codes."""
    length = data.draw(st.integers(1, 8))
    outcome = FilterOutcome(np.ones(length, dtype=np.bool_))
    for plugin in "ABC"[: data.draw(st.integers(1, 3))]:
        dtype = data.draw(st.sampled_from([np.bool_, np.uint8, np.int8, np.int32, np.int64]))
        top = 1 if dtype is np.bool_ else 3
        low = -2 if dtype in (np.int8, np.int32) else 0
        codes = data.draw(st.lists(st.integers(low, top), min_size=length, max_size=length))
        array = np.array(codes, dtype=dtype)
        outcome.add(plugin, Verdicts(array, lambda code: unschedulable(f"reason {code}")))
        outcome.passing &= array == 0
    failing = np.flatnonzero(~outcome.passing)
    ids, statuses = outcome.classify(failing)
    assert [statuses[at] for at in ids.tolist()] == [
        outcome.status_at(index) for index in failing.tolist()
    ]
    assert len(statuses) == len({(s.plugin, s.reasons) for s in statuses})
