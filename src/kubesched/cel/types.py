"""The types of the language: what variables are declared with and the type checker computes.

types.STRING, types.list_of(types.INT), types.map_of(types.STRING, types.ANY)
types.object_type("kubernetes.DRADevice", {"driver": types.STRING})
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
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

    kind: Kind
    name: str
    parameters: tuple[Type, ...] = ()
    fields: Mapping[str, Type] = field(default_factory=dict, compare=False, repr=False)
    """Of an object type only."""

    def __str__(self) -> str:
        """As cel-go prints a type in Kubernetes' own messages."""
        if self.kind is Kind.PARAMETER:
            return f"<{self.name}>"
        if not self.parameters:
            return self.name
        return f"{self.name}({', '.join(map(str, self.parameters))})"

    @property
    def is_dynamic(self) -> bool:
        """True if values of every type are accepted and operations are resolved at run time."""
        return self.kind is Kind.DYN or self.kind is Kind.ANY


ANY = Type(Kind.ANY, "google.protobuf.Any")
BOOL = Type(Kind.BOOL, "bool")
BYTES = Type(Kind.BYTES, "bytes")
DOUBLE = Type(Kind.DOUBLE, "double")
DURATION = Type(Kind.DURATION, "google.protobuf.Duration")
DYN = Type(Kind.DYN, "dyn")
ERROR = Type(Kind.ERROR, "error")
INT = Type(Kind.INT, "int")
NULL = Type(Kind.NULL, "null_type")
STRING = Type(Kind.STRING, "string")
TIMESTAMP = Type(Kind.TIMESTAMP, "google.protobuf.Timestamp")
UINT = Type(Kind.UINT, "uint")
TYPE = Type(Kind.TYPE, "type")

QUANTITY = Type(Kind.OBJECT, "kubernetes.Quantity")
SEMVER = Type(Kind.OBJECT, "kubernetes.Semver")
URL = Type(Kind.OBJECT, "kubernetes.URL")
IP = Type(Kind.OPAQUE, "net.IP")
CIDR = Type(Kind.OPAQUE, "net.CIDR")
NAMED_FORMAT = Type(Kind.OBJECT, "kubernetes.NamedFormat")

OPTIONAL_NAME = "optional_type"


def list_of(element: Type) -> Type:
    return Type(Kind.LIST, "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type(Kind.MAP, "map", (key, value))


def optional_of(value: Type) -> Type:
    return Type(Kind.OPAQUE, OPTIONAL_NAME, (value,))


def type_of_type(of: Type) -> Type:
    """The type of a type's name: `int` in an expression has the type `type(int)`."""
    return Type(Kind.TYPE, "type", (of,))


def parameter(name: str) -> Type:
    """A type parameter of a generic function."""
    return Type(Kind.PARAMETER, name)


def has_parameters(type: Type) -> bool:
    """Whether a type parameter occurs in the type."""
    return type.kind is Kind.PARAMETER or any(map(has_parameters, type.parameters))


def object_type(name: str, fields: Mapping[str, Type]) -> Type:
    """A type with declared fields: others do not compile. Its values are mappings by field name."""
    return Type(Kind.OBJECT, name, (), dict(fields))


LIST = list_of(DYN)
MAP = map_of(DYN, DYN)
