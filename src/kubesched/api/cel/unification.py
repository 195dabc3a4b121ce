"""Assignability of types with type parameters, as cel-go's checker decides it."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.api.cel.types import DYN, Type, TypeKind

_NULLABLE = (TypeKind.OPAQUE, TypeKind.OBJECT, TypeKind.ANY, TypeKind.DURATION, TypeKind.TIMESTAMP)


class Substitutions:
    """Bindings of type parameters. Failed attempts leave them unchanged."""

    def __init__(self) -> None:
        self._bound: dict[str, Type] = {}
        self._undo: list[tuple[str, Type | None]] = []

    def are_assignable(self, sources: Sequence[Type], targets: Sequence[Type]) -> bool:
        """True if every source can be assigned to its target; binds parameters if so."""
        mark = len(self._undo)
        if self._assignable_all(sources, targets):
            if mark == 0:
                self._undo.clear()
            return True
        while len(self._undo) > mark:
            name, previous = self._undo.pop()
            if previous is None:
                del self._bound[name]
            else:
                self._bound[name] = previous
        return False

    def is_assignable(self, source: Type, target: Type) -> bool:
        return self.are_assignable((source,), (target,))

    def apply(self, type: Type, *, unbound_to_dyn: bool = False) -> Type:
        """The type with every bound parameter replaced."""
        if type.kind is TypeKind.PARAMETER:
            bound = self._bound.get(type.name)
            if bound is not None:
                return self.apply(bound, unbound_to_dyn=unbound_to_dyn)
            return DYN if unbound_to_dyn else type
        if not type.parameters:
            return type
        parameters = tuple(
            self.apply(parameter, unbound_to_dyn=unbound_to_dyn) for parameter in type.parameters
        )
        if parameters == type.parameters:
            return type
        return Type(type.kind, type.name, parameters, type.fields)

    # -- one attempt -------------------------------------------------------------------------------

    def _bind(self, parameter: Type, type: Type) -> None:
        self._undo.append((parameter.name, self._bound.get(parameter.name)))
        self._bound[parameter.name] = type

    def _assignable_all(self, sources: Sequence[Type], targets: Sequence[Type]) -> bool:
        if len(sources) != len(targets):
            return False
        return all(map(self._assignable, sources, targets))

    def _assignable(self, source: Type, target: Type) -> bool:
        if target.kind is TypeKind.PARAMETER:
            valid, is_bound = self._substitute(source, target)
            if valid or is_bound:
                return valid
        if source.kind is TypeKind.PARAMETER:
            return self._substitute(target, source)[0]
        if _is_wildcard(source) or _is_wildcard(target):
            return True
        if source.kind is TypeKind.NULL:
            return target.kind in _NULLABLE or target.kind is TypeKind.NULL
        if target.kind is TypeKind.NULL:
            return source.kind in _NULLABLE
        if source.kind is TypeKind.TYPE:
            return target.kind is TypeKind.TYPE
        return (
            source.kind is target.kind
            and source.name == target.name
            and self._assignable_all(source.parameters, target.parameters)
        )

    def _substitute(self, type: Type, parameter: Type) -> tuple[bool, bool]:
        """Whether the parameter may be bound to the type, and whether it was already bound."""
        if type == parameter:
            return True, True
        bound = self._bound.get(parameter.name)
        if bound is not None:
            if type == bound:
                return True, True
            if self._assignable(type, bound):
                general = most_general(type, bound)
                if self._is_free_of(parameter, general):
                    self._bind(parameter, general)
                return True, True
            return False, True
        if self._is_free_of(parameter, type):
            self._bind(parameter, type)
            return True, False
        return False, False

    def _is_free_of(self, parameter: Type, within: Type) -> bool:
        if parameter == within:
            return False
        if within.kind is TypeKind.PARAMETER:
            bound = self._bound.get(within.name)
            return bound is None or self._is_free_of(parameter, bound)
        return all(self._is_free_of(parameter, inner) for inner in within.parameters)


def most_general(first: Type, second: Type) -> Type:
    """The less specific of two types that are assignable to each other."""
    return first if _is_equal_or_less_specific(first, second) else second


def _is_wildcard(type: Type) -> bool:
    return type.is_dynamic or type.kind is TypeKind.ERROR


def _is_equal_or_less_specific(first: Type, second: Type) -> bool:
    if first.is_dynamic or first.kind is TypeKind.PARAMETER:
        return True
    if second.is_dynamic or second.kind is TypeKind.PARAMETER or first.kind is not second.kind:
        return False
    if first.kind is TypeKind.TYPE:
        return True
    if first.kind not in (TypeKind.OPAQUE, TypeKind.LIST, TypeKind.MAP):
        return first == second
    return (
        first.name == second.name
        and len(first.parameters) == len(second.parameters)
        and all(map(_is_equal_or_less_specific, first.parameters, second.parameters))
    )
