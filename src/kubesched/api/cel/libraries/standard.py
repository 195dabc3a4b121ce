"""CEL's standard functions, operators and type names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from kubesched.api.cel import costs, macros, operators, regular_expressions, times, types
from kubesched.api.cel.environment import CallCost, Library, Overload, declare
from kubesched.api.cel.libraries import conversions
from kubesched.api.cel.operators import no_such_overload, unsupported
from kubesched.api.cel.values import NOTHING, Duration, Value, type_of


def _operator(
    name: str,
    call: Callable[..., Value],
    signatures: Iterable[str],
    costs_by_type: Mapping[str, CallCost] | None = None,
) -> Iterator[Overload]:
    """Overloads that share an implementation, which dispatches on types itself."""
    for signature in signatures:
        cost = (costs_by_type or {}).get(signature.partition(",")[0].removeprefix("("))
        yield declare(f"{name}{signature}", call, cost=cost, guarded=False)


def _same(*of: str) -> Iterator[str]:
    return (f"({type}, {type}) -> {type}" for type in of)


_NUMBERS = ("int", "uint", "double")
_COMPARISONS = [
    "(bool, bool) -> bool",
    *(f"({left}, {right}) -> bool" for left in _NUMBERS for right in _NUMBERS),
    *(f"({type}, {type}) -> bool" for type in ("string", "bytes", "timestamp", "duration")),
]
_TEXT_COSTS = dict.fromkeys(("string", "bytes"), costs.of_shorter_argument)
_ADDITION_COSTS = dict.fromkeys(("string", "bytes"), costs.of_both_arguments)

_OPERATORS = (
    declare("_?_:_(bool, A, A) -> A", guarded=False),
    declare("_&&_(bool, bool) -> bool", guarded=False),
    declare("_||_(bool, bool) -> bool", guarded=False),
    declare("_==_(A, A) -> bool", guarded=False),
    declare("_!=_(A, A) -> bool", guarded=False),
    declare("@not_strictly_false(bool) -> bool", guarded=False),
    declare("@in(A, list(A)) -> bool", guarded=False),
    declare("@in(A, map(A, B)) -> bool", guarded=False),
    declare("_[_](list(A), int) -> A", guarded=False),
    declare("_[_](map(A, B), A) -> B", guarded=False),
    *_operator("!_", operators.logical_not, ["(bool) -> bool"]),
    *_operator("-_", operators.negate, ["(double) -> double", "(int) -> int"]),
    *_operator(
        "_+_",
        operators.add,
        [
            *_same("bytes", "double", "duration"),
            "(duration, timestamp) -> timestamp",
            "(timestamp, duration) -> timestamp",
            *_same("int", "list(A)", "string", "uint"),
        ],
        _ADDITION_COSTS,
    ),
    *_operator(
        "_-_",
        operators.subtract,
        [
            *_same("double", "duration", "int"),
            "(timestamp, duration) -> timestamp",
            "(timestamp, timestamp) -> duration",
            *_same("uint"),
        ],
    ),
    *_operator("_*_", operators.multiply, _same("double", "int", "uint")),
    *_operator("_/_", operators.divide, _same("double", "int", "uint")),
    *_operator("_%_", operators.modulo, _same("int", "uint")),
    *_operator("_<_", operators.less, _COMPARISONS, _TEXT_COSTS),
    *_operator("_<=_", operators.less_equals, _COMPARISONS, _TEXT_COSTS),
    *_operator("_>_", operators.greater, _COMPARISONS, _TEXT_COSTS),
    *_operator("_>=_", operators.greater_equals, _COMPARISONS, _TEXT_COSTS),
)

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


def _test(name: str, call: Callable[..., Value], cost: CallCost) -> Overload:
    return declare(f".{name}(string, string) -> bool", call, cost=cost, guarded=False)


_TEXT = (
    _test("contains", _text_test(lambda text, part: part in text), costs.of_contains),
    _test("startsWith", _text_test(str.startswith), costs.of_first_argument),
    _test("endsWith", _text_test(str.endswith), costs.of_first_argument),
    declare(
        "matches(string, string) -> bool", _matches, guarded=False, specialize=_matches_constant
    ),
    declare(
        ".matches(string, string) -> bool",
        _matches,
        cost=costs.of_regex,
        guarded=False,
        specialize=_matches_constant,
    ),
    *(
        declare(f"{dot}size({type}) -> int", operators.size, guarded=False)
        for type in ("bytes", "list(A)", "map(A, B)", "string")
        for dot in ("", ".")
    ),
)

# -- time ------------------------------------------------------------------------------------------


def _part(name: str, of: Callable[[times.Parts], int]) -> Iterator[Overload]:
    yield declare(f".{name}(timestamp) -> int", lambda timestamp: of(times.Parts(timestamp)))
    yield declare(
        f".{name}(timestamp, string) -> int",
        lambda timestamp, zone: of(times.Parts(timestamp, zone)),
    )


def _duration_part(name: str, unit_nanos: int) -> Overload:
    def call(duration: Duration) -> int:
        whole = abs(duration.nanos) // unit_nanos
        return -whole if duration.nanos < 0 else whole

    return declare(f".{name}(duration) -> int", call)


_TIME = (
    *_part("getFullYear", lambda parts: parts.year),
    *_part("getMonth", lambda parts: parts.month - 1),
    *_part("getDayOfYear", lambda parts: parts.day_of_year),
    *_part("getDayOfMonth", lambda parts: parts.day - 1),
    *_part("getDate", lambda parts: parts.day),
    *_part("getDayOfWeek", lambda parts: parts.day_of_week),
    *_part("getHours", lambda parts: parts.hour),
    *_part("getMinutes", lambda parts: parts.minute),
    *_part("getSeconds", lambda parts: parts.second),
    *_part("getMilliseconds", lambda parts: parts.millisecond),
    _duration_part("getHours", 3600 * operators.SECOND),
    _duration_part("getMinutes", 60 * operators.SECOND),
    _duration_part("getSeconds", operators.SECOND),
    _duration_part("getMilliseconds", 1_000_000),
)

# -- conversions -----------------------------------------------------------------------------------

_CONVERSIONS = (
    declare("bool(bool) -> bool", conversions.identity),
    declare("bool(string) -> bool", conversions.text_to_bool),
    declare("bytes(bytes) -> bytes", conversions.identity),
    declare("bytes(string) -> bytes", conversions.text_to_bytes, cost=costs.of_first_argument),
    declare("double(double) -> double", conversions.identity),
    declare("double(int) -> double", float),
    declare("double(string) -> double", conversions.text_to_double),
    declare("double(uint) -> double", float),
    declare("duration(duration) -> duration", conversions.identity),
    declare("duration(int) -> duration", conversions.int_to_duration),
    declare("duration(string) -> duration", conversions.text_to_duration),
    declare("int(int) -> int", conversions.identity),
    declare("int(double) -> int", conversions.double_to_int),
    declare("int(duration) -> int", lambda duration: duration.nanos),
    declare("int(string) -> int", conversions.text_to_int),
    declare("int(timestamp) -> int", lambda timestamp: timestamp.nanos // operators.SECOND),
    declare("int(uint) -> int", conversions.uint_to_int),
    declare("string(string) -> string", conversions.identity),
    declare("string(bool) -> string", lambda value: "true" if value else "false"),
    declare("string(bytes) -> string", conversions.bytes_to_text, cost=costs.of_first_argument),
    declare("string(double) -> string", operators.show_double),
    declare("string(duration) -> string", times.format_duration),
    declare("string(int) -> string", str),
    declare("string(timestamp) -> string", times.format_timestamp),
    declare("string(uint) -> string", lambda value: str(int(value))),
    declare("timestamp(timestamp) -> timestamp", conversions.identity),
    declare("timestamp(int) -> timestamp", conversions.int_to_timestamp),
    declare("timestamp(string) -> timestamp", conversions.text_to_timestamp),
    declare("uint(uint) -> uint", conversions.identity),
    declare("uint(double) -> uint", conversions.double_to_uint),
    declare("uint(int) -> uint", operators.checked_uint),
    declare("uint(string) -> uint", conversions.text_to_uint),
    declare("dyn(A) -> dyn", conversions.identity, guarded=False),
    declare("type(A) -> type(A)", type_of, guarded=False),
)

_TYPES = (
    *types.parse_list("bool, bytes, double, duration, int, list(A), map(A, B)"),
    types.NULL,
    *types.parse_list("string, timestamp"),
    types.TYPE,
    types.UINT,
)

STANDARD = Library(
    "standard",
    (*_OPERATORS, *_TEXT, *_TIME, *_CONVERSIONS),
    macros.STANDARD,
    {type.name: type for type in _TYPES},
)
