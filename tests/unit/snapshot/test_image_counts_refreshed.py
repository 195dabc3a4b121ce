"""A row that comes to see other image counts is logged as changed, whatever made it look: kept scores rest on that."""

from __future__ import annotations

from msgspec import structs

from kubesched.snapshot.node_table import NodeTable
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
