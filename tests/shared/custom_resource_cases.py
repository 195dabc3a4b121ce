"""Definitions and custom resources that are written to kube-apiserver and to the embedded server, to compare the answers.

A case is a schema of `spec` (or of the whole object) and a list of writes, each on the object that the last one left.
An answer is the status, and what is wrong or what was stored.
"""

from __future__ import annotations

import asyncio
import re
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
    root: Json = field(default_factory=dict)
    """More of the whole object's schema."""


def text(**more):
    return {"type": "string", "maxLength": 20, **more}


def number(**more):
    return {"type": "integer", **more}


def rules(*entries):
    return {"x-kubernetes-validations": [{"rule": each} if isinstance(each, str) else each for each in entries]}  # fmt: skip


def obj(properties=None, *entries, **more):
    members = {} if properties is None else {"properties": properties}
    return {"type": "object", **members, **(rules(*entries) if entries else {}), **more}


def list_of(items, kind="", **more):
    kinds = {"x-kubernetes-list-type": kind} if kind else {}
    keys = {"x-kubernetes-list-map-keys": ["k"]} if kind == "map" else {}
    return {"type": "array", "items": items, "maxItems": 5, **kinds, **keys, **more}


def map_of(values, **more):
    return {"type": "object", "additionalProperties": values, "maxProperties": 5, **more}


KEYED = obj({"k": text(), "v": number()}, required=["k"])
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
AB = {"a": number(), "b": text()}

REFUSED = [
    Case("undefined field", obj(AB, "self.c > 1")),
    Case("undefined field of a nested object", obj({"o": obj(AB)}, "self.o.c > 1")),
    Case("field of an object without properties", obj({"o": obj()}, "self.o.c == 1")),
    Case("field of a scalar", obj(AB, "self.a.x == 1")),
    Case("field of unknown type", obj({"o": {"x-kubernetes-preserve-unknown-fields": True}}, "self.o == 1")),
    Case("unknown field of an open object", obj({"o": OPEN}, "self.o.x == 1")),
    Case("wrong types", obj(AB, "self.a == self.b")),
    Case("objects are not comparable with others", obj({"o": obj(AB), "p": obj(AB)}, "self.o == self.p")),
    Case("two problems in one rule", obj(AB, "self.c == 1 && self.a == 'x'")),
    Case("two rules", obj(AB, "self.c == 1", "self.d == 1")),
    Case("syntax", obj(AB, "self.a >")),
    Case("unknown function", obj(AB, "self.b.shout() == 'X'")),
    Case("no bool", obj(AB, "self.a + 1")),
    Case("a dyn result is no bool", obj({"a": {"x-kubernetes-int-or-string": True, "maxLength": 9}}, "self.a")),
    Case("message expression of the wrong type", obj(AB, {"rule": "true", "messageExpression": "self.a"})),
    Case("message expression that does not compile", obj(AB, {"rule": "true", "messageExpression": "self.c"})),
    Case("constant that cannot be evaluated", obj(AB, "self.b.matches('(')")),
    Case("constant conversion", obj(AB, "int('x') == self.a")),
    Case("empty rule", obj(AB, " ")),
    Case("blank message", obj(AB, {"rule": "true", "message": " "})),
    Case("message with line breaks", obj(AB, {"rule": "true", "message": "a\nb"})),
    Case("rule with line breaks", obj(AB, "true\n")),
    Case("rule with inner line breaks", obj(AB, "true ||\nfalse")),
    Case("blank message expression", obj(AB, {"rule": "true", "messageExpression": " "})),
    Case("reason", obj(AB, {"rule": "true", "reason": "Because"})),
    Case("field path that does not exist", obj(AB, {"rule": "true", "fieldPath": ".c"})),
    Case("field path without dot", obj(AB, {"rule": "true", "fieldPath": "a"})),
    Case("field path into a list", obj({"l": list_of(text())}, {"rule": "true", "fieldPath": ".l[0]"})),
    Case("field path with brackets", obj(AB, {"rule": "true", "fieldPath": "['c']"})),
    Case("oldSelf in items of a list", obj({"l": list_of(text(**rules("self == oldSelf")))})),
    Case("oldSelf below items of a set", obj({"l": list_of(text(**rules("self == oldSelf")), "set")})),
    Case("oldSelf below items of a list in a map list", obj({"l": list_of(obj({"k": text(), "m": list_of(number(**rules("self >= oldSelf")))}, required=["k"]), "map")})),
    Case("optionalOldSelf without oldSelf", obj(AB, {"rule": "self.a > 1", "optionalOldSelf": True})),
    Case("optionalOldSelf is an optional", obj(AB, {"rule": "self.a >= oldSelf.a", "optionalOldSelf": True}, "oldSelf.a == 'x'")),
    Case("expensive", obj({"l": {"type": "array", "items": {"type": "string"}}}, "self.l.all(a, self.l.all(b, a.contains(b)))")),
    Case("a little too expensive", obj({"l": {"type": "array", "maxItems": 2000, "items": text()}}, "self.l.all(a, self.l.all(b, a != b))")),
    Case("expensive by number", obj({"l": {"type": "array", "items": obj({"t": {"type": "string"}}, "self.t.contains('x')")}})),
    Case("expensive message", obj({"t": {"type": "string"}}, {"rule": "true", "messageExpression": "self.t + self.t.replace('a', 'bcd') + self.t.replace('a', 'bcd') + self.t.replace('b', 'b' + self.t)"})),
    Case("expensive in total", obj({c: {"type": "array", "maxItems": 600 - ord(c), "items": text(), **rules("self.all(x, self.all(y, x != y + 'a'))")} for c in "abcdefghijklmnopqrstuv"})),
    Case("labels are not for rules", obj(AB), root=rules("self.metadata.labels['a'] == 'b'")),
    Case("several versions of nothing", obj({"a": number(**rules("self > 'x'")), "m": map_of(text(**rules("self > 1"))), "l": list_of(number(**rules("self == 'x'")))})),
    Case("time and text", obj({"t": text(format="date-time"), "d": text(format="duration")}, "self.t == 'x'", "self.d == 'x'")),
    Case("names that need no escape", obj({"a__b": number(), "a-b": number()}, "self.a__b == 1")),
    Case("number is a double", obj({"n": {"type": "number"}}, "self.n == 'x'", "self.n % 2 == 0")),
    Case("an index of an object", obj({"o": obj(AB)}, "self.o['a'] == 1")),
    Case("a comprehension over an object", obj({"o": obj(AB)}, "self.o.all(k, k != 'x')")),
    Case("identity inside an embedded resource", obj({"e": obj(AB, "self.kind == 1", **{"x-kubernetes-embedded-resource": True})})),
    Case("a literal list of two types", obj(AB, "self.a in [1, 'x']")),
]  # fmt: skip

SPEC = obj(
    {
        "low": number(),
        "high": number(),
        "name": text(),
        "fixed": text(**rules({"rule": "self == oldSelf", "message": "fixed is immutable"})),
        "tags": list_of(text(**rules("self.startsWith('t')"))),
        "m": map_of(number(**rules("self % 2 == 0"))),
        "items": list_of(obj({"k": text(), "v": number(**rules({"rule": "self >= oldSelf", "message": " v may only grow "}))}, required=["k"]), "map"),
    },
    {"rule": "self.low <= self.high", "message": "low must not exceed high"},
    {"rule": "!has(self.name) || self.name != 'bad'", "messageExpression": "'bad name: ' + self.name"},
    {"rule": "self.low > 0 || self.high > 100", "reason": "FieldValueForbidden", "fieldPath": ".low"},
)  # fmt: skip
GOOD = {"low": 1, "high": 2}

EVALUATED = [
    Case("an object", SPEC, [{"low": 3, "high": 2}]),
    Case("a message that is an expression", SPEC, [{**GOOD, "name": "bad"}]),
    Case("a reason and a path", SPEC, [{"low": 0, "high": 1}]),
    Case("a rule that fails", SPEC, [{"high": 1}]),
    Case("an item", SPEC, [{**GOOD, "tags": ["ta", "xb"]}]),
    Case("a value of a map", SPEC, [{**GOOD, "m": {"a": 1, "b": 2}}]),
    Case("an invalid object", SPEC, [{"low": "x", "high": 2}]),
    Case("changes", SPEC, [{**GOOD, "fixed": "a", "items": [{"k": "a", "v": 2}, {"k": "b", "v": 5}]}, {"fixed": "b"}, {"items": [{"k": "b", "v": 6}, {"k": "a", "v": 1}]}, {"items": [{"k": "c", "v": 0}]}, {"fixed": None}]),
    Case("duplicate and required", obj(AB, {"rule": "self.a > 1", "reason": "FieldValueDuplicate", "fieldPath": ".a"}, {"rule": "self.a > 2", "reason": "FieldValueRequired", "message": "b is missing", "fieldPath": ".b"}), [{"a": 1}]),
    Case("duplicate of a scalar", obj({"a": number(**rules({"rule": "self > 1", "reason": "FieldValueDuplicate"}))}), [{"a": 1}]),
    Case("field path to a key", obj({"m": map_of(number())}, {"rule": "self.m['x'] > 1", "fieldPath": ".m['x']"}, {"rule": "self.m['x'] > 2", "fieldPath": ".m.x"}), [{"m": {"x": 1}}]),
    Case("field path to a key of itself", obj({"m": map_of(number(), **rules({"rule": "self['x'] > 1", "fieldPath": "['x']"}))}), [{"m": {"x": 1}}]),
    Case("the whole object", obj(AB), [{"a": 1}], root=rules({"rule": "self.spec.a > 1", "message": "too small"}, {"rule": "self.metadata.name == 'x' && self.kind != 'y'"})),
    Case("the whole object with a path", obj(AB), [{"a": 1}], root=rules({"rule": "self.spec.a > 1", "fieldPath": ".spec.a"})),
    Case("escaped names", obj({"a-b": number(), "a.b": number(), "a/b": number(), "a__b": number(), "namespace": text(), "true": number()}, "self.a__dash__b == 1 && self.a__dot__b == 2 && self.a__slash__b == 3 && self.a__underscores__b == 4", "self.__namespace__ == 'n' && self.namespace == 'n'", "self.__true__ == 5"), [{"a-b": 1, "a.b": 2, "a/b": 3, "a__b": 4, "namespace": "n", "true": 5}, {"a-b": 9}, {"a-b": 1, "namespace": "x"}]),
    Case("int or string", obj({"p": {"x-kubernetes-int-or-string": True, "maxLength": 9}}, "type(self.p) == int ? self.p < 5 : self.p.endsWith('%')", "self.p < 100"), [{"p": 3}, {"p": 7}, {"p": "3%"}, {"p": "x"}]),
    Case("times", obj({"t": text(format="date-time"), "d": text(format="duration"), "y": text(format="date"), "b": text(format="byte")}, "self.t < timestamp('2026-01-01T00:00:00Z')", "self.d < duration('1h')", "self.y.getFullYear() == 2025", "self.b == b'hi'", {"rule": "string(self.d) == '90s'", "messageExpression": "string(self.d)"}), [{"t": "2025-05-05T01:02:03Z", "d": "1m30s", "y": "2025-02-03", "b": "aGk="}, {"t": "2026-05-05T01:02:03Z", "d": "2h", "y": "2024-02-03", "b": "aG8="}, {"d": "3 days"}, {"d": "soon"}]),
    Case("numbers", obj({"n": {"type": "number"}}, "self.n * 2.0 == 3.0", {"rule": "self.n > 1.0", "messageExpression": "'n is ' + string(self.n)"}), [{"n": 1.5}, {"n": 1}]),
    Case("lists", obj({"s": list_of(text(), "set"), "l": list_of(text()), "m": list_of(KEYED, "map")}, {"rule": "self.s == oldSelf.s", "message": "set changed"}, {"rule": "self.l == oldSelf.l", "message": "list changed"}, {"rule": "self.m == oldSelf.m", "message": "map changed"}, {"rule": "self.s + ['a'] == self.s", "message": "no a"}), [{"s": ["a", "b"], "l": ["a", "b"], "m": [{"k": "a", "v": 1}, {"k": "b", "v": 2}]}, {"s": ["b", "a"], "m": [{"k": "b", "v": 2}, {"k": "a", "v": 1}]}, {"l": ["b", "a"]}, {"s": ["b", "c"]}, {"m": [{"k": "b", "v": 2}, {"k": "a", "v": 3}]}]),
    Case("merged map lists", obj({"m": list_of(KEYED, "map"), "n": list_of(KEYED, "map")}, {"rule": "size(self.m + self.n) == 3", "message": "not three"}), [{"m": [{"k": "a"}, {"k": "b"}], "n": [{"k": "b"}, {"k": "c"}]}, {"n": [{"k": "d"}, {"k": "c"}]}]),
    Case("optional oldSelf", obj({"a": number(**rules({"rule": "oldSelf.hasValue() || self == 1", "optionalOldSelf": True, "message": "starts with 1"}))}), [{"a": 2}]),
    Case("optional oldSelf of a list", obj({"l": list_of(text()), "a": number()}, {"rule": "self.a >= oldSelf.a.orValue(0)", "optionalOldSelf": True}), [{"l": ["x"], "a": 1}, {"a": 3}, {"a": 2}]),
    Case("messages that do not work out", obj(AB, {"rule": "self.a > 1", "messageExpression": "self.b"}, {"rule": "self.a > 2", "messageExpression": "'x\\ny'", "message": "fallback"}, {"rule": "self.a > 3", "messageExpression": "' '"}, {"rule": "self.a > 4", "messageExpression": "'  ok ' "}), [{"a": 1}]),
    Case("division by zero", obj(AB, {"rule": "1 / self.a > 0", "message": "m"}), [{"a": 0}]),
    Case("ratcheting of rules", obj({"a": number(), "b": number(), "l": list_of(number())}), [{"a": 1, "b": 1, "l": [1]}, {"b": 2}, {"a": 2}, {"l": [1, 2]}, {"l": [1]}], later=obj({"a": number(**rules("self > 5")), "b": number(), "l": list_of(number(**rules("self > 5")))})),
    Case("ratcheting of an object", obj({"a": number(), "b": obj({"c": number(), "d": number()})}), [{"a": 1, "b": {"c": 1, "d": 1}}, {"a": 2}, {"b": {"d": 2}}], later=obj({"a": number(), "b": obj({"c": number(), "d": number()}, "self.c > 5")})),
    Case("ratcheting of the schema", obj({"a": text(), "b": number(), "o": obj({"x": number(), "y": number()})}), [{"a": "abcdef", "b": 1, "o": {"x": 1, "y": 1}}, {"b": 2}, {"a": "abcdefg"}, {"o": {"y": 2}}, {"o": {"x": 2}}], later=obj({"a": {"type": "string", "maxLength": 3}, "b": number(), "o": obj({"x": number(minimum=5), "y": number()}, required=["z"])})),
    Case("nulls", obj({"n": text(nullable=True), "p": text(), "d": text(default="x"), "nd": text(nullable=True, default="y"), "l": list_of(text(nullable=True)), "m": map_of(text(nullable=True)), "o": obj(AB, nullable=True)}, {"rule": "!has(self.n) || self.n != 'bad'", "message": "n is bad"}, {"rule": "!has(self.l) || self.l.all(e, e != 'bad')", "message": "l is bad"}, {"rule": "!has(self.o)", "message": "has o"}), [{"n": None, "p": None, "d": None, "nd": None, "l": [None, "a"], "m": {"a": None, "b": "c"}, "o": None}]),
    Case("null items without null", obj({"l": list_of(text())}), [{"l": ["a", None]}]),
    Case("null items with a default", obj({"l": list_of(text(default="z"))}), [{"l": ["a", None]}]),
    Case("null values of a map", obj({"m": map_of(text()), "n": map_of(text(default="z"))}), [{"m": {"a": None}, "n": {"a": None}}]),
    Case("nulls that nothing describes", obj({"o": OPEN}), [{"o": {"a": None, "b": {"c": None}}, "x": None}]),
    Case("null and required", obj({"a": text(), "n": text(nullable=True)}, required=["a", "n"]), [{"a": None, "n": None}]),
    Case("null and enum", obj({"n": text(nullable=True, enum=["a", None])}), [{"n": None}]),
    Case("nullable rules", obj({"n": text(nullable=True, **rules("self == 'a'"))}), [{"n": None}]),
    Case("null in maps of rules", obj({"m": map_of(text(nullable=True))}, {"rule": "self.m.all(k, self.m[k] == null || self.m[k] != 'bad')", "message": "bad value"}), [{"m": {"a": None}}]),
    Case("unknown fields", obj({"o": OPEN, "a": number()}), [{"o": {"x": {"y": 1}}, "z": 1, "a": 1}]),
    Case("embedded resource", obj({"e": obj(AB, {"rule": "self.kind == 'K' && self.metadata.name == 'n'", "message": "wrong kind"}, **{"x-kubernetes-embedded-resource": True})}), [{"e": {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n", "labels": {"a": "b"}}, "a": 1, "z": 1}}, {"e": {"kind": "X"}}]),
    Case("macros", obj({"l": list_of(number()), "m": map_of(number())}, {"rule": "self.l.exists(x, x > 2) && self.l.filter(x, x > 1).size() == 2 && self.l.map(x, x * 2).sum() == 12", "message": "l"}, {"rule": "self.m.all(k, self.m[k] > 1)", "message": "m"}), [{"l": [1, 2, 3], "m": {"a": 2}}, {"m": {"a": 1}}, {"l": [1, 2]}]),
]  # fmt: skip

CASES = REFUSED + EVALUATED


async def play(index: int, case: Case, call: Call):
    """The answers to a case."""
    plural = f"case{index}s"
    whole = {"type": "object", "properties": {"spec": case.spec}, **case.root}
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
    async with asyncio.timeout(20):
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
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [_version(schema)]},
    }  # fmt: skip


def _short(status, answer, *, stored):
    if status >= 300:
        causes = (answer.get("details") or {}).get("causes")
        if not causes:
            return [status, answer["message"]]
        listed = [f"{cause['field']}: {cause['reason']}: {cause['message']}" for cause in causes]
        # Go walks through maps in no order, and names the type of `self` anew at every start.
        return [status, *sorted(re.sub(r"selfType\d+", "selfType", each) for each in listed)]
    return [status, answer.get("spec")] if stored else [status]
