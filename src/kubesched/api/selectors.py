"""Label selectors: conditions on the labels of an object.

A selector is built from an API `LabelSelector`, from a plain map, or from text such as `app in
(a,b),!canary`. Selectors are immutable values: two with equivalent requirements are equal and hash
alike even if written differently, so they serve as keys.

Absent and empty differ: an absent selector selects nothing, an empty one selects everything.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from kubesched.api import field_errors
from kubesched.api.field_errors import FieldError
from kubesched.api.meta import LabelSelector
from kubesched.api.names import label_key_problems, label_value_problems
from kubesched.api.quantity import MAX_INT64, MIN_INT64
from kubesched.base.errors import KubeschedError

Labels = Mapping[str, str]

_NO_LABELS: Labels = {}
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)


class SelectorError(KubeschedError, ValueError):
    """The selector cannot be built; the message is upstream's, `problems` its parts."""

    def __init__(self, *problems: str) -> None:
        super().__init__(field_errors.aggregate(problems))
        self.problems = problems


class Operator(Enum):
    """How a requirement relates a label to values; the values are upstream's spellings."""

    IN = "in"
    NOT_IN = "notin"
    EQUALS = "="
    DOUBLE_EQUALS = "=="
    NOT_EQUALS = "!="
    GREATER_THAN = "gt"
    LESS_THAN = "lt"
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"


_BINARY_OPERATORS = ("in", "notin", "=", "==", "!=", "gt", "lt")
# Spellings that mean the same.
_MEANING = {
    Operator.EQUALS: Operator.IN,
    Operator.DOUBLE_EQUALS: Operator.IN,
    Operator.NOT_EQUALS: Operator.NOT_IN,
}


def parse_int64(text: str) -> int | None:
    """A base-10 int64 as Go's strconv reads it, or None."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if MIN_INT64 <= number <= MAX_INT64 else None


class Requirement:
    """One condition on one label. Use `new_requirement` for untrusted input."""

    __slots__ = ("_bound", "_identity", "key", "meaning", "operator", "values")

    def __init__(self, key: str, operator: Operator, values: Sequence[str] = ()) -> None:
        self.key = key
        self.operator = operator
        """As written."""
        self.meaning = _MEANING.get(operator, operator)
        """Canonical operator for spellings of the same test."""
        self.values = tuple(values)
        self._identity = (key, self.meaning.value, tuple(sorted(set(self.values))))
        self._bound: int | None = None
        if operator in (Operator.GREATER_THAN, Operator.LESS_THAN) and len(self.values) == 1:
            self._bound = parse_int64(self.values[0])

    def matches(self, labels: Labels) -> bool:
        value = labels.get(self.key)
        meaning = self.meaning
        if meaning is Operator.IN:
            return value is not None and value in self.values
        if meaning is Operator.NOT_IN:
            return value is None or value not in self.values
        if meaning is Operator.EXISTS:
            return value is not None
        if meaning is Operator.DOES_NOT_EXIST:
            return value is None
        number = None if value is None else parse_int64(value)
        if number is None or self._bound is None:
            return False
        return number > self._bound if meaning is Operator.GREATER_THAN else number < self._bound

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Requirement) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __str__(self) -> str:
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case Operator.IN | Operator.NOT_IN:
                return f"{self.key} {self.operator.value} ({','.join(sorted(self.values))})"
            case Operator.GREATER_THAN:
                return f"{self.key}>{','.join(self.values)}"
            case Operator.LESS_THAN:
                return f"{self.key}<{','.join(self.values)}"
        return f"{self.key}{self.operator.value}{','.join(self.values)}"

    def __repr__(self) -> str:
        return f"<Requirement {self}>"


def new_requirement(
    key: str, operator: Operator, values: Sequence[str] | None, path: str = ""
) -> Requirement:
    """A checked requirement; raises SelectorError with every problem under `path`."""
    problems: list[FieldError] = []
    if wrong := label_key_problems(key):
        problems.append(
            field_errors.invalid(field_errors.child(path, "key"), key, "; ".join(wrong))
        )
    values_path = field_errors.child(path, "values")
    problems += _value_count_problems(operator, values, values_path)
    for i, value in enumerate(values or ()):
        if wrong := label_value_problems(value):
            at = f"{values_path}[{i}][{key}]"
            problems.append(field_errors.invalid(at, value, "; ".join(wrong)))
    if problems:
        raise SelectorError(*map(str, problems))
    return Requirement(key, operator, values or ())


def _value_count_problems(
    operator: Operator, values: Sequence[str] | None, path: str
) -> list[FieldError]:
    count = len(values or ())
    detail = ""
    match operator:
        case Operator.IN | Operator.NOT_IN:
            if count == 0:
                detail = "for 'in', 'notin' operators, values set can't be empty"
        case Operator.EQUALS | Operator.DOUBLE_EQUALS | Operator.NOT_EQUALS:
            if count != 1:
                detail = "exact-match compatibility requires one single value"
        case Operator.EXISTS | Operator.DOES_NOT_EXIST:
            if count != 0:
                detail = "values set must be empty for exists and does not exist"
        case Operator.GREATER_THAN | Operator.LESS_THAN:
            if count != 1:
                detail = "for 'Gt', 'Lt' operators, exactly one value is required"
    problems = [field_errors.invalid(path, values, detail)] if detail else []
    if operator in (Operator.GREATER_THAN, Operator.LESS_THAN):
        problems += (
            field_errors.invalid(
                f"{path}[{i}]", value, "for 'Gt', 'Lt' operators, the value must be an integer"
            )
            for i, value in enumerate(values or ())
            if parse_int64(value) is None
        )
    return problems


class Selector:
    """Requirements that must all hold, or the selector that selects nothing."""

    __slots__ = ("_equal", "_hash", "_identity", "_other", "requirements", "selects_nothing")

    def __init__(
        self, requirements: Iterable[Requirement] = (), *, selects_nothing: bool = False
    ) -> None:
        self.requirements = tuple(sorted(requirements, key=lambda r: r.key))
        self.selects_nothing = selects_nothing
        self._identity = (selects_nothing, frozenset(self.requirements))
        self._hash = hash(self._identity)
        # Equalities are the most common and cheapest test, so they go first.
        self._equal = tuple((r.key, r.values[0]) for r in self.requirements if _pins(r))
        self._other = tuple(r for r in self.requirements if not _pins(r))

    def matches(self, labels: Labels | None) -> bool:
        if self.selects_nothing:
            return False
        if labels is None:
            labels = _NO_LABELS
        for key, value in self._equal:
            if labels.get(key) != value:
                return False
        for requirement in self._other:  # noqa: SIM110 - a generator costs more than the test
            if not requirement.matches(labels):
                return False
        return True

    def is_empty(self) -> bool:
        """True if nothing is required. False for the selector that selects nothing."""
        return not self.requirements and not self.selects_nothing

    def add(self, *requirements: Requirement) -> Selector:
        """This selector with more requirements; one that selects nothing stays so."""
        if self.selects_nothing:
            return self
        return Selector((*self.requirements, *requirements))

    @property
    def required_pair(self) -> tuple[str, str] | None:
        """A label and value that every selected object has; None if no single one is required."""
        return self._equal[0] if self._equal else None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Selector) and self._identity == other._identity)

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return ",".join(str(requirement) for requirement in self.requirements)

    def __repr__(self) -> str:
        return "<Selector nothing>" if self.selects_nothing else f"<Selector {str(self) or 'all'}>"


def _pins(requirement: Requirement) -> bool:
    """True when exactly one value satisfies the requirement."""
    return requirement.meaning is Operator.IN and len(requirement.values) == 1


EVERYTHING = Selector()
NOTHING = Selector(selects_nothing=True)

API_OPERATORS = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
}


def from_label_selector(selector: LabelSelector | None) -> Selector:
    """Converts an API label selector: None selects nothing, an empty one everything.

    Pods of one workload have the same selectors, so recent ones are cached: they are built once,
    and comparing them is mostly an identity check.
    """
    if selector is None:
        return NOTHING
    labels, expressions = selector.match_labels, selector.match_expressions
    if not labels and not expressions:
        return EVERYTHING
    written = tuple(labels.items()) if labels else ()
    if not expressions:
        return (_built if len(written) <= _FEW_WORDS else _built.__wrapped__)(written, ())
    tests = tuple((e.key, e.operator, tuple(e.values or ())) for e in expressions)
    size = len(written) + sum(1 + len(values) for _, _, values in tests)
    return (_built if size <= _FEW_WORDS else _built.__wrapped__)(written, tests)


_FEW_WORDS = 64
"""Selectors with more labels and values are not cached: authors of pods could fill the cache."""


@functools.lru_cache(maxsize=8192)
def _built(
    labels: tuple[tuple[str, str], ...],
    expressions: tuple[tuple[str, str, tuple[str, ...]], ...],
) -> Selector:
    requirements = [new_requirement(key, Operator.EQUALS, (value,)) for key, value in labels]
    for key, written, values in expressions:
        operator = API_OPERATORS.get(written)
        if operator is None:
            raise SelectorError(f'"{written}" is not a valid label selector operator')
        requirements.append(new_requirement(key, operator, values or None))
    return Selector(requirements)


def from_map(labels: Mapping[str, str] | None) -> Selector:
    """Equality with every entry of a map, unchecked; None and empty select everything."""
    if not labels:
        return EVERYTHING
    return Selector(Requirement(key, Operator.EQUALS, (value,)) for key, value in labels.items())


def parse(text: str) -> Selector:
    """Parses a selector, as in `labelSelector=` of a list call."""
    return Selector(_Parser(text).requirements())


_TOKEN = re.compile(r"[ \t\r\n]*(==|!=|[=!(),<>]|[^=!(),<> \t\r\n]+|$)")
_SYMBOLS = frozenset(("==", "!=", "=", "!", "(", ")", ",", "<", ">"))
_TEXT_OPERATORS = {
    "in": Operator.IN,
    "notin": Operator.NOT_IN,
    "=": Operator.EQUALS,
    "==": Operator.DOUBLE_EQUALS,
    "!=": Operator.NOT_EQUALS,
    ">": Operator.GREATER_THAN,
    "<": Operator.LESS_THAN,
}


class _Parser:
    """Recursive descent over tokens; the empty token stands for the end of the text.

    selector    = [ requirement { "," requirement } ]
    requirement = [ "!" ] key | key ( "=" | "==" | "!=" | ">" | "<" ) [ value ]
                | key ( "in" | "notin" ) "(" [ value ] { "," [ value ] } ")"
    """

    def __init__(self, text: str) -> None:
        self._tokens = _tokenize(text)
        self._position = 0

    def requirements(self) -> list[Requirement]:
        requirements: list[Requirement] = []
        if self._peek() == "":
            return requirements
        while True:
            token = self._peek()
            if not _is_identifier(token) and token != "!":
                expected = (
                    "identifier after ','" if requirements else "!, identifier, or 'end of string'"
                )
                raise SelectorError(f"found '{token}', expected: {expected}")
            try:
                requirements.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            token = self._next()
            if token == "":
                return requirements
            if token != ",":
                raise SelectorError(f"found '{token}', expected: ',' or 'end of string'")

    def _requirement(self) -> Requirement:
        token = self._next()
        negated = token == "!"
        key = self._next() if negated else token
        if not _is_identifier(key):
            raise SelectorError(f"found '{key}', expected: identifier")
        if wrong := label_key_problems(key):
            raise SelectorError(str(field_errors.invalid("<nil>", key, "; ".join(wrong))))
        if negated:
            return new_requirement(key, Operator.DOES_NOT_EXIST, None)
        if self._peek() in ("", ","):
            return new_requirement(key, Operator.EXISTS, None)
        token = self._next()
        operator = _TEXT_OPERATORS.get(token)
        if operator is None:
            raise SelectorError(f"found '{token}', expected: {', '.join(_BINARY_OPERATORS)}")
        if operator in (Operator.IN, Operator.NOT_IN):
            return new_requirement(key, operator, sorted(self._value_set()))
        return new_requirement(key, operator, [self._value()])

    def _value(self) -> str:
        if self._peek() in ("", ","):
            return ""
        token = self._next()
        if not _is_identifier(token):
            raise SelectorError(f"found '{token}', expected: identifier")
        return token

    def _value_set(self) -> set[str]:
        token = self._next()
        if token != "(":
            raise SelectorError(f"found '{token}' expected: '('")
        values: set[str] = set()
        expected = "',', ')' or identifier"
        while True:
            token = self._next()
            if _is_identifier(token):
                values.add(token)
                token = self._next()
                if token not in (",", ")"):
                    raise SelectorError(f"found '{token}', expected: ',' or ')'")
            elif token in (",", ")"):
                values.add("")
            else:
                raise SelectorError(f"found '{token}', expected: {expected}")
            if token == ")":
                return values
            expected = "',', or identifier"

    def _peek(self) -> str:
        return self._tokens[self._position]

    def _next(self) -> str:
        token = self._tokens[self._position]
        if token:
            self._position += 1
        return token


def _tokenize(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    while not tokens or tokens[-1]:
        token = _TOKEN.match(text, position)
        assert token is not None, "every character starts some token"
        tokens.append(token.group(1))
        position = token.end()
    return tokens


def _is_identifier(token: str) -> bool:
    return token != "" and token not in _SYMBOLS
