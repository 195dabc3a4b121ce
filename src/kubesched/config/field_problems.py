"""Field problems in Kubernetes' wording, as `FieldProblem`.

The path is separate from the message, so that a position can be added and `str(problem)` reads like
upstream's error followed by line and column.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from kubesched.api import field_errors
from kubesched.base.errors import FieldProblem

_LONGEST_VALUE = 400  # keeps errors readable


def required(path: str, detail: str = "") -> FieldProblem:
    return _problem(field_errors.required(path, detail))


def invalid(path: str, value: object, detail: str) -> FieldProblem:
    return _problem(field_errors.invalid(path, _shortened(value), detail))


def duplicate(path: str, value: object) -> FieldProblem:
    return _problem(field_errors.duplicate(path, _shortened(value)))


def forbidden(path: str, detail: str) -> FieldProblem:
    return _problem(field_errors.forbidden(path, detail))


def not_supported(path: str, value: str, supported: Iterable[str]) -> FieldProblem:
    return _problem(field_errors.not_supported(path, _shortened(value), supported))


def shown(value: object) -> str:
    """A value as quoted in messages: compact JSON, long texts cut."""
    return json.dumps(_shortened(value), ensure_ascii=False, separators=(",", ":"))


def _shortened(value: object) -> object:
    if isinstance(value, str) and len(value) > _LONGEST_VALUE:
        return f"{value[:_LONGEST_VALUE]}..."
    return value


def _problem(error: field_errors.FieldError) -> FieldProblem:
    return FieldProblem(error.path, error.body())
