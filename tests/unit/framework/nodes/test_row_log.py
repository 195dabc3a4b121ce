"""Logs of changed rows: many rows at once, as one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from kubesched.framework.nodes.columns import RowLog
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.testing import make_node

batches = st.lists(st.lists(st.integers(0, 99), max_size=30), max_size=12)


@given(batches, st.integers(0, 200))
def test_readers_see_what_was_logged_or_learn_that_it_is_lost(logged, cursor):
    log, everything = RowLog(bound=16), []
    for rows in logged:
        log.extend(rows)
        everything += rows
    assert log.end == len(everything)
    seen = log.since(min(cursor, log.end))
    assert seen is None or seen == everything[min(cursor, log.end) :]
    assert len(log._rows) <= 16
    assert log.since(log.end - min(8, log.end)) is not None, "more was dropped than appending drops"


def test_heartbeats_of_many_nodes_log_the_rows_that_those_of_few_do():
    tables = NodeTable(), NodeTable()
    nodes = []
    for number in range(96):
        node = make_node(f"node-{number}")
        nodes.append((node.image("i", size_bytes=9) if number % 3 else node).build())
    for table in tables:
        for node in nodes[:-2]:
            table.set_node(node)
        table.refresh()
        table.set_node(nodes[-2])  # the image spreads
        table.refresh()
    ends = [table.pod_log.end for table in tables]
    for turn, touched in enumerate((nodes[5:], nodes)):
        for number, node in enumerate(touched[:-2]):
            meta = structs.replace(node.metadata, resource_version=f"{turn}-{number}")
            beat = structs.replace(node, metadata=meta)
            for table in tables:
                table.set_node(beat)
            if number % 32 == 0:
                tables[1].refresh()
        for table in tables:
            table.refresh()
        logs = [table.pod_log.since(end) for table, end in zip(tables, ends, strict=True)]
        assert logs[0] is not None
        assert logs[1] is not None
        assert sorted(logs[0]) == sorted(logs[1])
        assert logs[0]
        for row in range(len(nodes) - 1):
            assert tables[0].images.states_of(row) == tables[1].images.states_of(row)
