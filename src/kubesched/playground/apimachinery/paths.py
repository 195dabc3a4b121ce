"""Paths into an object, as stages and the columns of custom resources write them.

    .status.phase                               a member
    .metadata.annotations["example.com/a"]      a member whose name needs quotes
    .spec.initContainers[].name                 of every element
    .spec.containers[0].name                    of one element
    .status.conditions[type=Ready].status       of the elements with that member
    .status.conditions[?(@.type=="Ready")].status   the same as a JSON path

A path yields the values it finds, or none if a step is missing.
"""

from __future__ import annotations

import re
from typing import Any

from kubesched.playground.apimachinery.objects import JsonObject, value_at

_STEP = re.compile(
    r"""
    \.(?P<member>[A-Za-z_][A-Za-z0-9_-]*)
    | \[(?P<quote>["'])(?P<quoted>[^"']+)(?P=quote)\]
    | \[(?P<index>[0-9]+)\]
    | \[(?P<key>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>[^\]]+)\]
    | \[\?\(@\.(?P<json_key>[A-Za-z0-9_-]+)=="(?P<json_value>[^"]*)"\)\]
    | (?P<every>\[\])
    """,
    re.VERBOSE,
)


class PathError(ValueError):
    """The text is not a valid path; the message says where parsing stopped."""


class Path:
    """A compiled path."""

    __slots__ = ("_members", "_steps", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._steps: list[tuple[str, str, str]] = []
        position = 0
        while position < len(text):
            match = _STEP.match(text, position)
            if match is None:
                raise PathError(f'not a path at "{text[position:]}"')
            self._steps.append(_step(match))
            position = match.end()
        if not self._steps:
            raise PathError("a path must not be empty")
        # Most paths only descend; those are evaluated without intermediate lists.
        is_descent = all(kind == "member" for kind, _, _ in self._steps)
        self._members = tuple(name for _, name, _ in self._steps) if is_descent else None

    def values(self, obj: JsonObject) -> list[Any]:
        """The values at the path, without nulls."""
        if self._members is not None:
            value = value_at(obj, self._members)
            return [] if value is None else [value]
        matches: list[Any] = [obj]
        for kind, name, wanted in self._steps:
            if kind == "member":
                matches = [
                    match[name] for match in matches if isinstance(match, dict) and name in match
                ]
                continue
            lists = [match for match in matches if isinstance(match, list)]
            if kind == "index":
                matches = [item for group in lists for item in group[int(name) : int(name) + 1]]
                continue
            matches = [
                item
                for group in lists
                for item in group
                if kind == "every" or (isinstance(item, dict) and str(item.get(name)) == wanted)
            ]
        return [match for match in matches if match is not None]


def _step(match: re.Match[str]) -> tuple[str, str, str]:
    if match["member"] or match["quoted"]:
        return "member", match["member"] or match["quoted"], ""
    if match["index"]:
        return "index", match["index"], ""
    if match["key"]:
        return "where", match["key"], match["value"].strip('"')
    return ("where", match["json_key"], match["json_value"]) if match["json_key"] else _EVERY


_EVERY = ("every", "", "")
