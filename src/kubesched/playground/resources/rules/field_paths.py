"""`fieldPath` of a rule: a JSON path of fields and map keys, such as `.spec.limits['cpu']`."""

from __future__ import annotations

import re

from kubesched.playground.apimachinery.objects import JsonObject

_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\['(?P<quoted>(?:[^'\\]|\\.)*)'\]")
_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "'": "'", "\\": "\\",
}  # fmt: skip
_ESCAPE = re.compile(r"\\(.)")


def normalize(path: str, schema: JsonObject) -> str | None:
    """The path relative to the rule's value, as in messages; None if the schema lacks it."""
    shown, at = "", 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return None
        at = step.end()
        quoted = step["quoted"]
        name = step["name"] if quoted is None else _unescaped(quoted)
        if name is None:
            return None
        properties, additional = schema.get("properties"), schema.get("additionalProperties")
        if properties is not None:
            if name not in properties:
                return None
            schema, shown = properties[name], f"{shown}.{name}" if shown else name
        elif isinstance(additional, dict):
            schema, shown = additional, f"{shown}[{name}]"
        else:
            return None
    return shown


def _unescaped(text: str) -> str | None:
    if any(match[1] not in _ESCAPES for match in _ESCAPE.finditer(text)):
        return None
    return _ESCAPE.sub(lambda match: _ESCAPES[match[1]], text)
