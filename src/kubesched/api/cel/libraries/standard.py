"""CEL's standard functions, operators and type names."""

from __future__ import annotations

from collections.abc import Callable

from kubesched.api.cel import costs, macros, operators, regular_expressions, times, types
from kubesched.api.cel.environment import CallCost, Library, Overload, member
from kubesched.api.cel.libraries import conversions
from kubesched.api.cel.operators import no_such_overload, unsupported
from kubesched.api.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
)
from kubesched.api.cel.values import NOTHING, Duration, Value, type_of

_A, _B = types.parameter("A"), types.parameter("B")
_LIST_A, _MAP_AB = list_of(_A), map_of(_A, _B)

_SHORT = {
    BOOL: "bool",
    BYTES: "bytes",
    DOUBLE: "double",
    DURATION: "duration",
    INT: "int64",
    STRING: "string",
    TIMESTAMP: "timestamp",
    UINT: "uint64",
}


def _operator(
    name: str,
    call: Callable[..., Value],
    signatures: list[tuple[tuple[Type, ...], Type]],
    costs_by_type: dict[Type, CallCost] | None = None,
) -> tuple[Overload, ...]:
    """Overloads that share an implementation, which dispatches on types itself."""
    costs = costs_by_type or {}
    return tuple(
        Overload(
            f"{name}_{'_'.join(_SHORT.get(argument, argument.name) for argument in arguments)}",
            arguments,
            result,
            call,
            cost=costs.get(arguments[0]),
            guarded=False,
        )
        for arguments, result in signatures
    )


def _same(*of: Type) -> list[tuple[tuple[Type, ...], Type]]:
    return [((type, type), type) for type in of]


_NUMBERS = (INT, UINT, DOUBLE)
_COMPARISONS: list[tuple[tuple[Type, ...], Type]] = [
    ((BOOL, BOOL), BOOL),
    *(((left, right), BOOL) for left in _NUMBERS for right in _NUMBERS),
    *(((type, type), BOOL) for type in (STRING, BYTES, TIMESTAMP, DURATION)),
]
_TEXT_COSTS: dict[Type, CallCost] = {
    STRING: costs.of_shorter_argument,
    BYTES: costs.of_shorter_argument,
}


def _evaluated_elsewhere(*_args: Value) -> Value:
    """Placeholder for functions that the planner implements."""
    raise no_such_overload()


def form(id: str, arguments: tuple[Type, ...], result: Type, *, member: bool = False) -> Overload:
    """An overload that only the checker uses."""
    return Overload(id, arguments, result, _evaluated_elsewhere, member=member, guarded=False)


_OPERATORS: dict[str, Overload | tuple[Overload, ...]] = {
    "_?_:_": form("conditional", (BOOL, _A, _A), _A),
    "_&&_": form("logical_and", (BOOL, BOOL), BOOL),
    "_||_": form("logical_or", (BOOL, BOOL), BOOL),
    "_==_": form("equals", (_A, _A), BOOL),
    "_!=_": form("not_equals", (_A, _A), BOOL),
    "@not_strictly_false": form("not_strictly_false", (BOOL,), BOOL),
    "@in": (form("in_list", (_A, _LIST_A), BOOL), form("in_map", (_A, _MAP_AB), BOOL)),
    "_[_]": (
        form("index_list", (_LIST_A, INT), _A),
        form("index_map", (_MAP_AB, _A), _B),
    ),
    "!_": _operator("logical_not", operators.logical_not, [((BOOL,), BOOL)]),
    "-_": _operator("negate", operators.negate, [((DOUBLE,), DOUBLE), ((INT,), INT)]),
    "_+_": _operator(
        "add",
        operators.add,
        [
            *_same(BYTES, DOUBLE, DURATION),
            ((DURATION, TIMESTAMP), TIMESTAMP),
            ((TIMESTAMP, DURATION), TIMESTAMP),
            *_same(INT, _LIST_A, STRING, UINT),
        ],
        {STRING: costs.of_both_arguments, BYTES: costs.of_both_arguments},
    ),
    "_-_": _operator(
        "subtract",
        operators.subtract,
        [
            *_same(DOUBLE, DURATION, INT),
            ((TIMESTAMP, DURATION), TIMESTAMP),
            ((TIMESTAMP, TIMESTAMP), DURATION),
            *_same(UINT),
        ],
    ),
    "_*_": _operator("multiply", operators.multiply, _same(DOUBLE, INT, UINT)),
    "_/_": _operator("divide", operators.divide, _same(DOUBLE, INT, UINT)),
    "_%_": _operator("modulo", operators.modulo, _same(INT, UINT)),
    "_<_": _operator("less", operators.less, _COMPARISONS, _TEXT_COSTS),
    "_<=_": _operator("less_equals", operators.less_equals, _COMPARISONS, _TEXT_COSTS),
    "_>_": _operator("greater", operators.greater, _COMPARISONS, _TEXT_COSTS),
    "_>=_": _operator("greater_equals", operators.greater_equals, _COMPARISONS, _TEXT_COSTS),
}

# -- text ------------------------------------------------------------------------------------------


def _text_test(test: Callable[[str, str], bool]) -> Callable[[Value, Value], bool]:
    def call(text: Value, part: Value) -> bool:
        if type(text) is not str or type(part) is not str:
            raise no_such_overload()
        return test(text, part)

    return call


def _matches(text: Value, pattern: Value) -> bool:
    if type(text) is not str:
        raise unsupported("matches", text)
    if type(pattern) is not str:
        raise no_such_overload()
    return regular_expressions.compile(pattern).matches(text)


def _matches_constant(constants: tuple[Value, ...]) -> Callable[..., Value] | None:
    if constants[1] is NOTHING or type(constants[1]) is not str:
        return None
    compiled = regular_expressions.compile(constants[1])

    def call(text: Value, _pattern: Value) -> bool:
        if type(text) is not str:
            raise no_such_overload()
        return compiled.matches(text)

    return call


def _member_text(id: str, call: Callable[..., Value], cost: CallCost) -> Overload:
    return member(id, (STRING, STRING), BOOL, call, cost=cost, guarded=False)


_TEXT: dict[str, Overload | tuple[Overload, ...]] = {
    "contains": _member_text(
        "contains_string", _text_test(lambda text, part: part in text), costs.of_contains
    ),
    "startsWith": _member_text(
        "starts_with_string", _text_test(str.startswith), costs.of_first_argument
    ),
    "endsWith": _member_text("ends_with_string", _text_test(str.endswith), costs.of_first_argument),
    "matches": (
        Overload(
            "matches", (STRING, STRING), BOOL, _matches, guarded=False, specialize=_matches_constant
        ),
        member(
            "matches_string",
            (STRING, STRING),
            BOOL,
            _matches,
            cost=costs.of_regex,
            guarded=False,
            specialize=_matches_constant,
        ),
    ),
    "size": tuple(
        Overload(f"size_{type.name}", (type,), INT, operators.size, member=member, guarded=False)
        for type in (BYTES, _LIST_A, _MAP_AB, STRING)
        for member in (False, True)
    ),
}

# -- time ------------------------------------------------------------------------------------------


def _part(of: Callable[[times.Parts], int]) -> tuple[Overload, ...]:
    return (
        member("timestamp_part", (TIMESTAMP,), INT, lambda timestamp: of(times.Parts(timestamp))),
        member(
            "timestamp_part_with_tz",
            (TIMESTAMP, STRING),
            INT,
            lambda timestamp, zone: of(times.Parts(timestamp, zone)),
        ),
    )


def _duration_part(unit_nanos: int) -> Overload:
    def call(duration: Duration) -> int:
        whole = abs(duration.nanos) // unit_nanos
        return -whole if duration.nanos < 0 else whole

    return member("duration_part", (DURATION,), INT, call)


_TIME: dict[str, tuple[Overload, ...]] = {
    "getFullYear": _part(lambda parts: parts.year),
    "getMonth": _part(lambda parts: parts.month - 1),
    "getDayOfYear": _part(lambda parts: parts.day_of_year),
    "getDayOfMonth": _part(lambda parts: parts.day - 1),
    "getDate": _part(lambda parts: parts.day),
    "getDayOfWeek": _part(lambda parts: parts.day_of_week),
    "getHours": (*_part(lambda parts: parts.hour), _duration_part(3600 * operators.SECOND)),
    "getMinutes": (*_part(lambda parts: parts.minute), _duration_part(60 * operators.SECOND)),
    "getSeconds": (*_part(lambda parts: parts.second), _duration_part(operators.SECOND)),
    "getMilliseconds": (*_part(lambda parts: parts.millisecond), _duration_part(1_000_000)),
}

# -- conversions -----------------------------------------------------------------------------------

_CONVERSIONS: dict[str, tuple[tuple[Type, Callable[[Value], Value]], ...]] = {
    "bool": ((BOOL, conversions.identity), (STRING, conversions.text_to_bool)),
    "bytes": ((BYTES, conversions.identity), (STRING, conversions.text_to_bytes)),
    "double": (
        (DOUBLE, conversions.identity),
        (INT, float),
        (STRING, conversions.text_to_double),
        (UINT, float),
    ),
    "duration": (
        (DURATION, conversions.identity),
        (INT, conversions.int_to_duration),
        (STRING, conversions.text_to_duration),
    ),
    "int": (
        (INT, conversions.identity),
        (DOUBLE, conversions.double_to_int),
        (DURATION, lambda duration: duration.nanos),
        (STRING, conversions.text_to_int),
        (TIMESTAMP, lambda timestamp: timestamp.nanos // operators.SECOND),
        (UINT, conversions.uint_to_int),
    ),
    "string": (
        (STRING, conversions.identity),
        (BOOL, lambda value: "true" if value else "false"),
        (BYTES, conversions.bytes_to_text),
        (DOUBLE, operators.show_double),
        (DURATION, times.format_duration),
        (INT, str),
        (TIMESTAMP, times.format_timestamp),
        (UINT, lambda value: str(int(value))),
    ),
    "timestamp": (
        (TIMESTAMP, conversions.identity),
        (INT, conversions.int_to_timestamp),
        (STRING, conversions.text_to_timestamp),
    ),
    "uint": (
        (UINT, conversions.identity),
        (DOUBLE, conversions.double_to_uint),
        (INT, operators.checked_uint),
        (STRING, conversions.text_to_uint),
    ),
}
_RESULTS = dict(
    zip(_CONVERSIONS, (BOOL, BYTES, DOUBLE, DURATION, INT, STRING, TIMESTAMP, UINT), strict=True)
)
_CONVERSION_COSTS: dict[tuple[str, Type], CallCost] = {
    ("bytes", STRING): costs.of_first_argument,
    ("string", BYTES): costs.of_first_argument,
}


def _conversion(name: str) -> tuple[Overload, ...]:
    return tuple(
        Overload(
            f"{_SHORT[source]}_to_{name}",
            (source,),
            _RESULTS[name],
            call,
            cost=_CONVERSION_COSTS.get((name, source)),
        )
        for source, call in _CONVERSIONS[name]
    )


_FUNCTIONS: dict[str, Overload | tuple[Overload, ...]] = {
    **_OPERATORS,
    **_TEXT,
    **_TIME,
    **{name: _conversion(name) for name in _CONVERSIONS},
    "dyn": Overload("to_dyn", (_A,), DYN, conversions.identity, guarded=False),
    "type": Overload("type", (_A,), types.type_of_type(_A), type_of, guarded=False),
}

STANDARD = Library(
    "standard",
    _FUNCTIONS,
    macros.STANDARD,
    {
        type.name: type
        for type in (
            BOOL,
            BYTES,
            DOUBLE,
            DURATION,
            INT,
            _LIST_A,
            _MAP_AB,
            types.NULL,
            STRING,
            TIMESTAMP,
            types.TYPE,
            UINT,
        )
    },
)
