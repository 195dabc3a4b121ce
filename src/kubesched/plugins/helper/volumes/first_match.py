"""Per node, the first few of a ranked list of objects that the node's labels match.

Local volumes and local storage capacities exist once per node: evaluating each for all nodes would
cost nodes times objects. Nearly all of them name values of a single label, so a table by label
value covers all nodes with one lookup; other conditions are evaluated one by one, and only once if
several objects share them.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from kubesched.api.core_v1 import VolumeNodeAffinity
from kubesched.api.meta import LabelSelector
from kubesched.api.names import label_key_problems, label_value_problems
from kubesched.api.selectors import SelectorError, from_label_selector
from kubesched.framework.nodes.columns import ABSENT, InternedColumn, Mask
from kubesched.framework.nodes.views import NodeColumns
from kubesched.plugins.helper.node_selector_columns import selected
from kubesched.plugins.helper.volumes.node_masks import reachable

NONE: Final = np.iinfo(np.int32).max
"""No object; greater than every rank."""

Ranks = np.ndarray[Any, np.dtype[np.int32]]

_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class OneOf:
    """Nodes whose label has one of the given values."""

    key: str
    values: tuple[str, ...]


Reach = OneOf | VolumeNodeAffinity | LabelSelector | None
"""The nodes that can use an object; None means all."""


def reach_of_affinity(affinity: VolumeNodeAffinity | None) -> Reach:
    """The simplest form of a volume's node affinity."""
    required = None if affinity is None else affinity.required
    if required is None:
        return None
    terms = required.node_selector_terms or ()
    if len(terms) == 1 and not terms[0].match_fields:
        expressions = terms[0].match_expressions or ()
        if len(expressions) == 1 and expressions[0].operator == "In" and expressions[0].values:
            return _one_of(expressions[0].key, tuple(expressions[0].values)) or affinity
    return affinity


def reach_of_selector(selector: LabelSelector) -> Reach:
    """The simplest form of a topology segment."""
    labels = selector.match_labels
    if labels and len(labels) == 1 and not selector.match_expressions:
        ((key, value),) = labels.items()
        return _one_of(key, (value,)) or selector
    return selector


@functools.lru_cache(maxsize=8192)
def _one_of(key: str, values: tuple[str, ...]) -> OneOf | None:
    """None if key or values are malformed; the general form then matches no node."""
    if label_key_problems(key) or any(label_value_problems(value) for value in values):
        return None
    return OneOf(key, values)


def first_matches(
    nodes: NodeColumns, ranked: Iterable[tuple[int, Reach]], depth: int
) -> list[Ranks]:
    """The `depth` smallest matching ranks of each node, as arrays padded with NONE.

    `ranked` is in order of rank.
    """
    everywhere: list[int] = []
    by_label: dict[str, _RanksByValue] = {}
    others: dict[Hashable, tuple[Reach, list[int]]] = {}
    for rank, reach in ranked:
        if type(reach) is OneOf:
            of_label = by_label.get(reach.key)
            if of_label is None:
                column = nodes.label_column(reach.key)
                of_label = by_label[reach.key] = _RanksByValue(column, depth)
            of_label.enter(reach.values, rank)
        elif reach is None:
            everywhere.append(rank)
        else:
            others.setdefault(_encode(reach), (reach, []))[1].append(rank)
    layers: list[Ranks] = [np.full(len(nodes), rank, dtype=np.int32) for rank in everywhere[:depth]]
    for of_label in by_label.values():
        layers.extend(of_label.layers(nodes))
    for reach, ranks in others.values():
        mask = _mask(nodes, reach)
        layers.extend(np.where(mask, np.int32(rank), np.int32(NONE)) for rank in ranks[:depth])
    return _smallest(layers, len(nodes), depth)


class _RanksByValue:
    """The first ranks for each value of one label."""

    def __init__(self, column: InternedColumn[str], depth: int) -> None:
        self._column = column
        self._depth = depth
        self._ranks: dict[int, list[int]] = {}

    def enter(self, values: tuple[str, ...], rank: int) -> None:
        for value in values:
            value_id = self._column.id_of(value)
            if value_id == ABSENT:  # no node has ever had it
                continue
            known = self._ranks.get(value_id)
            if known is None:
                self._ranks[value_id] = [rank]
            elif len(known) < self._depth and known[-1] != rank:
                known.append(rank)

    def layers(self, nodes: NodeColumns) -> list[Ranks]:
        """One array per position: the first rank of each node's value, the second, and so on."""
        ids = self._column.ids[nodes.rows]
        layers = []
        for place in range(max(map(len, self._ranks.values()), default=0)):
            next_ranks = {
                at: ranks[place] for at, ranks in self._ranks.items() if place < len(ranks)
            }
            table = np.full(len(self._column.values) + 1, NONE, dtype=np.int32)
            table[list(next_ranks)] = list(next_ranks.values())
            layers.append(table.take(ids))
        return layers


def _mask(nodes: NodeColumns, reach: Reach) -> Mask:
    if isinstance(reach, VolumeNodeAffinity):
        mask = reachable(nodes, reach)
        assert mask is not None, "affinity without terms reaches everything and was sorted out"
        return mask
    assert isinstance(reach, LabelSelector), "every other form was sorted out"
    try:
        selector = from_label_selector(reach)
    except SelectorError:
        return np.zeros(len(nodes), dtype=np.bool_)
    return selected(nodes, selector)


def _smallest(layers: list[Ranks], length: int, depth: int) -> list[Ranks]:
    while len(layers) < depth:
        layers.append(np.full(length, NONE, dtype=np.int32))
    if len(layers) == 1:
        return layers
    if depth == 1:
        return [np.minimum.reduce(layers)]
    return list(np.sort(np.stack(layers), axis=0)[:depth])
