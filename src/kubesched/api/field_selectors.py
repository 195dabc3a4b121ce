"""Field selectors: `metadata.name=x,status.phase!=Failed`.

Only equality and inequality exist. The server defines the fields of a kind; here a field that is
not in the given map reads as the empty string. In text, commas, equals signs and backslashes inside
a value are escaped with a backslash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kubesched.api.selectors import SelectorError


class FieldRequirement(NamedTuple):
    """One field that must, or must not, have a value."""

    field: str
    is_equal: bool
    value: str

    def matches(self, fields: Mapping[str, str]) -> bool:
        return (fields.get(self.field, "") == self.value) is self.is_equal

    def __str__(self) -> str:
        return f"{self.field}{'=' if self.is_equal else '!='}{escape_value(self.value)}"


class FieldSelector:
    """Field requirements that must all hold; an empty selector selects everything."""

    __slots__ = ("_identity", "requirements")

    def __init__(self, requirements: Iterable[FieldRequirement] = ()) -> None:
        self.requirements = tuple(requirements)
        self._identity = frozenset(self.requirements)

    def matches(self, fields: Mapping[str, str]) -> bool:
        return all(requirement.matches(fields) for requirement in self.requirements)

    def is_empty(self) -> bool:
        return not self.requirements

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldSelector) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __str__(self) -> str:
        return ",".join(str(requirement) for requirement in self.requirements)

    def __repr__(self) -> str:
        return f"<FieldSelector {self}>"


def parse(text: str) -> FieldSelector:
    """Parses a selector, as in `fieldSelector=` of a list call."""
    requirements = []
    for term in sorted(_split_terms(text)):
        if not term:
            continue
        field, operator, value = _split_term(term)
        if not operator:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
        requirement = FieldRequirement(field, operator != "!=", _unescape_value(value))
        if requirement.field or requirement.value:  # Upstream: `=` alone asks for nothing.
            requirements.append(requirement)
    return FieldSelector(requirements)


def escape_value(value: str) -> str:
    """Escapes a value for use in a field selector."""
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


def _split_terms(text: str) -> list[str]:
    terms, start, escaped = [], 0, False
    for i, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == ",":
            terms.append(text[start:i])
            start = i + 1
    terms.append(text[start:])
    return terms


def _split_term(term: str) -> tuple[str, str, str]:
    """(field, operator, value) at the first operator; nothing can be escaped left of it."""
    for i in range(len(term)):
        for operator in ("!=", "==", "="):
            if term.startswith(operator, i):
                return term[:i], operator, term[i + len(operator) :]
    return "", "", ""


def _unescape_value(value: str) -> str:
    plain, escaped = [], False
    for character in value:
        if escaped:
            if character not in "\\,=":
                raise SelectorError(
                    f"invalid field selector: invalid escape sequence: \\{character}"
                )
            plain.append(character)
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in ",=":
            # Upstream: the character is shown as its number.
            raise SelectorError(
                f"invalid field selector: unescaped character in value: {ord(character)}"
            )
        else:
            plain.append(character)
    if escaped:
        raise SelectorError("invalid field selector: invalid escape sequence: \\")
    return "".join(plain)
