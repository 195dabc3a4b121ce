"""Kubernetes' additional checks of literals in a well-typed expression."""

from __future__ import annotations

from collections.abc import Iterator

from kubesched.api.cel import regular_expressions
from kubesched.api.cel.checker import format_type
from kubesched.api.cel.errors import CompileError, EvaluationError, Issue, Source, in_order
from kubesched.api.cel.libraries.formatting import check_format
from kubesched.api.cel.syntax import (
    Call,
    ListNode,
    Literal,
    MapNode,
    Node,
)
from kubesched.api.cel.types import Type, TypeKind

_MIXED_ALLOWED = frozenset(("format", "cel.@block"))


def validate(root: Node, nodes: list[Node], source: Source) -> None:
    """Raises CompileError for literals that are invalid for their use, or that mix types."""
    issues: list[Issue] = []
    for node in nodes:
        if isinstance(node, Call):
            _check_literal_argument(node, source, issues)
            _check_format_call(node, source, issues)
    for node in _outside_of_format(root):
        if isinstance(node, ListNode):
            _check_list(node, source, issues)
        elif isinstance(node, MapNode):
            _check_map(node, source, issues)
    if issues:
        raise CompileError(in_order(issues), source.text)


def _check_literal_argument(node: Call, source: Source, issues: list[Issue]) -> None:
    if node.function not in ("duration", "timestamp", "matches") or not node.args:
        return
    argument = node.args[0]
    if not isinstance(argument, Literal):
        return
    try:
        if node.function == "matches":
            if isinstance(argument.value, str):
                regular_expressions.compile(argument.value)
        elif len(node.overloads) == 1:
            node.overloads[0].call(argument.value)
    except EvaluationError:
        issues.append(source.issue(argument.offset, f"invalid {node.function} argument"))


def _check_format_call(node: Call, source: Source, issues: list[Issue]) -> None:
    if node.function != "format" or node.target is None or len(node.args) != 1:
        return
    text, arguments = node.target, node.args[0]
    if not isinstance(text, Literal) or not isinstance(text.value, str):
        return
    if isinstance(arguments, ListNode):
        problem = check_format(text.value, arguments.elements, node)
        if problem is not None:
            issues.append(source.issue(problem[0].offset, problem[1]))


# -- lists and maps hold one type ------------------------------------------------------------------


def _outside_of_format(root: Node) -> Iterator[Node]:
    """Every node that is not an argument of a function for mixed lists."""
    stack: list[Node] = [root]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, Call) and node.function in _MIXED_ALLOWED:
            continue
        stack.extend(node.children())


def _equivalent(first: Type, second: Type) -> bool:
    if first.kind is TypeKind.PARAMETER:
        return second.kind is TypeKind.PARAMETER
    return (
        first.kind is second.kind
        and first.name == second.name
        and len(first.parameters) == len(second.parameters)
        and all(map(_equivalent, first.parameters, second.parameters))
    )


def _mismatch(node: Node, expected: Type, found: Type, source: Source) -> Issue:
    message = f"expected type '{format_type(expected)}' but found '{format_type(found)}'"
    return source.issue(node.offset, message)


def _content(node: Node, *, optional: bool) -> Type:
    return node.type.parameters[0] if optional and node.type.parameters else node.type


def _check_list(node: ListNode, source: Source, issues: list[Issue]) -> None:
    expected: Type | None = None
    for index, element in enumerate(node.elements):
        actual = _content(element, optional=index in node.optional)
        if expected is None:
            expected = actual
        elif not _equivalent(expected, actual):
            issues.append(_mismatch(element, expected, actual, source))
            return


def _check_map(node: MapNode, source: Source, issues: list[Issue]) -> None:
    expected: tuple[Type, Type] | None = None
    for entry in node.entries:
        assert isinstance(entry.key, Node)
        actual = (entry.key.type, _content(entry.value, optional=entry.optional))
        if expected is None:
            expected = actual
            continue
        for part, wanted, type in zip((entry.key, entry.value), expected, actual, strict=True):
            if not _equivalent(wanted, type):
                issues.append(_mismatch(part, wanted, type, source))
