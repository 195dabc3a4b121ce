"""Manifest files with the Go template actions that workload files use.

An action is an expression of `.Index`, `.Count` or another parameter, numbers, strings, and the
arithmetic functions of scheduler_perf (`Mod .Index 12`, `AddInt 1 (DivideInt .Index 2)`).
Conditions, loops and pipelines are rejected. A template without actions is parsed once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kubesched.base.errors import ConfigError, FieldProblem
from kubesched.config.yaml_nodes import Node, Plain, is_json, parse, to_plain

Manifest = dict[str, Any]
Value = int | float | str | bool

_ACTION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.DOTALL)
_TOKEN = re.compile(r'\s*(?:(\()|(\))|("[^"]*")|(-?\d+\.\d+|-?\d+)|(\.?[A-Za-z_]\w*)|(\S))')
_CACHED_TEXTS = 1000


class Template:
    """One file; `render` creates the object with a given number out of `count`."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self._text = text
        self.has_actions = "{{" in text
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
            text = _ACTION.sub(lambda action: self._evaluated(action, values), text)
        made = self._parsed.get(text)
        if made is None:
            if len(self._parsed) >= _CACHED_TEXTS:
                self._parsed.clear()
            made = self._parsed[text] = self._parse(text)
        return {**made, "metadata": dict(made.get("metadata") or {})}

    def _evaluated(self, action: re.Match[str], values: Mapping[str, Value]) -> str:
        try:
            value = _evaluate(action[1], values)
        except ValueError as error:
            line = action.string.count("\n", 0, action.start()) + 1
            problem = FieldProblem("", f"template action {action[0]}: {error}", line, 1)
            raise ConfigError([problem], source=self.path) from None
        return _as_text(value)

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


# -- expressions -----------------------------------------------------------------------------------


def _evaluate(expression: str, values: Mapping[str, Value]) -> Value:
    tokens = [match for match in _TOKEN.finditer(expression) if match[0].strip()]
    return _call(_arguments(iter(tokens), values, nested=False))


def _arguments(
    tokens: Iterator[re.Match[str]], values: Mapping[str, Value], *, nested: bool
) -> list[Value | Callable[..., Value]]:
    arguments: list[Value | Callable[..., Value]] = []
    for token in tokens:
        opening, closing, text, number, word, other = token.groups()
        if opening:
            arguments.append(_call(_arguments(tokens, values, nested=True)))
        elif closing and nested:
            return arguments
        elif text is not None:
            arguments.append(text[1:-1])
        elif number is not None:
            arguments.append(float(number) if "." in number else int(number))
        elif word is not None:
            arguments.append(_named(word, values))
        else:
            raise ValueError(f"unexpected {other or closing!r}")
    if nested:
        raise ValueError("a parenthesis is not closed")
    return arguments


def _named(word: str, values: Mapping[str, Value]) -> Value | Callable[..., Value]:
    if word.startswith("."):
        if word[1:] not in values:
            known = ", ".join(f".{name}" for name in sorted(values))
            raise ValueError(f"no parameter {word}; there are {known}")
        return values[word[1:]]
    function = _FUNCTIONS.get(word)
    if function is None:
        raise ValueError(f"no function {word}; there are {', '.join(_FUNCTIONS)}")
    return function


def _call(terms: Sequence[Value | Callable[..., Value]]) -> Value:
    if not terms:
        raise ValueError("nothing to evaluate")
    first, *arguments = terms
    if not callable(first):
        if arguments:
            raise ValueError("a value takes no arguments")
        return first
    if any(callable(argument) for argument in arguments):
        raise ValueError("a function that is an argument needs parentheses")
    try:
        return first(*arguments)
    except (TypeError, ZeroDivisionError) as error:
        raise ValueError(str(error)) from None


def _number(value: Value) -> float:
    return float(value)


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
}


def _as_text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def plain_value(value: Plain) -> Value:
    """A parameter's value.

    Raises:
        ValueError: it is a list, a map or null.
    """
    if isinstance(value, bool | int | float | str):
        return value
    raise ValueError("a parameter is a number, a text or a boolean")
