"""A stack of layers against the same formulas, layer by layer and row by row."""

from random import Random

import numpy as np
import pytest

from kubesched.equivalence.layer_stack import STACKED_ROWS, Columns, LayerStack
from kubesched.equivalence.ranking import NO_LEVEL
from kubesched.framework.rules import Together
from kubesched.snapshot.node_table import NodeTable

ROWS = 40
WEIGHT = 3


class World:
    """What plugins would read of the nodes."""

    def __init__(self, rng):
        self.rng = rng
        self.table = NodeTable()
        self.room = np.array([rng.randrange(20) for _ in range(ROWS)])
        self.is_open = np.array([rng.random() < 0.9 for _ in range(ROWS)])
        self.points = 0
        """Of every node, on top of what the formulas give."""

    def change(self, count):
        for _ in range(count):
            row = self.rng.randrange(ROWS)
            self.room[row] = self.rng.randrange(20)
            self.is_open[row] = self.rng.random() < 0.9
            self.table.pod_log.append(row)

    def has_room(self, needs):
        needs = np.array(needs)[:, None]
        return lambda nodes: self.room[nodes.row_indices()] >= needs

    def is_for_all(self, needs):
        return lambda nodes: self.is_open[nodes.row_indices()]

    def left(self, needs):
        needs = np.array(needs)[:, None]
        return lambda nodes: (np.abs(self.room[nodes.row_indices()] - needs)).astype(np.int64)

    def small(self, needs):
        needs = np.array(needs)[:, None]
        return lambda nodes: (self.points + self.room[nodes.row_indices()] * needs % 7).astype(
            np.int16
        )


class Layer:
    def __init__(self, world, need, *, has_node_scores):
        rng, self.world, self.need = world.rng, world, need
        self.filters = [
            Together("room", need, world.has_room),
            Together("open", need, world.is_for_all),
        ]
        self.scores = [
            (Together("left", need, world.left), 1),
            (Together("small", need, world.small), WEIGHT),
        ]
        self.pending = []
        self.has_node_scores = has_node_scores
        static_level = [rng.randrange(50) if has_node_scores else 0 for _ in range(ROWS)]
        self.columns = Columns(
            np.full(ROWS, NO_LEVEL),
            np.array([rng.random() < 0.8 for _ in range(ROWS)]),
            np.array(static_level),
        )
        for row in range(ROWS):
            self.renew(row)

    def move_to(self, columns):
        for new, old in zip(columns.arrays, self.columns.arrays, strict=True):
            assert new.tolist() == old.tolist()
        self.columns = columns

    def passes(self, row):
        world = self.world
        fits = world.room[row] >= self.need and world.is_open[row]
        return bool(self.columns.static_ok[row] and fits)

    def expected(self, row):
        room = int(self.world.room[row])
        points = abs(room - self.need) + WEIGHT * (self.world.points + room * self.need % 7)
        return int(self.columns.static_level[row]) + points

    def renew(self, row):
        self.columns.level[row] = self.expected(row) if self.passes(row) else NO_LEVEL


@pytest.mark.parametrize("seed", range(20))
def test_a_stack_and_its_layers_alone_agree(seed):
    world = World(Random(seed))
    stack, layers = LayerStack(world.table), []
    for need in range(11):
        layers.append(Layer(world, need, has_node_scores=seed % 2 == 1 and need > 5))
        stack.add(layers[-1])
        if need == 8:
            stack.remove(layers.pop(2))
        world.change(STACKED_ROWS + 1)
        assert stack.refresh()
        for layer in layers:
            moved = set(layer.pending)
            for row in range(ROWS):
                level = layer.columns.level[row]
                assert (row in moved) == (layer.passes(row) != (level != NO_LEVEL))
                assert level == NO_LEVEL or level == layer.expected(row)
                if row in moved:
                    layer.renew(row)
            layer.pending.clear()


@pytest.mark.parametrize("points", [101, -8])
def test_points_out_of_range_end_the_evaluation(points):
    world = World(Random(1))
    stack = LayerStack(world.table)
    stack.add(Layer(world, 3, has_node_scores=False))
    world.points = points
    world.change(STACKED_ROWS + 1)
    assert not stack.refresh()


def test_few_dirty_rows_are_left_to_the_layers():
    world = World(Random(1))
    stack, layer = LayerStack(world.table), Layer(world, 3, has_node_scores=False)
    stack.add(layer)
    before = layer.columns.level.tolist()
    world.change(STACKED_ROWS)
    assert stack.refresh()
    assert layer.columns.level.tolist() == before
    assert not layer.pending
