"""Extenders are sent the objects that the scheduler means: complete, current, and never another one
of the same name.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import convert

from kubesched.api.core_v1 import Node, Pod
from kubesched.app import scheduler_app
from kubesched.app.scheduler_app import FETCH_ONE_BY_ONE, WholeObjectsByRest
from kubesched.base.errors import NotFound
from kubesched.client.rest import RestClient
from kubesched.testing.builders import make_pod


class Server(RestClient):
    """Answers from a dictionary of paths, and counts."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def get_raw(self, path: str, *_arguments: Any, **_settings: Any) -> bytes:
        self.asked.append(path)
        return json.dumps(self.answers[path]).encode()


def _node(name: str, revision: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "resourceVersion": revision},
        "spec": {"podCIDR": "10.0.0.0/24"},
    }


async def test_a_pod_comes_with_what_the_scheduler_does_not_read() -> None:
    stored = {"metadata": {"name": "a", "uid": "1"}, "spec": {"dnsPolicy": "None"}}
    whole = WholeObjectsByRest(Server({"/api/v1/namespaces/default/pods/a": stored}))
    assert await whole.pod(make_pod("a").uid("1").build()) == stored


async def test_a_successor_of_the_same_name_is_another_pod() -> None:
    stored = {"metadata": {"name": "a", "uid": "2"}}
    whole = WholeObjectsByRest(Server({"/api/v1/namespaces/default/pods/a": stored}))
    with pytest.raises(NotFound, match="default/a with UID 1 is gone"):
        await whole.pod(make_pod("a").uid("1").build())


def _pod(revision: str) -> dict[str, Any]:
    return {"metadata": {"name": "a", "uid": "1", "resourceVersion": revision}}


def _known(name: str, uid: str, revision: str) -> Pod:
    metadata = {"namespace": "default", "name": name, "uid": uid, "resourceVersion": revision}
    return convert({"metadata": metadata}, Pod)


async def test_a_victim_is_fetched_again_only_once_it_has_changed() -> None:
    path = "/api/v1/namespaces/default/pods/a"
    server = Server({path: _pod("5")})
    whole = WholeObjectsByRest(server)
    known = _known("a", "1", "5")
    assert await whole.victim(known) == await whole.victim(known) == _pod("5")
    assert len(server.asked) == 1
    assert await whole.pod(known) == _pod("5"), "which is never from before"
    assert len(server.asked) == 2
    server.answers[path] = _pod("6")
    assert await whole.victim(_known("a", "1", "6")) == _pod("6")


async def test_victims_kept_are_few_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_app, "MAX_VICTIMS", 2)
    stored = {
        f"/api/v1/namespaces/default/pods/{name}": {
            "metadata": {"name": name, "uid": name, "resourceVersion": "1"}
        }
        for name in "abc"
    }
    server = Server(stored)
    whole = WholeObjectsByRest(server)
    for name in "abacb":
        await whole.victim(_known(name, name, "1"))
    assert [path[-1] for path in server.asked] == ["a", "b", "c", "b"], "a was used after b"


async def test_a_node_is_fetched_again_only_once_it_has_changed() -> None:
    server = Server({"/api/v1/nodes/n": _node("n", "5")})
    whole = WholeObjectsByRest(server)
    known = convert(_node("n", "5"), Node)
    assert await whole.nodes([known]) == await whole.nodes([known]) == [_node("n", "5")]
    assert len(server.asked) == 1
    server.answers["/api/v1/nodes/n"] = _node("n", "6")
    assert await whole.nodes([convert(_node("n", "6"), Node)]) == [_node("n", "6")]


async def test_many_changed_nodes_are_listed_at_once() -> None:
    names = [f"n{number}" for number in range(FETCH_ONE_BY_ONE + 1)]
    server = Server({"/api/v1/nodes": {"items": [_node(name, "1") for name in names]}})
    whole = WholeObjectsByRest(server)
    result = await whole.nodes([convert(_node(name, "1"), Node) for name in names])
    assert [node["metadata"]["name"] for node in result] == names
    assert server.asked == ["/api/v1/nodes"]
