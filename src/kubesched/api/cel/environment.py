"""The environment of an expression: variables, functions, macros, and its cost limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from kubesched.api.cel import types
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.types import Type
from kubesched.api.cel.values import Value

if TYPE_CHECKING:
    from kubesched.api.cel.macros import Macro

CallCost = Callable[[tuple[Value, ...], Value], int]
"""Cost of a call from its arguments (receiver first) and its result."""

Specialize = Callable[[tuple[Value, ...]], "Callable[..., Value] | None"]
"""Called once per expression with its constant arguments (others are NOTHING).

May return a function to call instead, or raise EvaluationError if the call can never succeed.
"""


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function and its implementation, see `declare`."""

    id: str
    """The signature without the result: `sets.contains(list(T), list(T))`, `.trim(string)`."""
    name: str
    arguments: tuple[Type, ...]
    result: Type
    call: Callable[..., Value]
    member: bool
    """Called as `receiver.name(...)`; the first argument is the receiver."""
    cost: CallCost | None
    """Cost of a call that can only mean this overload; None: the function's cost."""
    guarded: bool
    """False: `call` accepts arguments of any type, as types may be known only at run time."""
    specialize: Specialize | None
    is_generic: bool
    """Whether its types have type parameters."""


def _evaluated_elsewhere(*_args: Value) -> Value:
    raise EvaluationError("no such overload")


def declare(
    signature: str,
    call: Callable[..., Value] = _evaluated_elsewhere,
    *,
    cost: CallCost | None = None,
    guarded: bool = True,
    specialize: Specialize | None = None,
) -> Overload:
    """An overload, `name(types) -> type`; `.name(types) -> type` is called as `receiver.name(...)`.

    `call` takes the arguments (receiver first) as Python values, see `values`, and returns one;
    it raises EvaluationError. It is only called with arguments that fit the types. Without it, the
    planner implements the function.
    """
    id, _, returned = signature.partition(" -> ")
    name, _, listed = id.removesuffix(")").partition("(")
    arguments, (result,) = types.parse_list(listed), types.parse_list(returned)
    return Overload(
        id,
        name.removeprefix("."),
        arguments,
        result,
        call,
        name.startswith("."),
        cost,
        guarded,
        specialize,
        any(map(types.has_parameters, (*arguments, result))),
    )


@dataclass(frozen=True, slots=True)
class Library:
    """A group of functions, macros and type names."""

    name: str
    functions: tuple[Overload, ...]
    macros: tuple[Macro, ...] = ()
    type_names: Mapping[str, Type] = field(default_factory=dict)
    costs: Mapping[str, CallCost] = field(default_factory=dict)
    """Costs by function name, for overloads without their own cost; the default is 1."""


@dataclass(frozen=True)
class Environment:
    """Everything that an expression's meaning depends on."""

    variables: Mapping[str, Type]
    libraries: tuple[Library, ...]
    cost_limit: int | None = None
    """Evaluation is cancelled once it exceeds this cost; None: never."""

    @cached_property
    def functions(self) -> Mapping[str, tuple[Overload, ...]]:
        """Every overload by function name, in the order the libraries declare them."""
        merged: dict[str, tuple[Overload, ...]] = {}
        for library in self.libraries:
            for overload in library.functions:
                merged[overload.name] = (*merged.get(overload.name, ()), overload)
        return merged

    @cached_property
    def identifiers(self) -> Mapping[str, Type]:
        """Variables, and names of types, which have the type `type(...)`."""
        names: dict[str, Type] = {}
        for library in self.libraries:
            for name, type in library.type_names.items():
                names[name] = types.type_of_type(type)
        return names | dict(self.variables)

    @cached_property
    def macros(self) -> Mapping[tuple[str, int, bool], Macro]:
        """Every macro by name, number of arguments, and whether it has a receiver."""
        return {macro.key: macro for library in self.libraries for macro in library.macros}

    @cached_property
    def costs(self) -> Mapping[str, CallCost]:
        return {name: cost for library in self.libraries for name, cost in library.costs.items()}
