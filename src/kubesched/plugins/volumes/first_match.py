"""For every node, the first few of a ranked list of objects that the node's labels reach.

Local volumes and capacities of local storage come one per node: asking each of them for all nodes would cost nodes times
objects. Nearly all of them name values of a single label, so a table by label value answers for all nodes with one
look-up; only conditions of another form are evaluated one by one, and those shared by several objects only once.
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
from kubesched.plugins.node_selector_columns import selected
from kubesched.plugins.volumes.node_masks import NodeMasks, reachable
from kubesched.snapshot.columns import ABSENT, Mask
from kubesched.snapshot.views import NodeColumns

NONE: Final = np.iinfo(np.int32).max
"""Stands for "no such object": greater than every rank."""

Ranks = np.ndarray[Any, np.dtype[np.int32]]

_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class OneOf:
    """Nodes whose label has one of some values."""

    key: str
    values: tuple[str, ...]


Reach = OneOf | VolumeNodeAffinity | LabelSelector | None
"""Which nodes an object is for: None means all of them."""


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
    """None when key or values are malformed: then the whole condition holds nowhere, which others find out."""
    if label_key_problems(key) or any(label_value_problems(value) for value in values):
        return None
    return OneOf(key, values)


def first_matches(
    masks: NodeMasks, nodes: NodeColumns, ranked: Iterable[tuple[int, Reach]], depth: int
) -> list[Ranks]:
    """The `depth` smallest ranks that reach each node, smallest first, as arrays over the view; NONE fills the rest.

    `ranked` comes in order of rank.
    """
    everywhere: list[int] = []
    by_label: dict[str, dict[int, list[int]]] = {}
    others: dict[Hashable, tuple[Reach, list[int]]] = {}
    for rank, reach in ranked:
        if reach is None:
            everywhere.append(rank)
        elif isinstance(reach, OneOf):
            _enter(by_label.setdefault(reach.key, {}), nodes, reach, rank)
        else:
            others.setdefault(_encode(reach), (reach, []))[1].append(rank)
    layers: list[Ranks] = [np.full(len(nodes), rank, dtype=np.int32) for rank in everywhere[:depth]]
    for key, ranks_by_value in by_label.items():
        layers.extend(_looked_up(nodes, key, ranks_by_value, depth))
    for reach, ranks in others.values():
        mask = _mask(masks, nodes, reach)
        layers.extend(np.where(mask, np.int32(rank), np.int32(NONE)) for rank in ranks[:depth])
    return _smallest(layers, len(nodes), depth)


def _enter(
    ranks_by_value: dict[int, list[int]], nodes: NodeColumns, reach: OneOf, rank: int
) -> None:
    column = nodes.label_column(reach.key)
    for value in dict.fromkeys(reach.values):
        value_id = column.id_of(value)
        if value_id != ABSENT:  # else no node has ever had it
            ranks_by_value.setdefault(value_id, []).append(rank)


def _looked_up(
    nodes: NodeColumns, key: str, ranks_by_value: dict[int, list[int]], depth: int
) -> list[Ranks]:
    """One layer per place: the first rank of each label value, the second, and so on."""
    column = nodes.label_column(key)
    ids = column.ids[nodes.rows]
    layers = []
    for place in range(min(depth, max(map(len, ranks_by_value.values()), default=0))):
        table = np.full(len(column.values) + 1, NONE, dtype=np.int32)
        for value_id, ranks in ranks_by_value.items():
            if place < len(ranks):
                table[value_id] = ranks[place]
        layers.append(table.take(ids))
    return layers


def _mask(masks: NodeMasks, nodes: NodeColumns, reach: Reach) -> Mask:
    if isinstance(reach, VolumeNodeAffinity):
        mask = reachable(masks, nodes, reach)
        assert mask is not None, "affinity without terms reaches everything and was sorted out"
        return mask
    assert isinstance(reach, LabelSelector), "every other form was sorted out"
    try:
        selector = from_label_selector(reach)
    except SelectorError:
        return np.zeros(len(nodes), dtype=np.bool_)
    return masks.over(nodes, ("segment", selector), lambda view: selected(view, selector))


def _smallest(layers: list[Ranks], length: int, depth: int) -> list[Ranks]:
    while len(layers) < depth:
        layers.append(np.full(length, NONE, dtype=np.int32))
    if len(layers) == 1:
        return layers
    if depth == 1:
        return [np.minimum.reduce(layers)]
    return list(np.sort(np.stack(layers), axis=0)[:depth])
