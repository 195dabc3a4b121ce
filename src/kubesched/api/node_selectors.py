"""Node selectors and node affinity: which nodes a pod requires and which it prefers.

The classes here are the checked, comparable form of the API records. They match against a node's
labels and name, and expose their parts so that a caller can evaluate them over many nodes at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kubesched.api import field_errors
from kubesched.api.core_v1 import (
    Node,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PreferredSchedulingTerm,
)
from kubesched.api.field_selectors import FieldRequirement, FieldSelector
from kubesched.api.selectors import (
    Labels,
    Operator,
    Selector,
    SelectorError,
    from_map,
    new_requirement,
)
from kubesched.base.sized_cache import SizedCache, by_spelling

NODE_NAME_FIELD = "metadata.name"

_OPERATORS = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
    "Gt": Operator.GREATER_THAN,
    "Lt": Operator.LESS_THAN,
}


class ParsedTerm:
    """A node selector term. With `problems` it matches no node."""

    __slots__ = ("_identity", "fields", "labels", "problems")

    def __init__(self, term: NodeSelectorTerm, path: str = "") -> None:
        problems: list[str] = []
        self.labels: Selector | None = None
        self.fields: FieldSelector | None = None
        if term.match_expressions:
            at = field_errors.child(path, "matchExpressions")
            self.labels = _label_part(term.match_expressions, at, problems)
        if term.match_fields:
            at = field_errors.child(path, "matchFields")
            self.fields = _field_part(term.match_fields, at, problems)
        self.problems = tuple(problems)
        self._identity = (self.labels, self.fields, self.problems)

    def matches(self, labels: Labels | None, node_name: str) -> bool:
        if self.problems:
            return False
        if self.labels is not None and not self.labels.matches(labels):
            return False
        # Upstream: a node without a name has no fields, and then fields are not looked at.
        if self.fields is None or not node_name:
            return True
        return self.fields.matches({NODE_NAME_FIELD: node_name})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ParsedTerm) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)


class ParsedNodeSelector:
    """Terms, one of which must match; empty terms are dropped, and no terms match no node."""

    __slots__ = ("terms",)

    def __init__(self, selector: NodeSelector, path: str = "") -> None:
        at = field_errors.child(path, "nodeSelectorTerms")
        self.terms = tuple(
            ParsedTerm(term, f"{at}[{i}]")
            for i, term in enumerate(selector.node_selector_terms or ())
            if not _is_empty(term)
        )

    def matches(self, labels: Labels | None, node_name: str) -> bool:
        return any(term.matches(labels, node_name) for term in self.terms)

    def matches_node(self, node: Node) -> bool:
        return self.matches(node.metadata.labels, node.metadata.name)

    @property
    def error(self) -> SelectorError | None:
        """Problems of the terms; relevant only when none of them matched."""
        problems = [problem for term in self.terms for problem in term.problems]
        return SelectorError(*problems) if problems else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ParsedNodeSelector) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.terms)


class RequiredNodeAffinity:
    """A pod's nodeSelector and required node affinity. Equal values admit the same nodes."""

    __slots__ = ("affinity", "selector")

    def __init__(self, pod: Pod) -> None:
        spec = pod.spec
        self.selector: Selector | None = (
            from_map(spec.node_selector) if spec.node_selector else None
        )
        self.affinity: ParsedNodeSelector | None = None
        node_affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        if node_affinity is not None:
            required = node_affinity.required_during_scheduling_ignored_during_execution
            if required is not None:
                self.affinity = ParsedNodeSelector(required)

    @property
    def is_unrestricted(self) -> bool:
        return self.selector is None and self.affinity is None

    def matches(self, labels: Labels | None, node_name: str) -> bool:
        if self.selector is not None and not self.selector.matches(labels):
            return False
        return self.affinity is None or self.affinity.matches(labels, node_name)

    def matches_node(self, node: Node) -> bool:
        return self.matches(node.metadata.labels, node.metadata.name)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RequiredNodeAffinity)
            and self.selector == other.selector
            and self.affinity == other.affinity
        )

    def __hash__(self) -> int:
        return hash((self.selector, self.affinity))


_encode = msgspec.msgpack.Encoder().encode
_known: SizedCache[RequiredNodeAffinity] = by_spelling()


def required_node_affinity(pod: Pod) -> RequiredNodeAffinity:
    """A pod's node requirements, cached by spelling, as many pods share few spellings."""
    spec = pod.spec
    key = _encode(
        (spec.node_selector, None if spec.affinity is None else spec.affinity.node_affinity)
    )
    cached = _known.get(key)
    if cached is None:
        cached = RequiredNodeAffinity(pod)
        _known.keep(key, len(key), cached)
    return cached


class PreferredNodeTerms:
    """Weighted node selector terms; empty ones and those of weight 0 are dropped unchecked."""

    __slots__ = ("terms",)

    def __init__(self, terms: Sequence[PreferredSchedulingTerm] | None) -> None:
        self.terms: tuple[tuple[int, ParsedTerm], ...] = tuple(
            (term.weight, ParsedTerm(term.preference, f"[{i}]"))
            for i, term in enumerate(terms or ())
            if term.weight != 0 and not _is_empty(term.preference)
        )
        problems = [problem for _, term in self.terms for problem in term.problems]
        if problems:
            raise SelectorError(*problems)

    def score(self, labels: Labels | None, node_name: str) -> int:
        """The sum of the weights of matching terms."""
        return sum(weight for weight, term in self.terms if term.matches(labels, node_name))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PreferredNodeTerms) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.terms)


def _is_empty(term: NodeSelectorTerm) -> bool:
    return not term.match_expressions and not term.match_fields


def _label_part(
    expressions: Sequence[NodeSelectorRequirement], path: str, problems: list[str]
) -> Selector:
    requirements = []
    for i, expression in enumerate(expressions):
        at = f"{path}[{i}]"
        operator = _OPERATORS.get(expression.operator)
        if operator is None:
            operator_path = field_errors.child(at, "operator")
            problems.append(
                str(field_errors.not_supported(operator_path, expression.operator, _OPERATORS))
            )
            continue
        try:
            requirements.append(new_requirement(expression.key, operator, expression.values, at))
        except SelectorError as error:
            problems.extend(error.problems)
    return Selector(requirements)


def _field_part(
    expressions: Sequence[NodeSelectorRequirement], path: str, problems: list[str]
) -> FieldSelector:
    requirements = []
    for i, expression in enumerate(expressions):
        at = f"{path}[{i}]"
        values = expression.values or []
        if expression.operator not in ("In", "NotIn"):
            operator_path = field_errors.child(at, "operator")
            problems.append(
                str(field_errors.not_supported(operator_path, expression.operator, ("In", "NotIn")))
            )
        elif len(values) != 1:
            values_path = field_errors.child(at, "values")
            problems.append(
                str(field_errors.invalid(values_path, expression.values, "must have one element"))
            )
        else:
            is_equal = expression.operator == "In"
            requirements.append(FieldRequirement(expression.key, is_equal, values[0]))
    return FieldSelector(requirements)
