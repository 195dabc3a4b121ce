"""Kubernetes' `find` and `findAll`."""

from __future__ import annotations

from collections.abc import Callable

from kubesched.api.cel import costs, regular_expressions
from kubesched.api.cel.environment import Library, member
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.operators import no_such_overload
from kubesched.api.cel.regular_expressions import Regex
from kubesched.api.cel.types import INT, STRING, list_of
from kubesched.api.cel.values import NOTHING, Value

_TEXTS = list_of(STRING)


def _compiled(pattern: str) -> Regex:
    try:
        return regular_expressions.compile(pattern)
    except EvaluationError as error:
        raise EvaluationError(f"Illegal regex: {error}") from error


def _find(text: str, pattern: str) -> str:
    return _compiled(pattern).find(text)


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    return _compiled(pattern).find_all(text, limit)


def _specialize(
    search: Callable[..., Value],
) -> Callable[[tuple[Value, ...]], Callable[..., Value] | None]:
    """Compiles a constant pattern once; an invalid pattern fails the whole expression."""

    def specialize(constants: tuple[Value, ...]) -> Callable[..., Value] | None:
        pattern = constants[1]
        if pattern is NOTHING or type(pattern) is not str:
            return None
        compiled = regular_expressions.compile(pattern)

        def call(text: Value, _pattern: Value, *limit: Value) -> Value:
            if type(text) is not str or any(type(bound) is not int for bound in limit):
                raise no_such_overload()
            return search(compiled, text, *limit)

        return call

    return specialize


REGEX = Library(
    "kubernetes.regex",
    {
        "find": member(
            "string_find_string",
            (STRING, STRING),
            STRING,
            _find,
            specialize=_specialize(Regex.find),
        ),
        "findAll": (
            member(
                "string_find_all_string",
                (STRING, STRING),
                _TEXTS,
                _find_all,
                specialize=_specialize(Regex.find_all),
            ),
            member(
                "string_find_all_string_int",
                (STRING, STRING, INT),
                _TEXTS,
                _find_all,
                specialize=_specialize(Regex.find_all),
            ),
        ),
    },
    costs={"find": costs.of_regex, "findAll": costs.of_regex},
)
