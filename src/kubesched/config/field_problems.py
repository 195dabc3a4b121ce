"""The five ways in which Kubernetes says that a field is wrong, word for word.

The path and the position in the file stay apart from the message (`FieldProblem`), so that
`str(problem)` reads like upstream's error followed by line and column.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from kubesched.errors import FieldProblem


def required(path: str, detail: str = "") -> FieldProblem:
    return FieldProblem(path, _join("Required value", detail))


def invalid(path: str, value: object, detail: str) -> FieldProblem:
    return FieldProblem(path, _join(f"Invalid value: {shown(value)}", detail))


def duplicate(path: str, value: object) -> FieldProblem:
    return FieldProblem(path, f"Duplicate value: {shown(value)}")


def forbidden(path: str, detail: str) -> FieldProblem:
    return FieldProblem(path, _join("Forbidden", detail))


def not_supported(path: str, value: object, supported: Iterable[str]) -> FieldProblem:
    choices = ", ".join(shown(choice) for choice in supported)
    return FieldProblem(path, f"Unsupported value: {shown(value)}: supported values: {choices}")


def shown(value: object) -> str:
    """A value as upstream quotes it: compact JSON, long ones cut."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


_LONGEST_VALUE = 400  # an error is to be read, not to repeat the file


def _join(what: str, detail: str) -> str:
    return f"{what}: {detail}" if detail else what
