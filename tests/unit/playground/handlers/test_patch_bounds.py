"""Patches that would make an object large or deep, or take long: refused with a clear answer,
whatever their kind.

No other request is served while one is handled, so the number of values it may bring or lead to is
bounded.
"""

from __future__ import annotations

import json

import pytest

from kubesched.playground.apimachinery import serialization
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
    yield APPLY, numbers, f"yaml: line 1: more than {2 * (MANY - 1)} nodes"


@pytest.mark.parametrize(
    ("kind", "body", "told"), list(many_values()), ids=["json", "strategic", "merge", "apply"]
)
async def test_a_patch_of_many_values_is_refused_before_they_are_merged(
    http, stored, kind, body, told
):
    text = json.dumps(body).encode()
    assert len(text) < serialization.MAX_BODY_BYTES
    status, answer = await http.call(
        "PATCH", f"{DEPLOYMENTS}/d?fieldManager=m", text, content_type=kind
    )
    assert (status, answer["message"]) == (400 if kind == APPLY else 413, told)
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
