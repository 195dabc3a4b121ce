"""Kubernetes' `find` and `findAll`."""

from __future__ import annotations

from collections.abc import Callable

from kubesched.api.cel import costs, regular_expressions
from kubesched.api.cel.environment import Library, declare
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.operators import no_such_overload
from kubesched.api.cel.regular_expressions import Regex
from kubesched.api.cel.values import NOTHING, Value


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


_FIND, _FIND_ALL = _specialize(Regex.find), _specialize(Regex.find_all)

REGEX = Library(
    "kubernetes.regex",
    (
        declare(".find(string, string) -> string", _find, specialize=_FIND),
        declare(".findAll(string, string) -> list(string)", _find_all, specialize=_FIND_ALL),
        declare(".findAll(string, string, int) -> list(string)", _find_all, specialize=_FIND_ALL),
    ),
    costs={"find": costs.of_regex, "findAll": costs.of_regex},
)
