"""Conditions on node labels over columns, cached per condition.

Volumes of one zone or class share one condition on the nodes. Its result depends on node objects
only, so it is cached and recomputed for changed nodes: a fifth less per decision for pods
with bound claims (benchmarks/volumes.py). A condition's key describes it completely; usually it is
its encoding.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Final

import msgspec
import numpy as np

from kubesched.api.core_v1 import NodeSelector, TopologySelectorTerm, VolumeNodeAffinity
from kubesched.api.node_selectors import ParsedNodeSelector
from kubesched.api.selectors import Operator, Selector, SelectorError, new_requirement
from kubesched.framework.nodes.columns import Mask
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.views import NodeColumns
from kubesched.plugins.helper.node_selector_columns import selected

KEPT: Final = 64
"""Maximum number of cached masks, of one byte per row."""

_encode = msgspec.msgpack.Encoder().encode


class NodeMasks:
    """An LRU cache of masks, by the key of their condition."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._kept: OrderedDict[Hashable, _KeptMask] = OrderedDict()

    def over(
        self, nodes: NodeColumns, key: Hashable, condition: Callable[[NodeColumns], Mask]
    ) -> Mask:
        """Where the condition holds; read-only. Equal keys must mean equal conditions."""
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _KeptMask(self._table, condition)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return kept.current()[nodes.rows]


class _KeptMask:
    """One condition's result for every row."""

    def __init__(self, table: NodeTable, condition: Callable[[NodeColumns], Mask]) -> None:
        self._table = table
        self._condition = condition
        self._cursor = self._epoch = -1
        self._mask: Mask = np.zeros(0, dtype=np.bool_)

    def current(self) -> Mask:
        table = self._table
        end = table.node_log.end
        if self._cursor == end and self._epoch == table.epoch:
            return self._mask
        changed = table.node_log.since(self._cursor) if self._epoch == table.epoch else None
        if changed is None or len(changed) > table.high_water // 4:
            self._mask = np.zeros(table.capacity, dtype=np.bool_)
            self._mask[: table.high_water] = self._condition(NodeColumns(table))
        else:
            rows = np.fromiter(dict.fromkeys(changed), dtype=np.intp)
            self._mask[rows] = self._condition(NodeColumns(table, rows))
        self._cursor, self._epoch = end, table.epoch
        return self._mask


# -- conditions ------------------------------------------------------------------------------------


def reachable(
    masks: NodeMasks, nodes: NodeColumns, affinity: VolumeNodeAffinity | None
) -> Mask | None:
    """Nodes from which a volume with this affinity can be reached; None means all."""
    required = None if affinity is None else affinity.required
    if required is None:
        return None
    return masks.over(
        nodes, ("affinity", _encode(required)), lambda view: admitted_by_labels(view, required)
    )


def admitted_by_labels(nodes: NodeColumns, selector: NodeSelector) -> Mask:
    """Where one of the terms matches the node's labels.

    # Upstream: only the node's labels are passed on, so conditions on fields are ignored, and a
    # term that has only such conditions matches every node.
    """
    mask = np.zeros(len(nodes), dtype=np.bool_)
    for term in ParsedNodeSelector(selector).terms:
        if term.problems:
            continue
        if term.labels is None:
            return np.ones(len(nodes), dtype=np.bool_)
        mask |= selected(nodes, term.labels)
    return mask


def in_topology(
    masks: NodeMasks, nodes: NodeColumns, terms: Sequence[TopologySelectorTerm] | None
) -> Mask | None:
    """Nodes in one of a storage class's allowed topologies; None means all."""
    if not terms:
        return None
    return masks.over(
        nodes, ("topology", _encode(terms)), lambda view: admitted_by_topologies(view, terms)
    )


def admitted_by_topologies(nodes: NodeColumns, terms: Sequence[TopologySelectorTerm]) -> Mask:
    """Where one of the terms matches; a term that is empty or malformed matches nowhere."""
    mask = np.zeros(len(nodes), dtype=np.bool_)
    for term in terms:
        try:
            requirements = [
                new_requirement(expression.key, Operator.IN, expression.values)
                for expression in term.match_label_expressions or ()
            ]
        except SelectorError:
            continue
        if requirements:
            mask |= selected(nodes, Selector(requirements))
    return mask
