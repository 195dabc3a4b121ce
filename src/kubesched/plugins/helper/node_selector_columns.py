"""Node selectors over columns: the nodes of a view that match a selector, term or node affinity.

Requirements compare interned label values, so thousands of nodes are evaluated with one comparison
of small integers.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kubesched.api.core_v1 import Node
from kubesched.api.field_selectors import FieldRequirement
from kubesched.api.node_selectors import (
    NODE_NAME_FIELD,
    ParsedNodeSelector,
    ParsedTerm,
    RequiredNodeAffinity,
)
from kubesched.api.selectors import Operator, Requirement, Selector, parse_int64
from kubesched.framework.nodes.columns import ABSENT, InternedColumn, Mask
from kubesched.framework.nodes.views import NodeColumns


def admitted_by_affinity(nodes: NodeColumns, required: RequiredNodeAffinity) -> Mask:
    """True where the pod's nodeSelector and required node affinity both match."""
    mask: Mask | None = None
    if required.selector is not None:
        mask = selected(nodes, required.selector)
    if required.affinity is not None:
        admitted = admitted_by_terms(nodes, required.affinity)
        mask = admitted if mask is None else mask & admitted
    return np.ones(len(nodes), dtype=np.bool_) if mask is None else mask


def admitted_by_terms(nodes: NodeColumns, selector: ParsedNodeSelector) -> Mask:
    """Where at least one term matches; with no terms, nowhere."""
    mask: Mask | None = None
    for term in selector.terms:
        if not term.problems:
            matches = matched(nodes, term)
            mask = matches if mask is None else mask | matches
    return np.zeros(len(nodes), dtype=np.bool_) if mask is None else mask


def matched(nodes: NodeColumns, term: ParsedTerm) -> Mask:
    """Where every requirement of a well-formed term holds."""
    mask = None if term.labels is None else selected(nodes, term.labels)
    for requirement in term.fields.requirements if term.fields is not None else ():
        holds = _field_holds(nodes, requirement)
        mask = holds if mask is None else mask & holds
    assert mask is not None, "empty terms are dropped when a selector is parsed"
    return mask


def selected(nodes: NodeColumns, selector: Selector) -> Mask:
    """Where the node's labels satisfy the selector."""
    if selector.selects_nothing:
        return np.zeros(len(nodes), dtype=np.bool_)
    mask: Mask | None = None
    for requirement in selector.requirements:
        holds = _label_holds(nodes, requirement)
        mask = holds if mask is None else mask & holds
    return np.ones(len(nodes), dtype=np.bool_) if mask is None else mask


def named(nodes: NodeColumns, name: str) -> Mask:
    """True for the node of that name only."""
    row = nodes.table.row_of.get(name)
    if row is None:
        return np.zeros(len(nodes), dtype=np.bool_)
    if not isinstance(nodes.rows, slice):
        is_row: Mask = nodes.rows == row
        return is_row
    mask = np.zeros(len(nodes), dtype=np.bool_)
    index = row - int(nodes.rows.start or 0)
    if 0 <= index < len(nodes):
        mask[index] = True
    return mask


def _label_holds(nodes: NodeColumns, requirement: Requirement) -> Mask:
    match requirement.operator:
        case Operator.EXISTS:
            return np.not_equal(nodes.label_ids(requirement.key), ABSENT)
        case Operator.DOES_NOT_EXIST:
            return np.equal(nodes.label_ids(requirement.key), ABSENT)
        case Operator.IN | Operator.EQUALS | Operator.DOUBLE_EQUALS:
            return has_value(nodes, requirement.key, requirement.values)
        case Operator.NOT_IN | Operator.NOT_EQUALS:
            return ~has_value(nodes, requirement.key, requirement.values)
    return _compares(nodes, requirement)


def has_value(nodes: NodeColumns, key: str, values: Iterable[str]) -> Mask:
    """Where the node's label has one of the values."""
    column = nodes.label_column(key)
    # A value that no node has was never interned; its id would mean "no such label".
    wanted = [known for value in values if (known := column.id_of(value)) != ABSENT]
    table = np.zeros(len(column.values) + 1, dtype=np.bool_)
    table[wanted] = True
    return table.take(column.ids[nodes.rows])


def _compares(nodes: NodeColumns, requirement: Requirement) -> Mask:
    """Gt and Lt: the label must be an integer beyond the bound."""
    key, bound = requirement.key, parse_int64(requirement.values[0])
    assert bound is not None, "comparisons are checked when a selector is parsed"

    if not nodes.table.has_label_keys({key}):
        return np.zeros(len(nodes), dtype=np.bool_)

    def as_integer(node: Node) -> int | None:
        text = (node.metadata.labels or {}).get(key)
        return None if text is None else parse_int64(text)

    column: InternedColumn[int] = nodes.interned(("integer label", key), as_integer)
    greater = requirement.operator is Operator.GREATER_THAN
    holds = [value > bound if greater else value < bound for value in column.values]
    return np.array([*holds, False], dtype=np.bool_).take(column.ids[nodes.rows])


def _field_holds(nodes: NodeColumns, requirement: FieldRequirement) -> Mask:
    if requirement.field != NODE_NAME_FIELD:
        # Upstream: a field that nodes do not have reads as the empty string.
        return np.full(len(nodes), (requirement.value == "") is requirement.is_equal)
    mask = named(nodes, requirement.value)
    return mask if requirement.is_equal else ~mask
