"""A row that comes to see other image counts is logged as changed, whatever made it look: kept
scores rest on that.
"""

from __future__ import annotations

from msgspec import structs

from kubesched.framework.nodes.node_table import NodeTable
from kubesched.testing import make_node


def test_a_heartbeat_after_the_image_spread_logs_the_row():
    table = NodeTable()
    first = make_node("first").image("i", size_bytes=900).build()
    row = table.set_node(first)
    table.refresh()
    table.set_node(make_node("second").image("i", size_bytes=900).build())
    table.refresh()
    assert table.images.states_of(row)["i"] == (900, 1)
    end = table.pod_log.end
    meta = structs.replace(first.metadata, resource_version="2")
    table.set_node(structs.replace(first, metadata=meta))
    assert table.pod_log.end == end
    table.refresh()
    assert table.images.states_of(row)["i"] == (900, 2)
    assert table.pod_log.since(end) == [row]


def test_a_heartbeat_that_changes_no_count_logs_nothing():
    table = NodeTable()
    node = make_node("only").image("i", size_bytes=900).build()
    table.set_node(node)
    table.refresh()
    end = table.pod_log.end
    table.set_node(node)
    table.refresh()
    assert table.pod_log.end == end


def test_heartbeats_of_many_nodes_log_each_row_once():
    for count in (16, 64):
        table = NodeTable()
        nodes = [make_node(f"n{n}").image("i", size_bytes=900).build() for n in range(count)]
        for node in nodes:
            table.set_node(node)
        table.refresh()
        table.set_node(make_node("last").image("i", size_bytes=900).build())
        table.refresh()
        end = table.pod_log.end
        for _ in range(2):
            for node in reversed(nodes):
                meta = structs.replace(node.metadata, resource_version="2")
                table.set_node(structs.replace(node, metadata=meta))
        table.refresh()
        rows = table.pod_log.since(end)
        assert rows is not None
        assert sorted(rows) == [*range(count)]
        assert all(table.images.states_of(row)["i"] == (900, count + 1) for row in rows)
        table.refresh()
        assert table.pod_log.since(end) == rows
