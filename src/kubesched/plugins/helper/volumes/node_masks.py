"""Conditions of volumes and storage classes on node labels, over columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec
import numpy as np

from kubesched.api.core_v1 import NodeSelector, TopologySelectorTerm, VolumeNodeAffinity
from kubesched.api.node_selectors import ParsedNodeSelector
from kubesched.api.selectors import Operator, Selector, SelectorError, new_requirement
from kubesched.framework.nodes.columns import Mask
from kubesched.framework.nodes.views import NodeColumns
from kubesched.plugins.helper.node_selector_columns import selected

_LONG_BYTES: Final = 4096
"""Longer selectors are rare or hostile: they are parsed at every attempt."""

_encode = msgspec.msgpack.Encoder().encode


def reachable(nodes: NodeColumns, affinity: VolumeNodeAffinity | None) -> Mask | None:
    """Nodes from which a volume with this affinity can be reached; None means all."""
    required = None if affinity is None else affinity.required
    return None if required is None else admitted_by_labels(nodes, required)


def admitted_by_labels(nodes: NodeColumns, selector: NodeSelector) -> Mask:
    """Where one of the terms matches the node's labels.

    # Upstream: only the node's labels are passed on, so conditions on fields are ignored, and a
    # term that has only such conditions matches every node.
    """
    mask = np.zeros(len(nodes), dtype=np.bool_)
    encoded = _encode(selector)
    parsed = _parsed(encoded) if len(encoded) <= _LONG_BYTES else ParsedNodeSelector(selector)
    for term in parsed.terms:
        if term.problems:
            continue
        if term.labels is None:
            return np.ones(len(nodes), dtype=np.bool_)
        mask |= selected(nodes, term.labels)
    return mask


@lru_cache(maxsize=1024)
def _parsed(encoded: bytes) -> ParsedNodeSelector:
    """Volumes of one zone or class have equal selectors."""
    return ParsedNodeSelector(msgspec.msgpack.decode(encoded, type=NodeSelector))


def in_topology(nodes: NodeColumns, terms: Sequence[TopologySelectorTerm] | None) -> Mask | None:
    """Nodes in one of a storage class's allowed topologies; None means all."""
    return admitted_by_topologies(nodes, terms) if terms else None


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
