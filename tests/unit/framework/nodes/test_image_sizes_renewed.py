"""The size of an image is the one first reported, until its last holder is written again, as in
kube-scheduler.
"""

from kubesched.framework.nodes.node_table import NodeTable
from kubesched.testing.builders import make_node


def table_of(*nodes):
    table = NodeTable()
    for node in nodes:
        table.set_node(node)
    table.refresh()
    return table


LARGE = make_node("large").image("i", size_bytes=900).build()
SMALL = make_node("small").image("i", size_bytes=20).build()


def test_the_first_report_holds_while_others_have_the_image():
    table = table_of(LARGE, SMALL)
    table.set_node(make_node("small").image("i", size_bytes=20).zone("z").build())
    assert table.images.get("i").size_bytes == 900


def test_the_last_holder_reports_anew_when_it_is_written():
    table = table_of(LARGE, SMALL)
    table.remove_node("large")
    assert table.images.get("i").size_bytes == 900
    version = table.images.version
    table.set_node(make_node("small").image("i", size_bytes=20).zone("z").build())
    assert table.images.get("i").size_bytes == 20
    assert table.images.version > version
