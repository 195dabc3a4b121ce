"""Manifest files with the Go template actions that workload files use.

An action is an expression of `.Index`, `.Count` or another parameter, variables, numbers, strings,
and scheduler_perf's functions (`Mod .Index 12`, `(or .numRequests 1) | Int`), an assignment, or one
of `range`, `if`, `else` and `end`. A template without actions is parsed once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kubesched.api.yaml_nodes import Node, Plain, is_json, parse, to_plain
from kubesched.base.errors import ConfigError, FieldProblem

Manifest = dict[str, Any]
Value = Plain

_ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.DOTALL)
_TOKEN = re.compile(
    r'\s*(?:([()|])|("[^"]*")|(-?\d+\.\d+|-?\d+)|(\$\w+|\.\w*|[A-Za-z_]\w*|:=)|(\S))'
)
_CACHED_TEXTS = 1000


class Template:
    """One file; `render` creates the object with a given number out of `count`."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self._text = text
        self.has_actions = "{{" in text
        self._parts: Sequence[_Part] | None = None
        self._parsed: dict[str, Manifest] = {}

    def render(
        self, index: int = 0, count: int = 1, params: Mapping[str, Value] | None = None
    ) -> Manifest:
        """Render the object. The caller owns its top level and metadata; deeper parts are shared.

        Raises:
            ConfigError: an action is not supported, or the result is not an object.
        """
        text = self._text
        if self.has_actions:
            values = {**(params or {}), "Index": index, "Count": count}
            try:
                if self._parts is None:
                    self._parts, _ = _parts(_pieces(text), "")
                text = _rendered(self._parts, _Scope(values, {}))
            except _ActionError as error:
                problem = FieldProblem("", f"template action {error}", error.line, 1)
                raise ConfigError([problem], source=self.path) from None
        made = self._parsed.get(text)
        if made is None:
            if len(self._parsed) >= _CACHED_TEXTS:
                self._parsed.clear()
            made = self._parsed[text] = self._parse(text)
        return {**made, "metadata": dict(made.get("metadata") or {})}

    def _parse(self, text: str) -> Manifest:
        data = text.encode()
        problems: list[FieldProblem] = []

        def report(path: str, message: str, node: Node) -> None:
            problems.append(FieldProblem(path, message, node.line, node.column))

        made = to_plain(parse(data, self.path), "", report, json=is_json(data))
        problems += [
            FieldProblem(field, "Required value: a template is one object")
            for field in ("apiVersion", "kind")
            if not isinstance(made, dict) or not isinstance(made.get(field), str)
        ]
        if problems or not isinstance(made, dict):
            raise ConfigError(problems, source=self.path)
        _with_exact_names(made)
        return made


@cache
def load_template(path: str) -> Template:
    """Load a template from a file.

    Raises:
        OSError: the file cannot be read.
        ConfigError: it is not a template of one object.
    """
    template = Template(path, Path(path).read_text(encoding="utf-8"))
    if not template.has_actions:
        template.render()
    return template


def _with_exact_names(made: Manifest) -> None:
    # Upstream: Go's decoder does not mind the case of field names, and one of upstream's own
    # templates relies on it.
    spec = made.get("spec")
    constraints = spec.get("topologySpreadConstraints") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(constraints, list):
        return
    spec["topologySpreadConstraints"] = [
        {name[:1].lower() + name[1:]: value for name, value in constraint.items()}
        if isinstance(constraint, dict)
        else constraint
        for constraint in constraints
    ]


# -- actions ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scope:
    """What names mean at a place of the template."""

    dot: Value
    variables: dict[str, Value]


_Expression = Callable[[_Scope], Value]


class _ActionError(ValueError):
    def __init__(self, action: re.Match[str], error: ValueError) -> None:
        super().__init__(f"{action[0]}: {error}")
        self.line = action.string.count("\n", 0, action.start()) + 1


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of text, or an action with what it encloses."""

    text: str = ""
    action: re.Match[str] | None = None
    keyword: str = ""
    """`range`, `if`, or empty."""
    variable: str = ""
    """The variable that is set, or that counts."""
    expression: _Expression = lambda _scope: None
    body: Sequence[_Part] = ()
    otherwise: Sequence[_Part] = ()


def _pieces(text: str) -> Iterator[str | re.Match[str]]:
    end, trims = 0, False
    for action in _ACTION.finditer(text):
        before = text[end : action.start()]
        before = before.lstrip() if trims else before
        yield before.rstrip() if action[1] else before
        yield action
        end, trims = action.end(), bool(action[3])
    yield text[end:].lstrip() if trims else text[end:]


def _parts(pieces: Iterator[str | re.Match[str]], inside: str) -> tuple[list[_Part], str]:
    """The parts up to the end of this block, and the word that ends it."""
    parts: list[_Part] = []
    for piece in pieces:
        if isinstance(piece, str):
            parts.append(_Part(piece))
            continue
        keyword, _, condition = piece[2].partition(" ")
        if keyword in ("end", "else") and inside:
            return parts, keyword
        try:
            if keyword in ("range", "if"):
                variable, expression = _assigned(condition)
                body, ending = _parts(pieces, keyword)
                otherwise = _parts(pieces, keyword)[0] if ending == "else" else ()
                parts.append(_Part("", piece, keyword, variable, expression, body, otherwise))
            else:
                parts.append(_Part("", piece, "", *_assigned(piece[2])))
        except _ActionError:
            raise
        except ValueError as error:
            raise _ActionError(piece, error) from None
    if inside:
        raise ValueError(f"{inside} has no end")
    return parts, ""


def _rendered(parts: Sequence[_Part], scope: _Scope) -> str:
    return "".join(_output(part, scope) for part in parts)


def _output(part: _Part, scope: _Scope) -> str:
    if part.action is None:
        return part.text
    try:
        if part.keyword == "if":
            inner = _Scope(scope.dot, dict(scope.variables))
            holds = _argument(part.expression, scope, "if")
            return _rendered(part.body if holds else part.otherwise, inner)
        value = part.expression(scope)
        if part.keyword == "range":
            return _repeated(part, scope, value)
        if part.variable:
            scope.variables[part.variable] = value
            return ""
        return _as_text(value)
    except _ActionError:
        raise
    except ValueError as error:
        raise _ActionError(part.action, error) from None


def _repeated(part: _Part, scope: _Scope, value: Value) -> str:
    items = range(value) if isinstance(value, int) else value
    if not isinstance(items, range | list):
        raise ValueError("range takes a whole number or a list")
    texts = []
    for item in items:
        if part.variable:
            inner = _Scope(scope.dot, {**scope.variables, part.variable: item})
        else:
            inner = _Scope(item, dict(scope.variables))
        texts.append(_rendered(part.body, inner))
    return "".join(texts)


# -- expressions -----------------------------------------------------------------------------------


def _assigned(text: str) -> tuple[str, _Expression]:
    """The variable that an action sets, if any, and the value."""
    tokens = [match for match in _TOKEN.finditer(text) if match[0].strip()]
    if len(tokens) > 1 and tokens[1][4] == ":=":
        return tokens[0][0].strip(), _pipeline(iter(tokens[2:]), nested=False)
    return "", _pipeline(iter(tokens), nested=False)


def _pipeline(tokens: Iterator[re.Match[str]], *, nested: bool) -> _Expression:
    """Commands separated by `|`: the value of one is the last argument of the next."""
    commands: list[list[_Expression | str]] = [[]]
    for token in tokens:
        mark, text, number, word, other = token.groups()
        if mark == "(":
            commands[-1].append(_pipeline(tokens, nested=True))
        elif mark == "|":
            commands.append([])
        elif mark == ")" and nested:
            return _composed(commands)
        elif text is not None:
            commands[-1].append(_constant(text[1:-1]))
        elif number is not None:
            commands[-1].append(_constant(float(number) if "." in number else int(number)))
        elif word == "nil":
            commands[-1].append(_constant(None))
        elif word is not None and word[0] in "$.":
            commands[-1].append(_named(word))
        elif word is not None:
            commands[-1].append(word)
        else:
            raise ValueError(f"unexpected {other or mark!r}")
    if nested:
        raise ValueError("a parenthesis is not closed")
    return _composed(commands)


def _composed(commands: Sequence[Sequence[_Expression | str]]) -> _Expression:
    composed = _call(commands[0])
    for command in commands[1:]:
        composed = _call([*command, composed])
    return composed


def _constant(value: Value) -> _Expression:
    return lambda _scope: value


def _named(word: str) -> _Expression:
    def look_up(scope: _Scope) -> Value:
        if word == ".":
            return scope.dot
        if word.startswith("$"):
            if word not in scope.variables:
                raise ValueError(f"no variable {word}")
            return scope.variables[word]
        values = scope.dot if isinstance(scope.dot, Mapping) else {}
        if word[1:] not in values:
            known = ", ".join(f".{name}" for name in sorted(values))
            raise _NoParameter(f"no parameter {word}; there are {known}")
        return values[word[1:]]

    return look_up


class _NoParameter(ValueError):
    """A parameter without a value; `or` and conditions take it as empty."""


def _call(terms: Sequence[_Expression | str]) -> _Expression:
    if not terms:
        raise ValueError("nothing to evaluate")
    first, *arguments = terms
    expressions = [argument for argument in arguments if not isinstance(argument, str)]
    if not isinstance(first, str):
        if arguments:
            raise ValueError("a value takes no arguments")
        return first
    function = _FUNCTIONS.get(first)
    if function is None:
        raise ValueError(f"no function {first}; there are {', '.join(_FUNCTIONS)}")
    if len(expressions) < len(arguments):
        raise ValueError("a function that is an argument needs parentheses")

    def evaluate(scope: _Scope) -> Value:
        try:
            return function(*[_argument(argument, scope, first) for argument in expressions])
        except (TypeError, ZeroDivisionError) as error:
            raise ValueError(str(error)) from None

    return evaluate


def _argument(expression: _Expression, scope: _Scope, function: str) -> Value:
    try:
        return expression(scope)
    except _NoParameter:
        if function not in ("if", "or", "eq"):
            raise
        return None


def _number(value: Value) -> float:
    if isinstance(value, int | float | str):
        return float(value)
    raise TypeError(f"{value!r} is no number")


def _sum(*numbers: Value) -> float:
    return sum(map(_number, numbers))


def _product(*numbers: Value) -> float:
    product = 1.0
    for number in numbers:
        product *= _number(number)
    return product


_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "AddFloat": _sum,
    "AddInt": lambda *numbers: int(_sum(*numbers)),
    "SubtractFloat": lambda a, b: _number(a) - _number(b),
    "SubtractInt": lambda a, b: int(_number(a) - _number(b)),
    "MultiplyFloat": _product,
    "MultiplyInt": lambda *numbers: int(_product(*numbers)),
    "DivideFloat": lambda a, b: _number(a) / _number(b),
    "DivideInt": lambda a, b: int(_number(a) / _number(b)),
    "Mod": lambda a, b: int(_number(a)) % int(_number(b)),
    "Int": lambda value: int(_number(value)),
    "JSON": json.dumps,
    "or": lambda *values: next((value for value in values if value), values[-1]),
    "eq": lambda a, b: a == b,
    "ge": lambda a, b: a >= b,
}


def _as_text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
