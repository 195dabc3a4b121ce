"""Macros: calls that are rewritten before type checking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kubesched.api.cel.syntax import (
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
)
from kubesched.api.cel.syntax import copy as copy_tree

ACCUMULATOR = "@result"
_OLD_ACCUMULATOR = "__result__"
_UNUSED = "#unused"


class MacroError(Exception):
    """The arguments do not fit the macro; the message is cel-go's."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


Expander = Callable[[int, Node | None, list[Node]], Node | None]


@dataclass(frozen=True, slots=True)
class Macro:
    """A call by name and number of arguments; `expand` returns None to keep the call."""

    function: str
    arguments: int
    member: bool
    expand: Expander

    @property
    def key(self) -> tuple[str, int, bool]:
        return self.function, self.arguments, self.member


def _name(node: Node, message: str) -> str:
    if not isinstance(node, Ident):
        raise MacroError(node.offset, message)
    return node.name


def _check_overwrites(node: Node, name: str) -> None:
    if name in (ACCUMULATOR, _OLD_ACCUMULATOR):
        raise MacroError(node.offset, "iteration variable overwrites accumulator variable")


class _Fold:
    """Builds a comprehension whose nodes all have the macro's position."""

    def __init__(self, at: int, target: Node | None, variables: tuple[str, str]) -> None:
        assert target is not None
        self.at = at
        self.target = target
        self.variables = variables

    def result(self) -> Ident:
        return Ident(self.at, ACCUMULATOR)

    def call(self, function: str, *args: Node) -> Call:
        return Call(self.at, function, list(args))

    def build(self, init: Node, condition: Node, step: Node, result: Node) -> Node:
        first, second = self.variables
        return Comprehension(
            self.at, self.target, first, ACCUMULATOR, init, condition, step, result, second
        )

    def all(self, predicate: Node) -> Node:
        return self.build(
            Literal(self.at, True),
            self.call("@not_strictly_false", self.result()),
            self.call("_&&_", self.result(), predicate),
            self.result(),
        )

    def exists(self, predicate: Node) -> Node:
        return self.build(
            Literal(self.at, False),
            self.call("@not_strictly_false", self.call("!_", self.result())),
            self.call("_||_", self.result(), predicate),
            self.result(),
        )

    def exists_one(self, predicate: Node) -> Node:
        incremented = self.call("_+_", self.result(), Literal(self.at, 1))
        return self.build(
            Literal(self.at, 0),
            Literal(self.at, True),
            self.call("_?_:_", predicate, incremented, self.result()),
            self.call("_==_", self.result(), Literal(self.at, 1)),
        )

    def collect(self, init: Node, step: Node, predicate: Node | None) -> Node:
        """The result of every step, or only of elements for which the predicate holds."""
        if predicate is not None:
            step = self.call("_?_:_", predicate, step, self.result())
        return self.build(init, Literal(self.at, True), step, self.result())

    def transform(self, element: Node, predicate: Node | None) -> Node:
        step = self.call("_+_", self.result(), ListNode(self.at, [element]))
        return self.collect(ListNode(self.at, []), step, predicate)

    def insert(self, entry: list[Node], predicate: Node | None) -> Node:
        step = self.call("cel.@mapInsert", self.result(), *entry)
        return self.collect(MapNode(self.at, []), step, predicate)


# -- one variable ----------------------------------------------------------------------------------


def _has(at: int, _target: Node | None, args: list[Node]) -> Node:
    selection = args[0]
    if not isinstance(selection, Select) or selection.test_only:
        raise MacroError(selection.offset, "invalid argument to has() macro")
    return Select(at, selection.operand, selection.field, test_only=True)


def _one_variable(at: int, target: Node | None, variable: Node, message: str) -> _Fold:
    name = _name(variable, message)
    _check_overwrites(variable, name)
    return _Fold(at, target, (name, ""))


def _quantifier(build: Callable[[_Fold, Node], Node]) -> Expander:
    def expand(at: int, target: Node | None, args: list[Node]) -> Node:
        fold = _one_variable(at, target, args[0], "argument must be a simple name")
        return build(fold, args[1])

    return expand


def _map(at: int, target: Node | None, args: list[Node]) -> Node:
    fold = _one_variable(at, target, args[0], "argument is not an identifier")
    return fold.transform(args[-1], args[1] if len(args) == 3 else None)


def _filter(at: int, target: Node | None, args: list[Node]) -> Node:
    fold = _one_variable(at, target, args[0], "argument is not an identifier")
    return fold.transform(args[0], args[1])


STANDARD = (
    Macro("has", 1, False, _has),
    Macro("all", 2, True, _quantifier(_Fold.all)),
    Macro("exists", 2, True, _quantifier(_Fold.exists)),
    Macro("exists_one", 2, True, _quantifier(_Fold.exists_one)),
    Macro("existsOne", 2, True, _quantifier(_Fold.exists_one)),
    Macro("map", 2, True, _map),
    Macro("map", 3, True, _map),
    Macro("filter", 2, True, _filter),
)


# -- two variables ---------------------------------------------------------------------------------


def _two_variables(at: int, target: Node | None, args: list[Node]) -> _Fold:
    first, second = (_name(node, "argument must be a simple name") for node in args[:2])
    if first == second:
        raise MacroError(args[1].offset, f"duplicate variable name: {first}")
    _check_overwrites(args[0], first)
    _check_overwrites(args[1], second)
    return _Fold(at, target, (first, second))


def _two_variable_quantifier(build: Callable[[_Fold, Node], Node]) -> Expander:
    def expand(at: int, target: Node | None, args: list[Node]) -> Node:
        return build(_two_variables(at, target, args), args[2])

    return expand


def _predicate(args: list[Node]) -> Node | None:
    return args[2] if len(args) == 4 else None


def _transform_list(at: int, target: Node | None, args: list[Node]) -> Node:
    return _two_variables(at, target, args).transform(args[-1], _predicate(args))


def _transform_map(at: int, target: Node | None, args: list[Node]) -> Node:
    fold = _two_variables(at, target, args)
    return fold.insert([Ident(at, fold.variables[0]), args[-1]], _predicate(args))


def _transform_map_entry(at: int, target: Node | None, args: list[Node]) -> Node:
    return _two_variables(at, target, args).insert([args[-1]], _predicate(args))


TWO_VARIABLES = (
    Macro("all", 3, True, _two_variable_quantifier(_Fold.all)),
    Macro("exists", 3, True, _two_variable_quantifier(_Fold.exists)),
    Macro("existsOne", 3, True, _two_variable_quantifier(_Fold.exists_one)),
    Macro("exists_one", 3, True, _two_variable_quantifier(_Fold.exists_one)),
    *(
        Macro(name, count, True, expand)
        for name, expand in (
            ("transformList", _transform_list),
            ("transformMap", _transform_map),
            ("transformMapEntry", _transform_map_entry),
        )
        for count in (3, 4)
    ),
)


# -- bindings --------------------------------------------------------------------------------------


def _bind(at: int, name: str, value: Node, result: Node) -> Node:
    """`result` with `name` bound to `value`, which is evaluated at most once."""
    return Comprehension(
        at,
        ListNode(at, []),
        _UNUSED,
        name,
        value,
        Literal(at, False),
        Ident(at, name),
        result,
    )


def _cel_bind(at: int, target: Node | None, args: list[Node]) -> Node | None:
    if not isinstance(target, Ident) or target.name != "cel":
        return None
    name = _name(args[0], "cel.bind() variable names must be simple identifiers")
    return _bind(at, name, args[1], args[2])


BIND = (Macro("bind", 3, True, _cel_bind),)


def _optional_map(function: str, *, wrap: bool) -> Expander:
    def expand(at: int, target: Node | None, args: list[Node]) -> Node:
        assert target is not None
        name = _name(args[0], f"{function}() variable name must be a simple identifier")
        value = Call(at, "value", [], copy_tree(target))
        mapped = _bind(at, name, value, args[1])
        if wrap:
            mapped = Call(at, "optional.of", [mapped])
        present = Call(at, "hasValue", [], target)
        return Call(at, "_?_:_", [present, mapped, Call(at, "optional.none", [])])

    return expand


OPTIONAL = (
    Macro("optMap", 2, True, _optional_map("optMap", wrap=True)),
    Macro("optFlatMap", 2, True, _optional_map("optFlatMap", wrap=False)),
)


def _sort_by(at: int, target: Node | None, args: list[Node]) -> Node:
    assert target is not None
    if not isinstance(target, ListNode | Select | Ident | Comprehension | Call):
        raise MacroError(
            target.offset,
            "sortBy can only be applied to a list, identifier, comprehension, call or select "
            "expression",
        )
    elements = "@__sortBy_input__"
    keys = _map(at, Ident(at, elements), args)
    ordered = Call(at, "@sortByAssociatedKeys", [keys], Ident(at, elements))
    return _bind(at, elements, target, ordered)


SORT_BY = (Macro("sortBy", 2, True, _sort_by),)
