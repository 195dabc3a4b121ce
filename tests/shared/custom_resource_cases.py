"""Definitions and custom resources that are written to kube-apiserver and to the embedded server,
to compare the answers.

A case is a schema of `spec` and a list of writes, each on the object that the last one left.
An answer is the status, and what is wrong or what was stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

Json = Any
Call = Callable[[str, str, Json], Awaitable[tuple[int, Json]]]
"""(method, path, body) -> (status, body); PATCH is a merge patch."""
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True)
class Case:
    name: str
    spec: Json
    writes: list[Json] = field(default_factory=list)
    """Specs: the first is created, the others are merged into it."""
    later: Json = None
    """Replaces the schema of `spec` after the first write."""


def text(**more):
    return {"type": "string", "maxLength": 20, **more}


def number(**more):
    return {"type": "integer", **more}


def obj(properties, **more):
    return {"type": "object", "properties": properties, **more}


def list_of(items, kind="", **more):
    kinds = {"x-kubernetes-list-type": kind} if kind else {}
    keys = {"x-kubernetes-list-map-keys": ["k"]} if kind == "map" else {}
    return {"type": "array", "items": items, "maxItems": 5, **kinds, **keys, **more}


def map_of(values, **more):
    return {"type": "object", "additionalProperties": values, "maxProperties": 5, **more}


KEYED = obj({"k": text(), "v": number()}, required=["k"])
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
AB = {"a": number(), "b": text()}

CASES = [
    Case(
        "int or string",
        obj({"p": {"x-kubernetes-int-or-string": True, "maxLength": 9}}),
        [{"p": 3}, {"p": "3%"}, {"p": True}],
    ),
    Case(
        "formats",
        obj(
            {
                "t": text(format="date-time"),
                "d": text(format="duration"),
                "y": text(format="date"),
                "b": text(format="byte"),
            }
        ),
        [
            {"t": "2025-05-05T01:02:03Z", "d": "1m30s", "y": "2025-02-03", "b": "aGk="},
            {"d": "3 days"},
            {"d": "soon"},
        ],
    ),
    Case(
        "lists",
        obj({"s": list_of(text(), "set"), "m": list_of(KEYED, "map")}),
        [
            {"s": ["a", "b"], "m": [{"k": "a", "v": 1}, {"k": "b", "v": 2}]},
            {"s": ["b", "b"]},
            {"m": [{"k": "a"}, {"k": "a", "v": 3}]},
        ],
    ),
    Case(
        "nulls",
        obj(
            {
                "n": text(nullable=True),
                "p": text(),
                "d": text(default="x"),
                "nd": text(nullable=True, default="y"),
                "l": list_of(text(nullable=True)),
                "m": map_of(text(nullable=True)),
                "o": obj(AB, nullable=True),
            }
        ),
        [
            {
                "n": None,
                "p": None,
                "d": None,
                "nd": None,
                "l": ["a", None],
                "m": {"a": None},
                "o": None,
            }
        ],
    ),
    Case(
        "embedded resource",
        obj({"e": obj(AB, **{"x-kubernetes-embedded-resource": True})}),
        [
            {
                "e": {
                    "apiVersion": "v1",
                    "kind": "K",
                    "metadata": {"name": "n", "labels": {"a": "b"}},
                    "a": 1,
                    "z": 1,
                }
            }
        ],
    ),
    Case(
        "ratcheting of the schema",
        obj({"a": text(), "b": number(), "o": obj({"x": number(), "y": number()})}),
        [
            {"a": "abcdef", "b": 1, "o": {"x": 1, "y": 1}},
            {"b": 2},
            {"a": "abcdefg"},
            {"o": {"y": 2}},
            {"o": {"x": 2}},
        ],
        later=obj(
            {
                "a": {"type": "string", "maxLength": 3},
                "b": number(),
                "o": obj({"x": number(minimum=5), "y": number()}, required=["z"]),
            }
        ),
    ),
    Case("null items without null", obj({"l": list_of(text())}), [{"l": ["a", None]}]),
    Case("null items with a default", obj({"l": list_of(text(default="z"))}), [{"l": ["a", None]}]),
    Case(
        "null values of a map",
        obj({"m": map_of(text()), "n": map_of(text(default="z"))}),
        [{"m": {"a": None}, "n": {"a": None}}],
    ),
    Case(
        "nulls that nothing describes",
        obj({"o": OPEN}),
        [{"o": {"a": None, "b": {"c": None}}, "x": None}],
    ),
    Case(
        "null and required",
        obj({"a": text(), "n": text(nullable=True)}, required=["a", "n"]),
        [{"a": None, "n": None}],
    ),
    Case("null and enum", obj({"n": text(nullable=True, enum=["a", None])}), [{"n": None}]),
    Case(
        "unknown fields", obj({"o": OPEN, "a": number()}), [{"o": {"x": {"y": 1}}, "z": 1, "a": 1}]
    ),
]


async def play(index: int, case: Case, call: Call):
    """The answers to a case."""
    plural = f"case{index}s"
    whole = {"type": "object", "properties": {"spec": case.spec}}
    status, answer = await call("POST", DEFINITIONS, _definition(plural, index, whole))
    answers = [_short(status, answer, stored=False)]
    if status != 201:
        return answers
    path = f"/apis/example.com/v1/namespaces/default/{plural}"
    await _until(200, call, "GET", path)
    body = {"apiVersion": "example.com/v1", "kind": f"Case{index}", "metadata": {"name": "x"}}
    for number_of_write, spec in enumerate(case.writes):
        if number_of_write == 0:
            status, answer = await call("POST", path, {**body, "spec": spec})
        else:
            status, answer = await call("PATCH", f"{path}/x", {"spec": spec})
        answers.append(_short(status, answer, stored=True))
        if number_of_write == 0 and case.later is not None:
            changed = {**whole, "properties": {"spec": case.later}}
            versions = {"spec": {"versions": [_version(changed)]}}
            status, answer = await call("PATCH", f"{DEFINITIONS}/{plural}.example.com", versions)
            answers.append(_short(status, answer, stored=False))
            # What was stored before does not pass as new under the changed schema.
            probe = {**body, "metadata": {"name": "probe"}, "spec": spec}
            await _until(422, call, "POST", f"{path}?dryRun=All", probe)
    return answers


async def _until(wanted: int, call: Call, method: str, path: str, body: Json = None) -> None:
    """Ask until the definition is served as it was last written: kube-apiserver takes a moment."""
    async with asyncio.timeout(300):
        while (await call(method, path, body))[0] != wanted:  # noqa: ASYNC110  asked over HTTP
            await asyncio.sleep(0.02)


def _version(schema):
    return {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}


def _definition(plural, index, schema):
    names = {"plural": plural, "kind": f"Case{index}"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": names,
            "versions": [_version(schema)],
        },
    }


def _short(status, answer, *, stored):
    if status >= 300:
        causes = (answer.get("details") or {}).get("causes")
        if not causes:
            return [status, answer["message"]]
        listed = [f"{cause['field']}: {cause['reason']}: {cause['message']}" for cause in causes]
        return [status, *sorted(listed)]  # Go walks through maps in no order
    return [status, answer.get("spec")] if stored else [status]
