"""Which row layers are kept: those of shapes seen twice, as many as there is room for, and without thrashing."""

from __future__ import annotations

import pytest

from kubesched.equivalence.row_layers import BYTES_LIMIT, BYTES_PER_ROW, NoRoom, RowLayers
from kubesched.snapshot.node_table import NodeTable


class Premise:
    """Stands in for premises that hold until told otherwise."""

    def __init__(self):
        self.is_true = True

    def hold(self):
        return self.is_true


class Index:
    """Stands in for an index."""

    def leave_stack(self):
        pass


class Layers:
    """Row layers by shape, without the indexes."""

    def __init__(self, limit=256, table=None):
        self.layers = RowLayers(table or NodeTable(), limit)
        self.made = 0

    def use(self, shape):
        """The layer of a shape; None if the shape is new or there is no room."""
        if not self.layers.is_worth_a_layer(shape):
            return None
        try:
            return self.layers.layer(shape, "kind", self._make)
        except NoRoom:
            return None

    def _make(self):
        self.made += 1
        return Index(), Premise()


def test_a_layer_is_made_when_a_shape_is_seen_again():
    world = Layers()
    assert world.use(b"a") is None
    made = world.use(b"a")
    assert made is not None
    assert world.use(b"a") is made
    assert world.layers.knows(b"a")


def test_a_layer_that_is_not_used_gives_way():
    world = Layers(limit=2)
    for shape in (b"old", b"old", b"a", b"a"):
        world.use(shape)
    for _ in range(20):
        world.use(b"a")
    for shape in (b"new", b"new"):
        world.use(shape)
    assert [world.layers.knows(shape) for shape in (b"old", b"a", b"new")] == [False, True, True]


def test_with_more_shapes_in_turn_than_fit_those_that_are_here_stay():
    world = Layers(limit=4)
    shapes = [bytes([number]) for number in range(6)]
    for _ in range(12):
        served = [world.use(shape) is not None for shape in shapes]
    assert sum(served) == 4
    assert world.made == 4


def test_a_large_table_leaves_room_for_fewer_layers():
    table = NodeTable()
    table.capacity = BYTES_LIMIT // BYTES_PER_ROW // 3
    world = Layers(table=table)
    for number in range(8):
        for _ in range(2):
            world.use(bytes([number]))
    assert len(world.layers) == 3


def test_a_layer_whose_premises_fail_is_replaced():
    world = Layers()
    world.use(b"a")
    layer = world.use(b"a")
    assert world.layers.holds(layer)
    layer.premises.is_true = False
    assert not world.layers.holds(layer)
    assert layer.is_dropped
    assert not world.layers.knows(b"a")


def test_a_layer_of_a_kind_can_be_made_anew():
    world = Layers()
    first = world.layers.replace(b"a", "own", world._make)
    second = world.layers.replace(b"a", "own", world._make)
    assert first.is_dropped
    assert not second.is_dropped


def test_layers_in_use_are_not_dropped_for_another():
    world = Layers(limit=1)
    world.layers.layer(b"a", 1, world._make)
    with pytest.raises(NoRoom):
        world.layers.layer(b"a", 2, world._make)
