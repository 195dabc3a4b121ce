"""The types of the language, for declaring variables and for the type checker.

types.STRING, types.list_of(types.INT), types.map_of(types.STRING, types.ANY)
types.object_type("kubernetes.DRADevice", {"driver": types.STRING})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache


class TypeKind(Enum):
    """The family a type belongs to."""

    ANY = "any"
    BOOL = "bool"
    BYTES = "bytes"
    DOUBLE = "double"
    DURATION = "duration"
    DYN = "dyn"
    ERROR = "error"
    INT = "int"
    LIST = "list"
    MAP = "map"
    NULL = "null"
    OPAQUE = "opaque"
    OBJECT = "object"
    PARAMETER = "parameter"
    STRING = "string"
    TIMESTAMP = "timestamp"
    TYPE = "type"
    UINT = "uint"


@dataclass(frozen=True, slots=True)
class Type:
    """A type, compared by kind, name and parameters. Also the value of `type(x)`."""

    kind: TypeKind
    name: str
    parameters: tuple[Type, ...] = ()
    fields: Mapping[str, Type] | None = field(default=None, compare=False, repr=False)
    """Object types only; None if it has functions but no fields."""

    def __str__(self) -> str:
        """As cel-go prints a type in Kubernetes' own messages."""
        if self.kind is TypeKind.PARAMETER:
            return f"<{self.name}>"
        if not self.parameters:
            return self.name
        return f"{self.name}({', '.join(map(str, self.parameters))})"

    @property
    def is_dynamic(self) -> bool:
        """True if values of every type are accepted and operations are resolved at run time."""
        return self.kind is TypeKind.DYN or self.kind is TypeKind.ANY


ANY = Type(TypeKind.ANY, "google.protobuf.Any")
BOOL = Type(TypeKind.BOOL, "bool")
BYTES = Type(TypeKind.BYTES, "bytes")
DOUBLE = Type(TypeKind.DOUBLE, "double")
DURATION = Type(TypeKind.DURATION, "google.protobuf.Duration")
DYN = Type(TypeKind.DYN, "dyn")
ERROR = Type(TypeKind.ERROR, "error")
INT = Type(TypeKind.INT, "int")
NULL = Type(TypeKind.NULL, "null_type")
STRING = Type(TypeKind.STRING, "string")
TIMESTAMP = Type(TypeKind.TIMESTAMP, "google.protobuf.Timestamp")
UINT = Type(TypeKind.UINT, "uint")
TYPE = Type(TypeKind.TYPE, "type")

QUANTITY = Type(TypeKind.OBJECT, "kubernetes.Quantity")
SEMVER = Type(TypeKind.OBJECT, "kubernetes.Semver")
URL = Type(TypeKind.OBJECT, "kubernetes.URL")
IP = Type(TypeKind.OPAQUE, "net.IP")
CIDR = Type(TypeKind.OPAQUE, "net.CIDR")
NAMED_FORMAT = Type(TypeKind.OBJECT, "kubernetes.NamedFormat")

OPTIONAL_NAME = "optional_type"


def list_of(element: Type) -> Type:
    return Type(TypeKind.LIST, "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type(TypeKind.MAP, "map", (key, value))


def optional_of(value: Type) -> Type:
    return Type(TypeKind.OPAQUE, OPTIONAL_NAME, (value,))


def type_of_type(of: Type) -> Type:
    """The type of a type's name: `int` in an expression has the type `type(int)`."""
    return Type(TypeKind.TYPE, "type", (of,))


def parameter(name: str) -> Type:
    """A type parameter of a generic function."""
    return Type(TypeKind.PARAMETER, name)


def has_parameters(type: Type) -> bool:
    """Whether a type parameter occurs in the type."""
    return type.kind is TypeKind.PARAMETER or any(map(has_parameters, type.parameters))


def object_type(name: str, fields: Mapping[str, Type]) -> Type:
    """A type with declared fields; others do not compile. Its values are mappings by field name."""
    return Type(TypeKind.OBJECT, name, (), dict(fields))


LIST = list_of(DYN)
MAP = map_of(DYN, DYN)

_NAMED = {
    **{type.name: type for type in (BOOL, BYTES, DOUBLE, DYN, INT, STRING, UINT)},
    "duration": DURATION,
    "timestamp": TIMESTAMP,
    "quantity": QUANTITY,
    "semver": SEMVER,
    "url": URL,
    "ip": IP,
    "cidr": CIDR,
    "format": NAMED_FORMAT,
}
_GENERIC: dict[str, Callable[..., Type]] = {
    "list": list_of,
    "map": map_of,
    "optional": optional_of,
    "type": type_of_type,
}


@cache
def parse_list(text: str) -> tuple[Type, ...]:
    """The types in `string, list(int), map(K, V)`; a capital letter is a type parameter."""
    parsed: list[Type] = []
    start = depth = 0
    for at, character in enumerate(f"{text}," if text else ""):
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            parsed.append(_parse(text[start:at].strip()))
            start = at + 1
    return tuple(parsed)


def _parse(text: str) -> Type:
    name, bracket, parameters = text.partition("(")
    if bracket:
        return _GENERIC[name](*parse_list(parameters.removesuffix(")")))
    return parameter(name) if len(name) == 1 and name.isupper() else _NAMED[name]
