"""Validation problems of one field, in upstream's form: `spec.replicas: Invalid value: -1: ...`.

A problem is a value, not an exception: validation collects them and reports all at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

import msgspec


class ErrorType(Enum):
    """The kind of problem: machine-readable cause, and the start of the message."""

    NOT_FOUND = ("FieldValueNotFound", "Not found")
    REQUIRED = ("FieldValueRequired", "Required value")
    DUPLICATE = ("FieldValueDuplicate", "Duplicate value")
    INVALID = ("FieldValueInvalid", "Invalid value")
    NOT_SUPPORTED = ("FieldValueNotSupported", "Unsupported value")
    FORBIDDEN = ("FieldValueForbidden", "Forbidden")
    TOO_LONG = ("FieldValueTooLong", "Too long")
    TOO_MANY = ("FieldValueTooMany", "Too many")
    TYPE_INVALID = ("FieldValueTypeInvalid", "Invalid value")

    @property
    def reason(self) -> str:
        """The cause type in a Status."""
        return self.value[0]

    @property
    def words(self) -> str:
        return self.value[1]


_WITHOUT_VALUE = (ErrorType.REQUIRED, ErrorType.FORBIDDEN, ErrorType.TOO_LONG)


OMITTED: Any = msgspec.UNSET
"""Replaces a value that is too large to show."""


class FieldError(msgspec.Struct, frozen=True):
    """One problem of one field."""

    kind: ErrorType
    path: str
    value: Any = None
    detail: str = ""

    def body(self) -> str:
        """The message without the field's name."""
        text = self.kind.words
        if self.kind not in _WITHOUT_VALUE and self.value is not OMITTED:
            text += f": {_shown(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.path}: {self.body()}"


def not_found(path: str, value: object) -> FieldError:
    return FieldError(ErrorType.NOT_FOUND, path, value)


def required(path: str, detail: str = "") -> FieldError:
    return FieldError(ErrorType.REQUIRED, path, "", detail)


def duplicate(path: str, value: object) -> FieldError:
    return FieldError(ErrorType.DUPLICATE, path, value)


def invalid(path: str, value: object, detail: str) -> FieldError:
    return FieldError(ErrorType.INVALID, path, value, detail)


def type_invalid(path: str, value: object, detail: str) -> FieldError:
    return FieldError(ErrorType.TYPE_INVALID, path, value, detail)


def not_supported(path: str, value: object, supported: Iterable[str]) -> FieldError:
    listed = ", ".join(_shown(choice) for choice in supported)
    return FieldError(ErrorType.NOT_SUPPORTED, path, value, f"supported values: {listed}")


def forbidden(path: str, detail: str) -> FieldError:
    return FieldError(ErrorType.FORBIDDEN, path, "", detail)


def too_long(path: str, limit: int) -> FieldError:
    unit = "byte" if limit == 1 else "bytes"
    return FieldError(ErrorType.TOO_LONG, path, "", f"may not be more than {limit} {unit}")


def too_many(path: str, actual: int, limit: int) -> FieldError:
    unit = "item" if limit == 1 else "items"
    return FieldError(ErrorType.TOO_MANY, path, actual, f"must have at most {limit} {unit}")


def child(path: str, *names: str) -> str:
    """The path of a member; the empty path is the root."""
    return ".".join((path, *names)) if path else ".".join(names)


def aggregate(problems: Sequence[object]) -> str:
    """Several messages as one, without duplicates: `[a, b]`, or just `a`."""
    messages = list(dict.fromkeys(str(problem) for problem in problems))
    return messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, str):
        return text
    # Upstream: Go's encoder escapes what means something in HTML.
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")
