"""Maximum cost and result size of calls: estimates of cel-go and of Kubernetes' libraries.

Estimates are by function, as in Kubernetes, or by overload (`Overload.id`), as in cel-go. Both
consider only the size bounds of the operands, not values, except for constants that determine a
list's length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kubesched.api.cel import types
from kubesched.api.cel.costs import LIST_CREATE, REGEX_FACTOR, STRING_FACTOR
from kubesched.api.cel.estimates import (
    MAX,
    UNKNOWN,
    Path,
    Size,
    exactly,
    product,
    scaled,
    total,
    wrapped,
)
from kubesched.api.cel.syntax import Literal, Node
from kubesched.api.cel.types import Type, TypeKind

DeclaredSize = Callable[[tuple[str, ...]], int | None]
"""Bound of `size()` for part of a declared variable (`estimates.Path`); None if undeclared."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An argument or the receiver of a call."""

    node: Node
    path: Path
    known_size: Size | None
    declared: DeclaredSize

    @property
    def size(self) -> Size:
        return UNKNOWN if self.known_size is None else self.known_size

    @property
    def element_size(self) -> Size:
        """Size of an element, if the operand is a list."""
        most = self.declared((*self.path.names, "@items")) if self.path else None
        return UNKNOWN if most is None else Size(0, most)

    @property
    def element_type(self) -> Type | None:
        parameters = self.node.type.parameters
        return parameters[0] if parameters else None


class CallEstimate(NamedTuple):
    """Estimate of one call, without its arguments."""

    cost: int
    size: Size | None = None
    """Size of the result, if known."""


Estimate = Callable[[Operand | None, Sequence[Operand]], CallEstimate | None]
"""Takes the receiver, if any, and the arguments; None if the estimate does not cover the call."""
OfMember = Callable[[Operand, Sequence[Operand]], CallEstimate | None]

_NOMINAL: Final = CallEstimate(1)


def _member(estimate: OfMember, *, arguments: int = 0) -> Estimate:
    """An estimate for calls with a receiver and at least this many arguments."""
    return lambda target, args: (
        None if target is None or len(args) < arguments else estimate(target, args)
    )


def _reading(size: Size) -> int:
    """The cost of reading text."""
    return scaled(size.most, STRING_FACTOR)


def _read(size: Size, result: Size | None = None) -> CallEstimate:
    return CallEstimate(_reading(size), result)


# -- by function -----------------------------------------------------------------------------------


def _parsing(_target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    return _read(args[0].size) if args else None


def _parsing_url(_target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    return _read(args[0].size, args[0].size) if len(args) == 1 else None


def _parsing_twice(_target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    return CallEstimate(scaled(args[0].size.most, 2 * STRING_FACTOR)) if args else None


def _validate(_target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    longest_pattern = 128
    return CallEstimate(scaled(_reading(args[0].size), longest_pattern * REGEX_FACTOR))


def _looking_through(target: Operand, _args: Sequence[Operand]) -> CallEstimate:
    """`max`, `indexOf` and others: visits every element once, and also reads strings and bytes."""
    element = target.element_type
    if element is None:  # a string
        return _read(target.size)
    per_element = 1
    if element.kind in (TypeKind.STRING, TypeKind.BYTES):
        per_element = total(per_element, _reading(target.element_size))
    return CallEstimate(product(target.size.most, per_element))


def _replace(target: Operand, args: Sequence[Operand]) -> CallEstimate:
    text, old, new = target.size, args[0].size, args[1].size
    kept_most = kept_least = 0
    if old.least == 0:  # an empty string matches around every character
        most, kept_most = total(text.most, 1), text.most
    elif new.most <= old.least:
        most, kept_most = 0, text.most
    else:
        most = _quotient(text.most, old.least)
    if old.most == 0:
        least, kept_least = total(text.least, 1), text.least
    elif old.most <= new.least:
        least, kept_least = 0, text.least
    else:
        least = _quotient(text.least, old.most)
    size = Size(least, most).times(new).plus(Size(kept_least, kept_most))
    return CallEstimate(scaled(text.most, 2 * STRING_FACTOR), size)


def _quotient(amount: int, divisor: int) -> int:
    """Upstream: a result beyond 64 bits becomes 1 << 63, as Go converts it on common processors."""
    rounded = math.ceil(float(amount) / float(divisor))
    return rounded if rounded < 1 << 64 else 1 << 63


def _split(target: Operand, args: Sequence[Operand]) -> CallEstimate:
    most = target.size.most
    if len(args) > 1:
        limit = args[1].node
        if isinstance(limit, Literal) and type(limit.value) is int:
            most = wrapped(limit.value)
    return CallEstimate(scaled(target.size.most, 2 * STRING_FACTOR), Size(0, most))


def _join(target: Operand, args: Sequence[Operand]) -> CallEstimate:
    elements, size = target.size, exactly(0)
    if target.element_type is not None:
        size = elements.times(target.element_size)
    if args:
        gaps = Size(max(elements.least - 1, 0), max(elements.most - 1, 0))
        size = size.plus(args[0].size.times(gaps))
    return _read(size, size)


def _searching(text: Size, pattern: Size, result: Size | None = None) -> CallEstimate:
    of_text = scaled(total(text.most, 1), STRING_FACTOR)
    return CallEstimate(product(of_text, scaled(pattern.most, REGEX_FACTOR)), result)


_ADDRESS: Final = Size(4, 16)
"""Bytes of an IP address."""


def _containment(masking: int) -> Estimate:
    def estimate(_target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
        is_parsed = args[0].node.type in (types.IP, types.CIDR)
        text = 0 if is_parsed else _reading(args[0].size)
        return CallEstimate(total(_reading(_ADDRESS.plus(_ADDRESS)), masking, text))

    return estimate


def _equality(_target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    """Equality of Kubernetes' own types; None for all others."""
    of = args[0].node.type
    if of != args[1].node.type:
        return None
    if of in (types.IP, types.CIDR, types.QUANTITY, types.SEMVER):
        return _NOMINAL
    if of == types.NAMED_FORMAT:
        longest_format = 64
        return CallEstimate(scaled(longest_format, STRING_FACTOR))
    if of == types.URL:
        # Upstream: only the right-hand side is looked at.
        size = args[1].known_size
        return CallEstimate(scaled(1 if size is None else size.most, STRING_FACTOR))
    return None


BY_FUNCTION: Final[Mapping[str, Estimate]] = {
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _member(_looking_through)
    ),
    **dict.fromkeys(
        ("lowerAscii", "upperAscii", "substring", "trim"),
        _member(lambda text, _args: _read(text.size, text.size)),
    ),
    **dict.fromkeys(("cidr", "isIP", "isCIDR"), _parsing),
    **dict.fromkeys(("quantity", "isQuantity", "semver", "isSemver"), _parsing),
    **dict.fromkeys(
        ("find", "findAll"),
        _member(
            lambda text, args: _searching(text.size, args[0].size, Size(0, text.size.most)),
            arguments=1,
        ),
    ),
    "url": _parsing_url,
    "replace": _member(_replace, arguments=2),
    "split": _member(_split),
    "join": _member(_join),
    "ip": lambda target, args: _NOMINAL if target is not None else _parsing(target, args),
    "ip.isCanonical": _parsing_twice,
    "containsIP": _containment(0),
    "containsCIDR": _containment(_reading(_ADDRESS) + 1),
    "validate": _validate,
    "_==_": _equality,
}
"""Kubernetes' libraries. Functions missing here and below cost 1."""

# -- by overload -----------------------------------------------------------------------------------


def _comparison(_target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    return CallEstimate(scaled(min(args[0].size.most, args[1].size.most), STRING_FACTOR))


def _concatenation(_target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    size = args[0].size.plus(args[1].size)
    return _read(size, size)


def _sets(factor: float) -> Estimate:
    def estimate(_target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
        return CallEstimate(total(scaled(args[0].size.times(args[1].size).most, factor), 1))

    return estimate


def _new_list(factor: float, size: Size) -> CallEstimate:
    return CallEstimate(total(scaled(size.most, factor), 1, LIST_CREATE), size)


def _slice(target: Operand, args: Sequence[Operand]) -> CallEstimate:
    end = _constant(args[1], target.size.most)
    return _new_list(1, exactly(wrapped(end - _constant(args[0], 0))))


def _flatten(target: Operand, args: Sequence[Operand]) -> CallEstimate:
    depth = _constant(args[0], MAX) if args else 1
    return _new_list(float(depth), target.size)


def _sorting(factor: float) -> Estimate:
    def estimate(target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
        keys = args[0] if args else target
        return None if keys is None else _new_list(factor, keys.size.times(keys.size))

    return estimate


def _constant(operand: Operand, otherwise: int) -> int:
    node = operand.node
    if not isinstance(node, Literal) or type(node.value) is not int:
        return otherwise
    return max(node.value, 0)


_SORTABLE: Final = ("bool", "double", "int", "uint", "duration", "timestamp", "string", "bytes")
_TEXTS: Final = ("string", "bytes")

BY_OVERLOAD: Final[Mapping[str, Estimate]] = {
    "bytes(string)": lambda _target, args: _read(
        args[0].size, Size(args[0].size.least, wrapped(args[0].size.most * 4))
    ),
    "string(bytes)": lambda _target, args: _read(
        args[0].size, Size(args[0].size.least // 4, args[0].size.most)
    ),
    "strings.quote(string)": lambda _target, args: _read(
        args[0].size, Size(wrapped(args[0].size.least + 2), wrapped(args[0].size.most * 2 + 2))
    ),
    ".format(string, list(dyn))": _member(lambda text, _args: _read(text.size)),
    ".startsWith(string, string)": _parsing,
    ".endsWith(string, string)": _parsing,
    "@in(A, list(A))": lambda _target, args: CallEstimate(scaled(args[1].size.most, 1)),
    ".matches(string, string)": _member(lambda text, args: _searching(text.size, args[0].size)),
    ".contains(string, string)": _member(
        lambda text, args: CallEstimate(product(_reading(text.size), _reading(args[0].size)))
    ),
    "_==_(A, A)": _comparison,
    "_!=_(A, A)": _comparison,
    **{
        f"{operator}({text}, {text})": _comparison
        for operator in ("_<_", "_<=_", "_>_", "_>=_")
        for text in _TEXTS
    },
    "_+_(string, string)": _concatenation,
    "_+_(bytes, bytes)": _concatenation,
    "_+_(list(A), list(A))": lambda _target, args: CallEstimate(1, args[0].size.plus(args[1].size)),
    "sets.contains(list(T), list(T))": _sets(1),
    "sets.intersects(list(T), list(T))": _sets(1),
    "sets.equivalent(list(T), list(T))": _sets(2),
    ".slice(list(T), int, int)": _member(_slice),
    "lists.range(int)": lambda _target, args: _new_list(1, exactly(_constant(args[0], MAX))),
    ".reverse(list(T))": _member(lambda elements, _args: _new_list(1, elements.size)),
    ".flatten(list(list(T)))": _member(_flatten),
    ".flatten(list(dyn), int)": _member(_flatten),
    ".distinct(list(T))": _member(lambda it, _args: _new_list(2.0, it.size.times(it.size))),
    **{
        f".{sort}list({of}))": _sorting(2.0 + STRING_FACTOR if of in _TEXTS else 2.0)
        for of in _SORTABLE
        for sort in ("sort(", "@sortByAssociatedKeys(list(T), ")
    },
}
"""cel-go's functions, operators and list extensions."""
