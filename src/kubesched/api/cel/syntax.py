"""The syntax tree of an expression, macros expanded.

Nodes have an `offset` in code points and the depth of their subtree. The checker fills in `type`,
the overloads of calls, and the meaning of identifiers.
"""

from __future__ import annotations

import copy as copying
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from kubesched.api.cel.environment import Overload
from kubesched.api.cel.types import DYN, Type
from kubesched.api.cel.values import Value


@dataclass(slots=True, eq=False)
class Node:
    """An expression."""

    offset: int
    depth: int = dataclasses.field(init=False)
    type: Type = dataclasses.field(init=False, default=DYN)

    def __post_init__(self) -> None:
        self.depth = 1 + max((child.depth for child in self.children()), default=0)

    def children(self) -> Sequence[Node]:
        """The expressions directly below this one."""
        return ()


@dataclass(slots=True, eq=False)
class Literal(Node):
    """A constant: bool, int, uint, double, string, bytes or null."""

    value: Value


@dataclass(slots=True, eq=False)
class Ident(Node):
    """A variable or the name of a type (`constant` after checking)."""

    name: str
    constant: Type | None = dataclasses.field(init=False, default=None)


@dataclass(slots=True, eq=False)
class Select(Node):
    """`operand.field`, or `has(operand.field)` if `test_only`."""

    operand: Node
    field: str
    test_only: bool = False
    resolved: Ident | None = None
    """Set by the checker if the whole chain is a qualified name."""

    def children(self) -> Sequence[Node]:
        return (self.operand,)


@dataclass(slots=True, eq=False)
class Call(Node):
    """A function or operator; `target` is the receiver of a member call."""

    function: str
    args: list[Node]
    target: Node | None = None
    overloads: tuple[Overload, ...] = ()

    def children(self) -> Sequence[Node]:
        return self.args if self.target is None else [*self.args, self.target]


@dataclass(slots=True, eq=False)
class ListNode(Node):
    """`[a, ?b]`; `optional` holds the indices of elements written with `?`."""

    elements: list[Node]
    optional: frozenset[int] = frozenset()

    def children(self) -> Sequence[Node]:
        return self.elements


@dataclass(slots=True, eq=False)
class Entry(Node):
    """`key: value` of a map or `field: value` of an object."""

    key: Node | str
    value: Node
    optional: bool

    def children(self) -> Sequence[Node]:
        return (self.value,) if isinstance(self.key, str) else (self.value, self.key)


@dataclass(slots=True, eq=False)
class MapNode(Node):
    """`{key: value, ?key: value}`."""

    entries: list[Entry]

    def children(self) -> Sequence[Node]:
        return self.entries


@dataclass(slots=True, eq=False)
class ObjectNode(Node):
    """`Type{field: value}`. Parsed only for its error message: no declared type can be built."""

    name: str
    entries: list[Entry]

    def children(self) -> Sequence[Node]:
        return self.entries


@dataclass(slots=True, eq=False)
class Comprehension(Node):
    """A fold over a list or map; the expansion of the macros `all`, `map` and others."""

    iteration_range: Node
    variable: str
    accumulator: str
    init: Node
    condition: Node
    step: Node
    result: Node
    variable2: str = ""

    def children(self) -> Sequence[Node]:
        return (self.iteration_range, self.init, self.condition, self.step, self.result)


def copy(node: Node) -> Node:
    """A tree of new nodes, for macros that use an argument twice."""
    new = copying.copy(node)
    for each in dataclasses.fields(new):
        value = getattr(new, each.name)
        if isinstance(value, Node):
            setattr(new, each.name, copy(value))
        elif isinstance(value, list):
            setattr(new, each.name, [copy(child) for child in value])
    return new


def qualified_name(node: Node) -> str | None:
    """`a.b.c` if the node is a plain chain of names."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test_only:
        prefix = qualified_name(node.operand)
        return None if prefix is None else f"{prefix}.{node.field}"
    return None
