"""A node that changes its zone keeps its place in the listing until some node comes or goes, as in kube-scheduler."""

from kubesched.snapshot.node_order import NodeOrder
from kubesched.testing.builders import make_node


def order_of(**zones):
    order = NodeOrder()
    for name, zone in zones.items():
        order.put(make_node(name).zone(zone).build())
    return order


def test_a_move_shows_only_after_a_node_has_come():
    order = order_of(a="z1", b="z1", c="z2")
    assert order.names() == ["a", "c", "b"]
    version = order.version
    order.put(make_node("a").zone("z2").build())
    assert (order.names(), order.version) == (["a", "c", "b"], version)
    order.put(make_node("d").zone("z1").build())
    assert order.names() == ["b", "c", "d", "a"]


def test_a_move_shows_after_a_node_has_gone():
    order = order_of(a="z1", b="z1", c="z2")
    assert order.names() == ["a", "c", "b"]
    order.put(make_node("a").zone("z2").build())
    order.remove("b")
    assert order.names() == ["c", "a"]


def test_a_move_before_the_first_listing_counts():
    order = order_of(a="z1", b="z1", c="z2")
    order.put(make_node("a").zone("z2").build())
    assert order.names() == ["b", "c", "a"]
