"""How values of the language are held in Python.

| CEL | Python |
|---|---|
| bool, int, double, string, bytes, null | `bool`, `int`, `float`, `str`, `bytes`, `None` |
| uint | `Uint` |
| list, map, object | `list` (or `tuple`), `dict`, `dict` by field name |
| duration, timestamp | `Duration`, `Timestamp`, both in nanoseconds |
| optional | `Optional` |
| type | `types.Type` |
| Quantity | `kubesched.api.quantity.Quantity` |

The other Kubernetes types have a class in the module of their library. A class can take part in
expressions by naming its type in an attribute `cel_type`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, TypeAlias

from kubesched.api.cel import types
from kubesched.api.cel.types import Type
from kubesched.api.quantity import Quantity

Value: TypeAlias = Any
"""A value of the language in its Python form."""

MAX_INT: Final = 2**63 - 1
MIN_INT: Final = -(2**63)
MAX_UINT: Final = 2**64 - 1


class Uint(int):
    """An unsigned 64-bit integer. Equal to the `int` of the same value, as in CEL."""

    __slots__ = ()
    cel_type: ClassVar[Type] = types.UINT


class Duration:
    """A span of time in nanoseconds, at most about 292 years either way."""

    __slots__ = ("nanos",)
    cel_type: ClassVar[Type] = types.DURATION

    def __init__(self, nanos: int) -> None:
        self.nanos = nanos

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(("duration", self.nanos))

    def __repr__(self) -> str:
        return f"Duration({self.nanos})"


class Timestamp:
    """A point in time, in nanoseconds since 1970 UTC, and the offset it was written with."""

    __slots__ = ("nanos", "offset_seconds")
    cel_type: ClassVar[Type] = types.TIMESTAMP

    def __init__(self, nanos: int, offset_seconds: int = 0) -> None:
        self.nanos = nanos
        self.offset_seconds = offset_seconds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(("timestamp", self.nanos))

    def __repr__(self) -> str:
        return f"Timestamp({self.nanos})"


class _Nothing:
    """The content of an empty optional; distinct from null."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Final = _Nothing()


class Optional:
    """`optional.of(x)`, or `optional.none()` if `value` is NOTHING."""

    __slots__ = ("value",)
    cel_type: ClassVar[Type] = types.optional_of(types.DYN)

    def __init__(self, value: Value = NOTHING) -> None:
        self.value = value

    @property
    def has_value(self) -> bool:
        return self.value is not NOTHING

    def __repr__(self) -> str:
        return f"Optional({self.value!r})"


NONE: Final = Optional()


class DefaultMap(dict[str, Value]):
    """A map in which every key can be looked up: absent ones have the value `default`.

    Selection, indexing and `has()` always find a value; `in`, `size()` and comprehensions see only
    existing entries.
    """

    __slots__ = ("default",)

    def __init__(self, entries: dict[str, Value], default: Value) -> None:
        super().__init__(entries)
        self.default = default

    def __missing__(self, key: str) -> Value:
        return self.default


_TYPES: dict[type, Type] = {
    bool: types.BOOL,
    int: types.INT,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BYTES,
    list: types.LIST,
    tuple: types.LIST,
    dict: types.MAP,
    DefaultMap: types.MAP,
    type(None): types.NULL,
    Quantity: types.QUANTITY,
    Type: types.TYPE,
}


def type_of(value: Value) -> Type:
    """The run-time type of a value."""
    known = _TYPES.get(type(value))
    if known is not None:
        return known
    declared: Type = value.cel_type
    return declared
