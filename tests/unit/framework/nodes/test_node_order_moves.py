"""A node that changes its zone keeps its place in the listing until some node comes or goes, as in
kube-scheduler.
"""

from random import Random

import pytest

from kubesched.framework.nodes.node_order import NodeOrder
from kubesched.testing.builders import make_node

ROWS = {name: row for row, name in enumerate("abcdefghij")}


class Order:
    """A node order by name."""

    def __init__(self, **zones: str) -> None:
        self._order = NodeOrder()
        for name, zone in zones.items():
            self.put(name, zone)

    def put(self, name: str, zone: str) -> None:
        self._order.put(ROWS[name], make_node(name).zone(zone).build())

    def remove(self, name: str) -> None:
        self._order.remove(ROWS[name], name)

    def fix(self) -> None:
        self._order.fix()

    def names(self) -> list[str]:
        return ["abcdefghij"[row] for row in self._order.rows().tolist()]


class PlainOrder:
    """The same as upstream does it: zones with lists of names, listed when a cycle begins after
    nodes came or went.
    """

    def __init__(self) -> None:
        self.zones: dict[str, list[str]] = {}
        self.listed: list[str] = []
        self.is_stale = True

    def put(self, name: str, zone: str) -> None:
        if name in self.zones.get(zone, ()):
            return
        if any(name in names for names in self.zones.values()):
            self._take_out(name)
        else:
            self.is_stale = True
        self.zones.setdefault(zone, []).append(name)

    def remove(self, name: str) -> None:
        self._take_out(name)
        self.is_stale = True

    def _take_out(self, name: str) -> None:
        (zone,) = [zone for zone, names in self.zones.items() if name in names]
        self.zones[zone].remove(name)
        if not self.zones[zone]:
            del self.zones[zone]

    def fix(self) -> None:
        if not self.is_stale:
            return
        self.is_stale, self.listed = False, []
        rest = [list(names) for names in self.zones.values()]
        while any(rest):
            self.listed += [names.pop(0) for names in rest if names]


@pytest.mark.parametrize("seed", range(20))
def test_the_list_read_late_is_the_one_of_the_beginning_of_the_cycle(seed):
    rng, order, plain, present = Random(seed), Order(), PlainOrder(), set()
    for _ in range(200):
        name = rng.choice("abcdefghij")
        if name in present and rng.random() < 0.4:
            present.discard(name)
            for side in (order, plain):
                side.remove(name)
        else:
            present.add(name)
            zone = rng.choice(["x", "y", "z"])
            for side in (order, plain):
                side.put(name, zone)
        if rng.random() < 0.5:
            order.fix()
            plain.fix()
            if rng.random() < 0.5:
                assert order.names() == plain.listed


def test_a_move_shows_only_after_a_node_has_come():
    order = Order(a="z1", b="z1", c="z2")
    assert order.names() == ["a", "c", "b"]
    order.put("a", "z2")
    assert order.names() == ["a", "c", "b"]
    order.put("d", "z1")
    assert order.names() == ["b", "c", "d", "a"]


def test_a_move_shows_after_a_node_has_gone():
    order = Order(a="z1", b="z1", c="z2")
    assert order.names() == ["a", "c", "b"]
    order.put("a", "z2")
    order.remove("b")
    assert order.names() == ["c", "a"]


def test_a_move_before_the_first_listing_counts():
    order = Order(a="z1", b="z1", c="z2")
    order.put("a", "z2")
    assert order.names() == ["b", "c", "a"]


def test_a_move_after_the_cycle_began_does_not_count_even_if_the_list_is_read_later():
    order = Order(a="z1", b="z1", c="z2")
    order.fix()
    order.put("a", "z2")
    assert order.names() == ["a", "c", "b"]
