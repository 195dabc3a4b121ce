"""Run-time type checks, where the type checker could not decide."""

from __future__ import annotations

from kubesched.api.cel.types import Type, TypeKind
from kubesched.api.cel.values import Value, type_of

_ANYTHING = (TypeKind.DYN, TypeKind.ANY, TypeKind.PARAMETER)


def has_type(declared: Type, value: Value) -> bool:
    """Upstream: only the first element of an aggregate is checked."""
    if declared.kind in _ANYTHING:
        return True
    if type_of(value).name != declared.name:
        return False
    if declared.kind is TypeKind.LIST:
        return not value or has_type(declared.parameters[0], value[0])
    if declared.kind is TypeKind.MAP and value:
        key, element = next(iter(value.items()))
        key_type, element_type = declared.parameters
        return has_type(key_type, key) and has_type(element_type, element)
    return True


def needs_guard(declared: Type, known: Type) -> bool:
    """Whether a value of static type `known` needs a check before its use as `declared`."""
    if declared.kind in _ANYTHING:
        return False
    if known.is_dynamic or known.kind is not declared.kind:
        return True
    if declared.kind in (TypeKind.LIST, TypeKind.MAP):
        return any(map(needs_guard, declared.parameters, known.parameters))
    return False
