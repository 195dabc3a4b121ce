"""Custom resources follow their schema: pruned, defaulted, validated.

Answers and messages are kube-apiserver 1.36's.
"""

from __future__ import annotations

import base64
import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.base.errors import Invalid, RequestEntityTooLarge
from kubesched.playground.apimachinery.schema.structural import fill_defaults, problems_of, prune

STRING = {"type": "string"}
SPEC = {
    "size": {"type": "integer", "minimum": 1, "maximum": 10, "default": 3},
    "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
    "name": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
    "keep": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "port": {"x-kubernetes-int-or-string": True},
    "ratio": {"type": "number", "multipleOf": 0.5, "exclusiveMinimum": True, "minimum": 0},
    "tags": {"type": "array", "maxItems": 2, "items": STRING, "x-kubernetes-list-type": "set"},
    "env": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": STRING, "value": {"type": "string", "default": "v"}},
        },
    },
    "labels": {"type": "object", "maxProperties": 2, "additionalProperties": STRING},
    "on": {"type": "boolean"},
    "one": {
        "type": "object",
        "properties": {"a": STRING, "b": STRING},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "when": {"type": "string", "format": "date-time"},
    "ip": {"type": "string", "format": "ipv4"},
    "nested": {
        "type": "object",
        "default": {},
        "properties": {"deep": {"type": "integer", "default": 7}},
    },
}
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": SPEC},
        "status": {"type": "object", "properties": {"ready": {"type": "integer", "minimum": 0}}},
    },
}
DEFAULTS = {"size": 3, "color": "red", "nested": {"deep": 7}}


@pytest.fixture
def gadgets(api):
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": SCHEMA},
    }
    names = {"plural": "gadgets", "kind": "Gadget"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    definition = {"metadata": {"name": "gadgets.example.com"}, "spec": spec}
    api.create("customresourcedefinitions.apiextensions.k8s.io", definition)
    return api


def create(api, spec, **top):
    metadata = {"name": "g", "namespace": "default"}
    return api.create("gadgets.example.com", {"metadata": metadata, "spec": spec, **top})


@pytest.mark.parametrize(
    ("spec", "changed"),
    [
        pytest.param({}, {}, id="defaults, and those of defaults"),
        pytest.param({"color": None}, {}, id="a null is no value"),
        pytest.param({"size": 2.0}, {"size": 2}, id="a whole number is an integer"),
        pytest.param({"unknown": 1}, {}, id="unknown fields go"),
        pytest.param({"keep": {"x": {"y": 1}}}, {"keep": {"x": {"y": 1}}}, id="unless preserved"),
        pytest.param({"nested": {"other": 1}}, {}, id="unknown fields go at any depth"),
        pytest.param({"env": [{"name": "a"}]}, {"env": [{"name": "a", "value": "v"}]},
                     id="defaults of items"),
        pytest.param({"port": 80}, {"port": 80}, id="an integer for either"),
        pytest.param({"port": "http"}, {"port": "http"}, id="a string for either"),
        pytest.param({"ratio": 0.5}, {"ratio": 0.5}, id="a multiple"),
        pytest.param({"one": {"a": "1"}}, {"one": {"a": "1"}}, id="one of two"),
        pytest.param({"when": "2026-01-01T00:00:00Z"}, {"when": "2026-01-01T00:00:00Z"},
                     id="a time"),
    ],
)  # fmt: skip
def test_what_is_stored(gadgets, spec, changed):
    assert create(gadgets, spec)["spec"] == {**DEFAULTS, **changed}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param(
            {"size": 0},
            "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
            id="minimum",
        ),
        pytest.param(
            {"size": 11},
            "spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10",
            id="maximum",
        ),
        pytest.param(
            {"size": "x"},
            'spec.size: Invalid value: "string": spec.size in body must be of type integer: '
            '"string"',
            id="type",
        ),
        pytest.param(
            {"color": "green"},
            'spec.color: Unsupported value: "green": supported values: "red", "blue"',
            id="enum",
        ),
        pytest.param(
            {"name": "a"},
            'spec.name: Invalid value: "a": spec.name in body should be at least 2 chars long',
            id="short",
        ),
        pytest.param(
            {"name": "abcdef"}, "spec.name: Too long: may not be more than 5 bytes", id="long"
        ),
        pytest.param(
            {"name": "A1"},
            "spec.name: Invalid value: \"A1\": spec.name in body should match '^[a-z]+$'",
            id="pattern",
        ),
        pytest.param(
            {"port": True},
            'spec.port in body must be of type integer,string: "boolean"',
            id="neither",
        ),
        pytest.param(
            {"ratio": 0.7},
            "spec.ratio: Invalid value: 0.7: spec.ratio in body should be a multiple of 0.5",
            id="no multiple",
        ),
        pytest.param(
            {"tags": ["a", "a"]}, 'spec.tags[1]: Duplicate value: "a"', id="twice in a set"
        ),
        pytest.param(
            {"tags": ["a", "b", "c"]},
            "spec.tags: Too many: 3: must have at most 2 items",
            id="too many items",
        ),
        pytest.param(
            {"env": [{"name": "a"}, {"name": "a"}]},
            'spec.env[1]: Duplicate value: {"name":"a"}',
            id="twice in a map",
        ),
        pytest.param(
            {"env": [{"value": "x"}]}, "spec.env[0].name: Required value", id="required in an item"
        ),
        pytest.param(
            {"labels": {"a": 1}},
            'spec.labels.a in body must be of type string: "integer"',
            id="a value of a map",
        ),
        pytest.param(
            {"one": {"a": "1", "b": "2"}},
            '"spec.one" must validate one and only one schema (oneOf). Found 2 valid alternatives',
            id="two of two",
        ),
        pytest.param(
            {"when": "yesterday"},
            'spec.when in body must be of type date-time: "yesterday"',
            id="no time",
        ),
        pytest.param(
            {"ip": "1.2.3"}, 'spec.ip in body must be of type ipv4: "1.2.3"', id="no address"
        ),
        pytest.param(
            "str",
            'spec: Invalid value: "string": spec in body must be of type object: "string"',
            id="no object",
        ),
    ],
)
def test_what_is_refused(gadgets, spec, words):
    with pytest.raises(Invalid, match=re.escape(words)):
        create(gadgets, spec)


def test_updates_and_status_follow_the_schema_too(gadgets):
    create(gadgets, {}, status={"ready": 1})
    with pytest.raises(Invalid, match="should be less than or equal to 10"):
        gadgets.patch("gadgets.example.com", "default", "g", {"spec": {"size": 99}})
    patch = {"status": {"ready": 2, "x": 1}, "spec": {"size": 9}}
    written = gadgets.patch("gadgets.example.com", "default", "g", patch, subresource="status")
    assert (written["status"], written["spec"]) == ({"ready": 2}, DEFAULTS)
    with pytest.raises(Invalid, match="greater than or equal to 0"):
        gadgets.patch(
            "gadgets.example.com", "default", "g", {"status": {"ready": -1}}, subresource="status"
        )


@pytest.mark.parametrize("mode", ["Strict", "Warn", "Ignore"])
async def test_unknown_fields_are_told_as_asked(gadgets, http, mode):
    body = {
        "apiVersion": "example.com/v1",
        "kind": "Gadget",
        "metadata": {"name": "g"},
        "spec": {"nested": {"x": 1}, "y": 1},
    }
    path = f"/apis/example.com/v1/namespaces/default/gadgets?fieldValidation={mode}"
    response = await http.raw("POST", path, body)
    if mode == "Strict":
        assert response.status == 400
        words = (
            b'strict decoding error: unknown field \\"spec.nested.x\\", unknown field \\"spec.y\\"'
        )
        assert words in response.body
    else:
        assert response.status == 201
        warning = (response.headers or {}).get("Warning", "")
        assert ("spec.nested.x" in warning) is (mode == "Warn")


async def test_unknown_metadata_is_an_unknown_field(gadgets, http):
    metadata = {"name": "g", "labels": {"any": "thing"}, "nope": 1}
    body = {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": metadata}
    path = "/apis/example.com/v1/namespaces/default/gadgets?fieldValidation=Strict"
    response = await http.raw("POST", path, body)
    assert response.status == 400
    assert b'strict decoding error: unknown field \\"metadata.nope\\"' in response.body


async def test_stored_objects_get_new_defaults_and_are_patched_through_any_version(http, api):
    properties = {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    versions = [
        {"name": name, "served": True, "storage": name == "v1", "schema": schema}
        for name in ("v1", "v2")
    ]
    names = {"plural": "things", "kind": "Thing"}
    spec = {"group": "example.org", "names": names, "scope": "Cluster", "versions": versions}
    crd = {"metadata": {"name": "things.example.org"}, "spec": spec}
    api.create("customresourcedefinitions.apiextensions.k8s.io", crd)
    path = "/apis/example.org/v1/things"
    await http.post(
        path,
        {"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {}},
    )
    properties["spec"]["properties"]["a"]["default"] = "x"
    api.patch(
        "customresourcedefinitions.apiextensions.k8s.io",
        None,
        "things.example.org",
        {"spec": {"versions": versions}},
    )
    assert (await http.get(f"{path}/t"))["spec"] == {"a": "x"}
    other = "/apis/example.org/v2/things/t"
    status, patched = await http.call(
        "PATCH", other, {"spec": {"a": "y"}}, content_type="application/merge-patch+json"
    )
    assert (status, patched["apiVersion"], patched["spec"]) == (200, "example.org/v2", {"a": "y"})
    assert (await http.get(path))["items"][0]["kind"] == "Thing"
    rows = (await http.get("/apis/example.org/v2"))["resources"]
    assert [row["storageVersionHash"] for row in rows] == [
        base64.b64encode(hashlib.sha256(b"example.org/v1/Thing").digest()[:8]).decode()
    ]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 12) | st.sampled_from(["red", "abc", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*SPEC, "z"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(spec=st.dictionaries(st.sampled_from([*SPEC, "z"]), VALUES, max_size=6))
def test_any_object_is_judged_and_a_second_time_alike(spec):
    """Pruning and defaults are idempotent, and whatever was sent, judging it ends."""
    obj = {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {}, "spec": spec}
    prune(SCHEMA, obj)
    fill_defaults(SCHEMA, obj)
    problems = problems_of(SCHEMA, obj)
    again = {**obj}
    assert prune(SCHEMA, again) == []
    fill_defaults(SCHEMA, again)
    assert again == obj
    assert problems_of(SCHEMA, again) == problems
    if not problems:
        assert set(obj["spec"]) <= set(SPEC)


def test_a_pattern_takes_time_in_proportion_to_the_text():
    """With a matcher that backtracks, this does not end."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    text = "a" * 10_000
    assert problems_of(schema, {"a": text}) == []
    (problem,) = problems_of(schema, {"a": f"{text}!"})
    assert str(problem).startswith("a: Invalid value")


def test_a_list_of_maps_finds_the_items_it_had_by_their_keys():
    """Compared with each other, these would be a hundred million pairs."""
    item = {"type": "object", "properties": {"k": {"type": "integer"}, "v": {"type": "integer"}}}
    listed = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "items": {**item, "maxProperties": 1},
    }
    schema = {"type": "object", "properties": {"l": listed}}
    old = [{"k": n, "v": n} for n in range(10_000)]
    assert problems_of(schema, {"l": [*reversed(old), {"k": -1}]}, {"l": old}) == []
    changed = [{"k": 1, "v": 2}, *old[2:]]
    (problem,) = problems_of(schema, {"l": changed}, {"l": old})
    assert str(problem).startswith("l[0]: ")


def test_defaults_of_many_items_are_bounded():
    """A default per item, and items in defaults, would take gigabytes."""
    large = {"type": "object", "default": {f"k{n}": "v" for n in range(1_000)}}
    items = {"type": "array", "items": {"type": "object", "properties": {"a": large}}}
    schema = {"type": "object", "properties": {"l": items}}
    few = {"l": [{} for _ in range(10)]}
    fill_defaults(schema, few)
    assert len(few["l"][9]["a"]) == 1_000
    with pytest.raises(RequestEntityTooLarge, match="limit is 25000 values"):
        fill_defaults(schema, {"l": [{} for _ in range(10_000)]})


@pytest.mark.parametrize(
    ("wide", "value"),
    [
        ({"enum": [f"choice-{n}" for n in range(3_000)]}, "choice-2999"),
        ({"enum": ["x" * 10_000]}, "y"),
        ({"anyOf": [{"minLength": 2}] * 3_000}, "y"),
        ({"required": [f"field-{n}" for n in range(3_000)]}, {}),
    ],
    ids=["many choices", "choices that are listed", "alternatives", "required fields"],
)
def test_a_schema_is_not_compared_with_every_value_without_end(wide, value):
    """25,000 values against 3,000 choices took 8 s if they were right, and 640 MB if not."""
    items = {"type": "array", "items": wide}
    schema = {"type": "object", "properties": {"l": items}}
    problems_of(schema, {"l": [value] * 10})
    with pytest.raises(RequestEntityTooLarge, match="too much work"):
        problems_of(schema, {"l": [value] * 25_000})


def test_as_many_values_as_a_request_may_have_are_validated():
    schema = {"type": "object", "properties": {"l": {"type": "array", "items": SPEC["color"]}}}
    assert problems_of(schema, {"l": ["blue"] * 24_000}) == []
