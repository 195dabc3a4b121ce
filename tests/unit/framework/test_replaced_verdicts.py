"""Verdicts by row, brought up to date in copies, say what verdicts kept by name say."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kubesched.framework.node_statuses import NO_VERDICT, NodeStatusColumns, rows_with_code
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.status import Code, NodeToStatus, unresolvable, unschedulable
from kubesched.testing import make_node

CPU, MEMORY = unschedulable("cpu").with_plugin("Fit"), unschedulable("memory").with_plugin("Fit")
TAINT = unresolvable("taint").with_plugin("Taints")
STATUSES = [CPU, MEMORY, TAINT, unschedulable("cpu", "memory").with_plugin("Fit")]


def make_table(count: int) -> NodeTable:
    table = NodeTable(64)
    for number in range(count):
        table.set_node(make_node(f"n{number}").build())
    return table


def verdicts(table: NodeTable, by_name: dict[str, int]) -> NodeStatusColumns:
    rows = np.array([table.row_of[name] for name in by_name], dtype=np.intp)
    used = sorted(set(by_name.values()))
    ids = np.array([used.index(number) for number in by_name.values()], dtype=np.int32)
    return NodeStatusColumns(table, rows, ids, [STATUSES[number] for number in used])


def described(verdicts: NodeToStatus) -> dict[str, tuple[str, ...]]:
    return {name: (s.code, s.reasons, s.plugin) for name, s in verdicts.explicit.items()}


@given(st.data())
def test_copies_follow_rows_and_nodes(data) -> None:
    """A plain dictionary by node name is the twin; older copies stay what they were."""
    table = make_table(data.draw(st.integers(1, 10)))
    number = st.integers(0, len(STATUSES) - 1)
    plain = {name: data.draw(number) for name in table.row_of}
    kept, added = verdicts(table, plain), 100
    for _ in range(data.draw(st.integers(1, 6))):
        before = (kept, described(kept)) if data.draw(st.booleans()) else None
        dirty: set[int] = set()
        for _ in range(data.draw(st.integers(0, 3))):
            if len(plain) > 1 and data.draw(st.booleans()):
                name = data.draw(st.sampled_from(sorted(plain)))
                dirty.add(table.row_of[name])
                table.remove_node(name)
                del plain[name]
            else:
                added += 1
                dirty.add(table.set_node(make_node(f"n{added}").build()))
                plain[f"n{added}"] = 0
        dirty.update(table.row_of[n] for n in data.draw(st.sets(st.sampled_from(sorted(plain)))))
        rows = np.array(sorted(dirty), dtype=np.intp)
        ids = np.full(len(rows), NO_VERDICT, dtype=np.int32)
        for at, row in enumerate(rows.tolist()):
            if table.names[row]:
                plain[table.names[row]] = ids[at] = data.draw(number)
        is_same_nodes = before is None or before[0]._position == table.node_log.end
        kept = kept.replaced(rows, ids, list(STATUSES))
        twin = NodeToStatus({name: STATUSES[at] for name, at in plain.items()})
        assert len(kept) == len(plain)
        assert kept.histogram(12) == twin.histogram(12)
        assert {(s.code, s.reasons) for s in kept.statuses} == {
            (STATUSES[at].code, STATUSES[at].reasons) for at in plain.values()
        }
        for code in (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE):
            expected = rows_with_code(twin, table, code).tolist()
            assert rows_with_code(kept, table, code).tolist() == expected
        for name in plain:
            assert kept.get(name) == twin.get(name)
        assert described(kept) == described(twin)
        if before is not None and is_same_nodes:
            assert described(before[0]) == before[1]


def test_equal_verdicts_are_not_copied() -> None:
    table = make_table(3)
    kept = verdicts(table, {"n0": 0, "n1": 0, "n2": 2})
    again = [unschedulable("cpu").with_plugin("Fit")]
    assert kept.replaced(np.array([0, 1]), np.array([0, 0]), again) is kept
    table.remove_node("n1")
    copy = kept.replaced(np.array([1]), np.array([NO_VERDICT]), [])
    assert copy is not kept
    assert copy.histogram(2) == ["1 cpu", "1 taint"]


def test_a_status_that_no_row_has_is_dropped() -> None:
    table = make_table(2)
    kept = verdicts(table, {"n0": 0, "n1": 2})
    for number in range(5):
        status = unschedulable(f"reason {number}")
        kept = kept.replaced(np.array([0]), np.array([0], dtype=np.int32), [status])
        assert list(kept.statuses) in ([status, TAINT], [TAINT, status])


def test_verdicts_by_name_are_told_apart() -> None:
    table = make_table(2)
    kept = verdicts(table, {"n0": 0, "n1": 0})
    assert not kept.are_named
    kept.set("n1", MEMORY)
    assert kept.are_named
    assert described(kept) == described(NodeToStatus({"n0": CPU, "n1": MEMORY}))
    assert len(kept) == 2
