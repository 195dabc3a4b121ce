"""`'%s %d'.format([...])` at run time, and the compile-time check of literal calls."""

from __future__ import annotations

import math
from collections.abc import Callable

from kubesched.api.cel import operators, times
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.syntax import ListNode, MapNode, Node
from kubesched.api.cel.types import Type, TypeKind
from kubesched.api.cel.values import Duration, Timestamp, Uint, Value, type_of
from kubesched.base.logs import quoted as quote

_DEFAULT_PRECISION = 6
_MAX_PRECISION = 1000
"""Go allows a million digits; nothing needs them, and they would be free of charge."""

_ACCEPTED = {
    "s": "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, "
    "types, durations, and timestamps",
    "d": "decimal clause can only be used on integers",
    "f": "fixed-point clause can only be used on doubles",
    "e": "scientific clause can only be used on doubles",
    "b": "only integers and bools can be formatted as binary",
    "x": "only integers, byte buffers, and strings can be formatted as hex",
    "X": "only integers, byte buffers, and strings can be formatted as hex",
    "o": "octal clause can only be used on integers",
}
_STATIC_KINDS = {
    "s": (
        TypeKind.LIST,
        TypeKind.MAP,
        TypeKind.INT,
        TypeKind.UINT,
        TypeKind.DOUBLE,
        TypeKind.BOOL,
        TypeKind.STRING,
        TypeKind.TIMESTAMP,
        TypeKind.BYTES,
        TypeKind.DURATION,
        TypeKind.TYPE,
        TypeKind.NULL,
    ),
    "d": (TypeKind.INT, TypeKind.UINT),
    "f": (TypeKind.DOUBLE, TypeKind.STRING),
    "e": (TypeKind.DOUBLE, TypeKind.STRING),
    "b": (TypeKind.INT, TypeKind.UINT, TypeKind.BOOL),
    "x": (TypeKind.INT, TypeKind.UINT, TypeKind.STRING, TypeKind.BYTES),
    "X": (TypeKind.INT, TypeKind.UINT, TypeKind.STRING, TypeKind.BYTES),
    "o": (TypeKind.INT, TypeKind.UINT),
}


class _ClauseError(Exception):
    """A clause got a value it cannot format; `node` is set while compiling."""

    def __init__(self, clause: str, type: Type, node: Node | None = None) -> None:
        super().__init__(f"{_ACCEPTED[clause]}, was given {type.name}")
        self.node = node


def format_text(text: str, arguments: list[Value]) -> str:
    """The text with its clauses replaced by the arguments."""

    def interpolate(clause: str, precision: int, index: int) -> str:
        if index >= len(arguments):
            raise EvaluationError(f"index {index} out of range")
        return _format_clause(clause, precision, arguments[index])

    try:
        return _interpolated(text, interpolate, len(arguments))
    except _ClauseError as error:
        raise EvaluationError(f"error during formatting: {error}") from error


def check_format(text: str, arguments: list[Node], call: Node) -> tuple[Node, str] | None:
    """Problems of a call on a literal text with a literal list, with positions."""
    requested = 0

    def check(clause: str, _precision: int, index: int) -> str:
        nonlocal requested
        requested += 1
        _check_clause(clause, arguments[index])
        return ""

    try:
        _interpolated(text, check, len(arguments))
    except _ClauseError as error:
        return error.node or call, f"error during formatting: {error}"
    except EvaluationError as error:
        return call, str(error)
    if len(arguments) > requested:
        return (
            call,
            "too many arguments supplied to string.format "
            f"(expected {requested}, got {len(arguments)})",
        )
    return None


def _interpolated(text: str, interpolate: Callable[[str, int, int], str], count: int) -> str:
    parts: list[str] = []
    length = at = argument = 0
    while at < len(text):
        start = text.find("%", at)
        if start < 0:
            parts.append(text[at:])
            break
        parts.append(text[at:start])
        if text.startswith("%%", start):
            parts.append("%")
            at = start + 2
            continue
        if start + 1 >= len(text):
            raise EvaluationError(
                "unexpected end of string" if argument < count else f"index {argument} out of range"
            )
        if argument >= count:
            raise EvaluationError(f"index {argument} out of range")
        clause, precision, at = _clause(text, start + 1)
        parts.append(interpolate(clause, precision, argument))
        length += len(parts[-1])
        operators.checked_size(length)
        argument += 1
    return "".join(parts)


def _clause(text: str, at: int) -> tuple[str, int, int]:
    """A clause's letter, its precision (-1 if absent), and its end."""
    problem = "could not parse formatting clause: "
    precision = -1
    if text[at] == ".":
        end = at + 1
        while end < len(text) and text[end] in "0123456789":
            end += 1
        if end >= len(text):
            raise EvaluationError(
                f"{problem}error while parsing precision: could not find end of precision specifier"
            )
        digits = text[at + 1 : end]
        if not digits or len(digits) > 18:
            reason = "value out of range" if digits else "invalid syntax"
            raise EvaluationError(
                f"{problem}error while parsing precision: error while converting precision to "
                f'integer: strconv.Atoi: parsing "{digits}": {reason}'
            )
        precision, at = int(digits), end
    clause = text[at]
    if clause not in _ACCEPTED:
        shown = clause if clause.isascii() else chr(clause.encode(errors="replace")[0])
        raise EvaluationError(f'{problem}unrecognized formatting clause "{shown}"')
    return clause, precision, at + 1


def _check_clause(clause: str, node: Node) -> None:
    if node.type.kind is not TypeKind.DYN and node.type.kind not in _STATIC_KINDS[clause]:
        raise _ClauseError(clause, node.type, node)
    if clause != "s":
        return
    if isinstance(node, ListNode):
        for element in node.elements:
            _check_clause(clause, element)
    if isinstance(node, MapNode):
        for entry in node.entries:
            assert isinstance(entry.key, Node)
            _check_clause(clause, entry.key)
            _check_clause(clause, entry.value)


# -- clauses at run time ---------------------------------------------------------------------------


def _format_clause(clause: str, precision: int, value: Value) -> str:
    if clause == "s":
        return _string(value, [operators.MAX_VISITS])
    if clause in "fe":
        return _floating(clause, precision, value)
    if clause in "xX" and isinstance(value, str | bytes):
        data = value.encode(errors="replace") if isinstance(value, str) else value
        return data.hex().upper() if clause == "X" else data.hex()
    if clause == "b" and isinstance(value, bool):
        return "1" if value else "0"
    if type(value) is not int and type(value) is not Uint:
        raise _ClauseError(clause, type_of(value))
    return format(int(value), clause)


def _floating(clause: str, precision: int, value: Value) -> str:
    if value in ("NaN", "Infinity", "-Infinity") and isinstance(value, str):
        value = float(value)
    if type(value) is not float:
        raise _ClauseError(clause, type_of(value))
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    digits = min(precision if precision >= 0 else _DEFAULT_PRECISION, _MAX_PRECISION)
    if clause == "f":
        # Upstream prints with the locale en_US, which groups thousands.
        return f"{value:,.{digits}f}"
    # Upstream passes the precision as a width, so six digits are always printed.
    mantissa, _, exponent = f"{value:.{_DEFAULT_PRECISION}e}".partition("e")
    return f"{mantissa}\u202f×\u202f10{_superscript(int(exponent))}"


def _superscript(exponent: int) -> str:
    digits = f"{abs(exponent):02d}".translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"⁻{digits}" if exponent < 0 else digits


def _string(value: Value, budget: list[int]) -> str:
    """A value for `%s`."""
    budget[0] -= 1
    if budget[0] < 0:
        raise operators.Cancelled
    if isinstance(value, list | tuple):
        return f"[{', '.join(_nested(element, budget) for element in value)}]"
    if isinstance(value, dict):
        entries = sorted(
            (_map_key(key, budget), _nested(entry, budget)) for key, entry in value.items()
        )
        return f"{{{', '.join(f'{key}:{entry}' for key, entry in entries)}}}"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return operators.show_double(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Timestamp):
        return times.format_timestamp(value)
    if isinstance(value, Duration):
        return times.format_duration(value)
    if isinstance(value, Type):
        return value.name
    raise _ClauseError("s", type_of(value))


def _nested(value: Value, budget: list[int]) -> str:
    """A value inside a list or map, formatted as a CEL literal."""
    if isinstance(value, float):
        if math.isnan(value) or math.isinf(value):
            text = "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
            return f'"{text}"'
        return f"{value:.{_DEFAULT_PRECISION}f}"
    if isinstance(value, Timestamp | Duration):
        name = "timestamp" if isinstance(value, Timestamp) else "duration"
        return f"{name}({quote(_string(value, budget))})"
    known = type_of(value)
    if known.kind in (TypeKind.OPAQUE, TypeKind.OBJECT):
        raise EvaluationError(f"error during formatting: no formatting function for {known.name}")
    text = _string(value, budget)
    if isinstance(value, str):
        return quote(text)
    return f"b{quote(text)}" if isinstance(value, bytes) else text


def _map_key(key: Value, budget: list[int]) -> str:
    if isinstance(key, bool | int | str):
        return _nested(key, budget)
    raise EvaluationError(
        f"error during formatting: no formatting function for map key of type {type_of(key).name}"
    )
