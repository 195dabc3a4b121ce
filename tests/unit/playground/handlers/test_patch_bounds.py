"""Patches that would make an object large or deep: refused with a clear answer, whatever their
kind.
"""

from __future__ import annotations

import json

import pytest

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
    status, answer = await http.call("PATCH", f"{DEPLOYMENTS}/d", deeper * 3_000, content_type=JSON)
    assert status == 400
    assert "nested too deeply" in answer["message"]
