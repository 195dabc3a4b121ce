"""The syntax tree of an expression, macros expanded.

Nodes know where they came from (`offset`, in code points) and how deep the tree below them is. The
checker fills in `type`, the overloads of calls, and what identifiers stand for.
"""

from __future__ import annotations

import copy as copying
from collections.abc import Iterable, Sequence
from typing import cast

from kubesched.cel.environment import Overload
from kubesched.cel.types import DYN, Type
from kubesched.cel.values import Value


class Node:
    """An expression."""

    __slots__ = ("depth", "offset", "type")

    def __init__(self, offset: int, children: Iterable[Node] = ()) -> None:
        self.offset = offset
        self.depth: int = 1 + max((child.depth for child in children), default=0)
        self.type: Type = DYN


class Literal(Node):
    """A constant: bool, int, uint, double, string, bytes or null."""

    __slots__ = ("value",)

    def __init__(self, offset: int, value: Value) -> None:
        super().__init__(offset)
        self.value = value


class Ident(Node):
    """A variable or the name of a type (`constant` after checking)."""

    __slots__ = ("constant", "name")

    def __init__(self, offset: int, name: str) -> None:
        super().__init__(offset)
        self.name = name
        self.constant: Type | None = None


class Select(Node):
    """`operand.field`, or `has(operand.field)` if `test_only`."""

    __slots__ = ("field", "operand", "resolved", "test_only")

    def __init__(self, offset: int, operand: Node, field: str, *, test_only: bool = False) -> None:
        super().__init__(offset, (operand,))
        self.operand = operand
        self.field = field
        self.test_only = test_only
        self.resolved: Ident | None = None
        """Set by the checker if the whole chain is a qualified name."""


class Call(Node):
    """A function or operator; `target` is the receiver of a member call."""

    __slots__ = ("args", "function", "overloads", "target")

    def __init__(
        self, offset: int, function: str, args: Sequence[Node], target: Node | None = None
    ) -> None:
        super().__init__(offset, [*args, target] if target is not None else args)
        self.function = function
        self.args = list(args)
        self.target = target
        self.overloads: tuple[Overload, ...] = ()


class ListNode(Node):
    """`[a, ?b]`; `optional` holds the indices of elements written with `?`."""

    __slots__ = ("elements", "optional")

    def __init__(
        self, offset: int, elements: Sequence[Node], optional: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(offset, elements)
        self.elements = list(elements)
        self.optional = optional


class Entry(Node):
    """`key: value` of a map or `field: value` of an object."""

    __slots__ = ("key", "optional", "value")

    def __init__(self, offset: int, key: Node | str, value: Node, *, optional: bool) -> None:
        super().__init__(offset, (value,) if isinstance(key, str) else (key, value))
        self.key = key
        self.value = value
        self.optional = optional


class MapNode(Node):
    """`{key: value, ?key: value}`."""

    __slots__ = ("entries",)

    def __init__(self, offset: int, entries: Sequence[Entry]) -> None:
        super().__init__(offset, entries)
        self.entries = list(entries)


class ObjectNode(Node):
    """`Type{field: value}`. Parsed for its error message: no declared type can be built."""

    __slots__ = ("entries", "name")

    def __init__(self, offset: int, name: str, entries: Sequence[Entry]) -> None:
        super().__init__(offset, entries)
        self.name = name
        self.entries = list(entries)


class Comprehension(Node):
    """A fold over a list or map; what the macros `all`, `map` and others become."""

    __slots__ = (
        "accumulator",
        "condition",
        "init",
        "iteration_range",
        "result",
        "step",
        "variable",
        "variable2",
    )

    def __init__(
        self,
        offset: int,
        iteration_range: Node,
        variable: str,
        accumulator: str,
        init: Node,
        condition: Node,
        step: Node,
        result: Node,
        variable2: str = "",
    ) -> None:
        super().__init__(offset, (iteration_range, init, condition, step, result))
        self.iteration_range = iteration_range
        self.variable = variable
        self.variable2 = variable2
        self.accumulator = accumulator
        self.init = init
        self.condition = condition
        self.step = step
        self.result = result


def copy(node: Node) -> Node:
    """A tree of new nodes, for macros that use an argument twice."""
    new = copying.copy(node)
    match new:
        case Select():
            new.operand = copy(new.operand)
        case Call():
            new.args = [copy(argument) for argument in new.args]
            new.target = copy(new.target) if new.target is not None else None
        case ListNode():
            new.elements = [copy(element) for element in new.elements]
        case MapNode() | ObjectNode():
            new.entries = [cast("Entry", copy(entry)) for entry in new.entries]
        case Entry():
            new.key = copy(new.key) if isinstance(new.key, Node) else new.key
            new.value = copy(new.value)
        case Comprehension():
            new.iteration_range = copy(new.iteration_range)
            new.init = copy(new.init)
            new.condition = copy(new.condition)
            new.step = copy(new.step)
            new.result = copy(new.result)
    return new


def qualified_name(node: Node) -> str | None:
    """`a.b.c` if the node is nothing but a chain of names."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test_only:
        prefix = qualified_name(node.operand)
        return None if prefix is None else f"{prefix}.{node.field}"
    return None
