"""Patches that would make an object large or deep, or take long: refused with a clear answer,
whatever their kind.

The number of values that a request may bring or lead to is bounded, and with it its time.
"""

from __future__ import annotations

import json

import pytest

from kubesched.base.errors import BadRequest
from kubesched.playground.apimachinery import serialization
from kubesched.playground.apimachinery.managed_fields import managers
from kubesched.playground.apimachinery.managed_fields.paths import (
    custom_layout,
    from_fields_v1,
    to_fields_v1,
)
from kubesched.playground.registry.patching.json_patch import MAX_OPERATIONS
from kubesched.playground.registry.patching.strategic import MAX_REPEATS

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


def variables(word):
    return [{"name": f"{word}{n}", "value": "x" * 1000} for n in range(2_000)]


def deployment(env):
    labels = {"app": "a"}
    spec = {"containers": [{"name": "c", "image": "i", "env": env}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


@pytest.fixture
async def stored(http):
    """An object of two megabytes; three are allowed."""
    return await http.post(DEPLOYMENTS, deployment(variables("a")))


def bodies():
    more = variables("b")
    env = "/spec/template/spec/containers/0/env/-"
    yield JSON, [{"op": "add", "path": env, "value": each} for each in more]
    yield STRATEGIC, deployment(more)
    yield APPLY, deployment(more)
    yield MERGE, {"metadata": {"annotations": {"a": "x" * 1_500_000}}}


@pytest.mark.parametrize(
    ("kind", "body"), list(bodies()), ids=["json", "strategic", "apply", "merge"]
)
async def test_an_object_does_not_outgrow_what_a_request_may_bring(http, stored, kind, body):
    status, answer = await http.call(
        "PATCH", f"{DEPLOYMENTS}/d?fieldManager=m", json.dumps(body).encode(), content_type=kind
    )
    assert (status, answer["message"]) == (413, "Request entity too large: limit is 3145728")
    assert (await http.get(f"{DEPLOYMENTS}/d")) == stored


async def test_a_bomb_of_copies_is_refused(http, stored):
    bomb = [{"op": "copy", "from": "/spec", "path": f"/spec/b{n}"} for n in range(40)]
    status, answer = await http.call("PATCH", f"{DEPLOYMENTS}/d", bomb, content_type=JSON)
    assert status == 422
    assert "exceeding the limit 3145728" in answer["message"]


async def test_an_object_is_not_nested_without_end(http, stored):
    deeper = [
        {"op": "move", "from": "/spec", "path": "/x"},
        {"op": "add", "path": "/spec", "value": {}},
        {"op": "move", "from": "/x", "path": "/spec/x"},
    ]
    for times in (600, 3_000):  # the longer one also meets the limit of Python before 3.14
        patch = deeper * times
        status, answer = await http.call("PATCH", f"{DEPLOYMENTS}/d", patch, content_type=JSON)
        assert status == 400
        assert "nested too deeply" in answer["message"]


@pytest.mark.parametrize(("levels", "status"), [(400, 201), (600, 400)])
async def test_a_body_is_not_nested_without_end(http, levels, status):
    deep = "[" * levels + "]" * levels
    body = f'{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"deep"}},"x":{deep}}}'
    path = "/api/v1/namespaces/default/configmaps"
    found, answer = await http.call("POST", path, body.encode(), content_type="application/json")
    assert found == status, answer


MANY = serialization.MAX_VALUES + 1
TOO_MANY = f"Request entity too large: limit is {MANY - 1} values"


def many_values():
    """Patches with more values than are merged."""
    numbers = {"metadata": {"annotations": {"a": [0] * 2 * MANY}}}
    yield JSON, [{"op": "add", "path": "/spec/x", "value": [0] * MANY}], TOO_MANY
    yield STRATEGIC, numbers, TOO_MANY
    yield MERGE, numbers, TOO_MANY
    yield APPLY, numbers, TOO_MANY
    yield f"{APPLY};", numbers, f"yaml: line 2: more than {2 * (MANY - 1)} nodes"


@pytest.mark.parametrize(
    ("kind", "body", "told"),
    list(many_values()),
    ids=["json", "strategic", "merge", "apply", "apply yaml"],
)
async def test_a_patch_of_many_values_is_refused_before_they_are_merged(
    http, stored, kind, body, told
):
    is_yaml = kind.endswith(";")
    text = (b"---\n" if is_yaml else b"") + json.dumps(body).encode()
    assert len(text) < serialization.MAX_BODY_BYTES
    status, answer = await http.call(
        "PATCH", f"{DEPLOYMENTS}/d?fieldManager=m", text, content_type=kind
    )
    assert (status, answer["message"]) == (400 if is_yaml else 413, told)
    assert (await http.get(f"{DEPLOYMENTS}/d")) == stored


@pytest.mark.parametrize("kind", [JSON, STRATEGIC, MERGE, APPLY])
async def test_an_object_does_not_collect_many_values_by_small_patches(http, monkeypatch, kind):
    await http.post(DEPLOYMENTS, deployment(variables("a")[:100]))
    monkeypatch.setattr(serialization, "MAX_VALUES", 300)
    env = variables("b")[:100]
    more = deployment(env)
    if kind == JSON:
        path = "/spec/template/spec/containers/0/env/-"
        more = [{"op": "copy", "from": "/spec/template/spec", "path": "/spec/x"}]
        more += [{"op": "add", "path": path, "value": each} for each in env[:50]]
    elif kind == MERGE:
        more = {"metadata": {"annotations": {f"k{n}": "x" for n in range(200)}}}
    status, answer = await http.call(
        "PATCH",
        f"{DEPLOYMENTS}/d?fieldManager=m",
        json.dumps(more).encode(),
        content_type=kind,
    )
    told = "Request entity too large: limit is 300 values"
    assert (status, answer["message"]) == (413, told)


async def test_a_json_patch_may_have_all_operations_that_upstream_allows(http, stored):
    """Each has an op, a path and a value, which are no values of the object."""
    patch = [{"op": "add", "path": "/metadata/annotations/a", "value": "b"}] * MAX_OPERATIONS
    patch[0] = {"op": "add", "path": "/metadata/annotations", "value": {}}
    status, answer = await http.call("PATCH", f"{DEPLOYMENTS}/d", patch, content_type=JSON)
    assert (status, answer["metadata"]["annotations"]) == (200, {"a": "b"})
    patch.append(patch[-1])
    status, answer = await http.call("PATCH", f"{DEPLOYMENTS}/d", patch, content_type=JSON)
    told = "The allowed maximum operations in a JSON patch is 10000, got 10001"
    assert (status, answer["message"]) == (400, told)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "b": [true, null, 1.5, -2, 1e3, "x\\u00e9\\n"], "c": {"": {}}}',
        '{"a": 12345678901234567890, "b": "1:30", "c": "yes", "d": "2026-01-01", "e": "null"}',
    ],
)
def test_applied_json_is_decoded_as_the_yaml_that_it_is(text):
    for keeps_nulls in (False, True):
        quick = serialization.decode_yaml(text.encode(), keeps_nulls=keeps_nulls)
        plain = serialization.decode_yaml(b"--- " + text.encode(), keeps_nulls=keeps_nulls)
        assert quick == plain
    with pytest.raises(BadRequest, match='key "a" already set in map'):
        serialization.decode_yaml(b'{"a": 1, "a": 2}')
    with pytest.raises(BadRequest, match="yaml: "):
        serialization.decode_yaml(b'{"a": 1')


def test_the_keys_of_owned_fields_are_in_order():
    """An encoder that sorts them takes a second for 25,000 keys with the smallest at the end."""
    paths = {("f:spec",), ("f:spec", "f:b"), ("f:spec", "f:a", 'k:{"name":"c"}'), ("f:data",)}
    fields = to_fields_v1(paths)
    assert from_fields_v1(fields) == paths
    assert list(fields) == ["f:data", "f:spec"]
    assert list(fields["f:spec"]) == [".", "f:a", "f:b"]


def test_owned_fields_that_users_name_are_not_remembered_without_end():
    layout = custom_layout(None)
    mine = managers.Manager(name="m", operation="Update", api_version="v1", time="now")
    for number in range(100):
        new = {f"{number}-{n}": n for n in range(500)}
        (only,) = managers.after_update((), layout, {}, new, mine)
        assert len(only.paths()) == 500
        assert only.encoded
    for cache in (managers._INTERNED, managers._PATHS, managers._ENCODED):
        assert 0 < cache.held <= 256 * 1024
        assert 0 < len(cache) < 90
    assert 0 < len(managers._REMEMBERED) <= 32


async def test_commas_in_strings_are_not_values(http):
    text = "1," * MANY
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    path = "/api/v1/namespaces/default/configmaps"
    await http.post(path, made)
    status, answer = await http.call(
        "PATCH", f"{path}/a", {"data": {"table.csv": text}}, content_type=MERGE
    )
    assert (status, answer["data"]) == (200, {"table.csv": text})


async def test_an_item_is_not_merged_over_and_over(http, stored):
    """Each time copies the item, which may be large."""
    patch = deployment([])
    spec = patch["spec"]["template"]["spec"]
    spec["containers"] = [{"name": "c", "image": "j"}] * MAX_REPEATS
    where = f"{DEPLOYMENTS}/d"
    status, _ = await http.call("PATCH", where, patch, content_type=STRATEGIC)
    assert status == 200
    spec["containers"].append({"name": "c", "image": "k"})
    status, answer = await http.call("PATCH", where, patch, content_type=STRATEGIC)
    told = f"more than {MAX_REPEATS} items with the merge key name: c"
    assert (status, answer["message"]) == (400, told)
