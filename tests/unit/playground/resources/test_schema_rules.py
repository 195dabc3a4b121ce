"""CEL rules of custom resources: what they refuse, when, and in which words. Messages are kube-apiserver 1.36's.

`tests/conformance/test_custom_resources_agree.py` compares many more with kube-apiserver's answers.
"""

from __future__ import annotations

import re

import pytest

from kubesched.base.errors import Invalid


def text(**more):
    return {"type": "string", "maxLength": 20, **more}


def rules(*entries):
    return {"x-kubernetes-validations": list(entries)}


SPEC = {
    "type": "object",
    **rules(
        {"rule": "self.low <= self.high", "message": "low must not exceed high"},
        {"rule": "!has(self.name) || self.name != 'bad'", "messageExpression": "'bad name: ' + self.name"},
        {"rule": "self.low > 0 || self.high > 100", "reason": "FieldValueForbidden", "fieldPath": ".low"},
    ),
    "properties": {
        "low": {"type": "integer"},
        "high": {"type": "integer"},
        "name": text(),
        "fixed": text(**rules({"rule": "self == oldSelf", "message": "fixed is immutable"})),
        "tags": {"type": "array", "items": text(**rules({"rule": "self.startsWith('t')"}))},
        "m": {"type": "object", "additionalProperties": {"type": "integer", **rules({"rule": "self % 2 == 0"})}},
        "items": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {
                "type": "object",
                "required": ["k"],
                "properties": {
                    "k": text(),
                    "v": {"type": "integer", **rules({"rule": "self >= oldSelf", "message": "v may only grow"})},
                },
            },
        },
    },
}  # fmt: skip
GOOD = {"low": 1, "high": 2}


def define(api, spec):
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "rules", "kind": "Rule"}
    body = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    definition = {"metadata": {"name": "rules.example.com"}, "spec": body}
    api.create("customresourcedefinitions.apiextensions.k8s.io", definition)


@pytest.fixture
def ruled(api):
    define(api, SPEC)
    return api


def create(api, spec, name="r"):
    metadata = {"name": name, "namespace": "default"}
    return api.create("rules.example.com", {"metadata": metadata, "spec": spec})


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param({"low": 3, "high": 2}, "is invalid: spec: Invalid value: low must not exceed high", id="an object"),
        pytest.param({**GOOD, "name": "bad"}, "spec: Invalid value: bad name: bad", id="a message that is an expression"),
        pytest.param({"low": 0, "high": 1}, "spec.low: Forbidden: failed rule: self.low > 0 || self.high > 100", id="a reason and a path"),
        pytest.param({"high": 1}, 'spec: Invalid value: "object": no such key: low evaluating rule: low must not exceed high', id="a rule that fails"),
        pytest.param({**GOOD, "tags": ["ta", "xb"]}, "spec.tags[1]: Invalid value: \"xb\": failed rule: self.startsWith('t')", id="an item"),
        pytest.param({**GOOD, "m": {"a": 1, "b": 2}}, "spec.m[a]: Invalid value: 1: failed rule: self % 2 == 0", id="a value of a map"),
    ],
)  # fmt: skip
def test_broken_rules(ruled, spec, words):
    with pytest.raises(Invalid, match=re.escape(words)):
        create(ruled, spec)


def test_rules_wait_until_the_rest_is_valid(ruled):
    with pytest.raises(Invalid) as refused:
        create(ruled, {"low": "x", "high": 2})
    assert "must be of type integer" in str(refused.value)
    assert "low must not exceed" not in str(refused.value)


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        pytest.param({"fixed": "b"}, 'spec.fixed: Invalid value: "b": fixed is immutable', id="a change"),
        pytest.param({"items": [{"k": "b", "v": 6}, {"k": "a", "v": 1}]}, "spec.items[1].v: Invalid value: 1: v may only grow", id="an item found by its key"),
        pytest.param({"low": 5}, "spec: Invalid value: low must not exceed high", id="a rule without a past"),
        pytest.param({"fixed": "a", "low": 2}, None, id="nothing that counts"),
        pytest.param({"items": [{"k": "c", "v": 0}]}, None, id="a new item"),
        pytest.param({"fixed": None}, None, id="a value that goes"),
    ],
)  # fmt: skip
def test_rules_about_changes(ruled, patch, words):
    create(ruled, {**GOOD, "fixed": "a", "items": [{"k": "a", "v": 2}, {"k": "b", "v": 5}]})
    if words is None:
        ruled.patch("rules.example.com", "default", "r", {"spec": patch})
        return
    with pytest.raises(Invalid, match=re.escape(words)):
        ruled.patch("rules.example.com", "default", "r", {"spec": patch})


def test_an_expensive_rule_is_cut_off(api):
    rule = "self.n.all(a, self.n.all(b, a + b >= 0))"
    numbers = {"type": "array", "maxItems": 400, "items": {"type": "integer"}}
    define(api, {"type": "object", **rules({"rule": rule}), "properties": {"n": numbers}})
    create(api, {"n": list(range(100))}, "cheap")
    words = "no further validation rules will be run due to call cost exceeds limit for rule: self.n.all"
    with pytest.raises(Invalid, match=re.escape(words)):
        create(api, {"n": list(range(400))})


@pytest.mark.slow
def test_rules_share_a_budget(api):
    rule = {"rule": "self.all(a, self.all(b, a + b >= 0))"}
    numbers = {"type": "array", "maxItems": 350, "items": {"type": "integer"}, **rules(rule)}
    define(api, {"type": "object", "properties": dict.fromkeys("abcdefghijklmn", numbers)})
    create(api, dict.fromkeys("abcdefg", [1] * 350), "cheap")
    with pytest.raises(Invalid, match="running out of cost budget"):
        create(api, dict.fromkeys("abcdefghijklmn", [1] * 350))


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"type": "object", "properties": []}, id="properties"),
        pytest.param({"type": "object", "properties": {"a": 5}}, id="a property"),
        pytest.param({"type": "object", **rules("true")}, id="a rule"),
        pytest.param({"type": "object", "maxProperties": True}, id="a limit"),
        pytest.param({"type": "array", "items": {"type": "string", "maxLength": "x"}}, id="an item"),
        pytest.param({"type": "object", "required": "a"}, id="required"),
    ],
)  # fmt: skip
def test_a_schema_of_the_wrong_types_is_refused(api, schema):
    with pytest.raises(Invalid, match="must be a"):
        define(api, schema)
