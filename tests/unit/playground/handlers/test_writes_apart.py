"""Costly writes: other requests are served while one is computed, and no write of theirs is lost.

Order is controlled: a thread that computes waits until the test has sent its other requests.
"""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from kubesched.playground.handlers import exchange, writing
from kubesched.playground.handlers.exchange import ApiRequest
from kubesched.playground.registry import rest_storage
from kubesched.playground.registry.patching import apply, verb

MAPS = "/api/v1/namespaces/default/configmaps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
MANY = {f"k{n}": "v" for n in range(3_000)}


def config_map(**data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}


def large(kind):
    if kind == JSON:
        return [{"op": "add", "path": f"/data/{key}", "value": "v"} for key in MANY]
    return config_map(**MANY)


class Gate:
    """Holds what is computed in other threads, until it is opened once per time."""

    def __init__(self, monkeypatch, *names):
        self.loop = asyncio.get_running_loop()
        self.main = threading.get_ident()
        self.reached: asyncio.Queue[str] = asyncio.Queue()
        self.opened = threading.Semaphore(0)
        for owner, name in names:
            monkeypatch.setattr(owner, name, self.held(name, getattr(owner, name)))

    def held(self, name, function):
        def wait_and_compute(*args, **options):
            result = function(*args, **options)
            if threading.get_ident() != self.main:
                self.loop.call_soon_threadsafe(self.reached.put_nowait, name)
                assert self.opened.acquire(timeout=60), "the gate was not opened"
            return result

        return wait_and_compute


@pytest.fixture
async def gate(monkeypatch):
    gate = Gate(monkeypatch, (writing, "decode_raw_json"), (writing, "decode_yaml"))
    yield gate
    gate.opened.release(1000)


def patching(http, kind, body, target=f"{MAPS}/a?fieldManager=m&force=true"):
    data = json.dumps(body).encode()
    return asyncio.create_task(http.call("PATCH", target, data, content_type=kind))


@pytest.mark.parametrize("kind", [JSON, MERGE, STRATEGIC, APPLY])
async def test_others_are_served_while_a_costly_patch_is_computed(http, gate, kind):
    await http.post(MAPS, config_map(old="v"))
    task = patching(http, kind, large(kind))
    await gate.reached.get()
    assert (await http.get(f"{MAPS}/a"))["data"] == {"old": "v"}
    other = {**config_map(), "metadata": {"name": "b"}}
    assert (await http.post(MAPS, other))["metadata"]["name"] == "b"
    assert not task.done()
    gate.opened.release(10)
    status, answer = await task
    assert (status, answer["data"]) == (200, {"old": "v", **MANY})
    assert await http.get(f"{MAPS}/a") == answer


@pytest.mark.parametrize("kind", [JSON, MERGE, STRATEGIC, APPLY])
@pytest.mark.parametrize("where", ["before", "after"])
async def test_a_write_in_between_is_not_lost(http, monkeypatch, kind, where):
    """Whether it comes before the fields' owners are known, or after."""
    names = [(verb, "check_values"), (apply, "check_values")]
    if where == "after":
        names = [(rest_storage, "after_update"), (apply, "check_values")]
    await http.post(MAPS, config_map(old="v"))
    gate = Gate(monkeypatch, *names)
    task = patching(http, kind, large(kind))
    await gate.reached.get()
    status, _ = await http.call("PATCH", f"{MAPS}/a", {"data": {"new": "v"}}, content_type=MERGE)
    assert status == 200
    gate.opened.release(10)
    status, answer = await task
    assert (status, answer["data"]) == (200, {"old": "v", "new": "v", **MANY})


async def test_a_patch_that_is_overtaken_five_times_is_a_conflict(http, monkeypatch):
    await http.post(MAPS, config_map())
    gate = Gate(monkeypatch, (rest_storage, "after_update"))
    task = patching(http, MERGE, large(MERGE))
    for number in range(5):
        assert await gate.reached.get() == "after_update"
        await http.call("PATCH", f"{MAPS}/a", {"data": {"n": str(number)}}, content_type=MERGE)
        gate.opened.release()
    status, answer = await task
    assert (status, answer["reason"]) == (409, "Conflict")
    assert "the object has been modified" in answer["message"]
    assert (await http.get(f"{MAPS}/a"))["data"] == {"n": "4"}


async def test_an_object_that_goes_meanwhile_is_not_made_again(http, monkeypatch):
    await http.post(MAPS, config_map())
    gate = Gate(monkeypatch, (verb, "check_values"))
    task = patching(http, MERGE, large(MERGE))
    await gate.reached.get()
    status, _ = await http.call("DELETE", f"{MAPS}/a")
    assert status == 200
    gate.opened.release(10)
    assert (await task)[0] == 404


async def test_one_costly_patch_is_computed_at_a_time(http, gate):
    await http.post(MAPS, config_map())
    tasks = [patching(http, MERGE, large(MERGE)) for _ in range(3)]
    await gate.reached.get()
    await http.get(f"{MAPS}/a")
    assert gate.reached.empty()
    gate.opened.release(1000)
    assert {status for status, _ in await asyncio.gather(*tasks)} == {200}


def putting(http, body):
    return asyncio.create_task(http.call("PUT", f"{MAPS}/a", body))


@pytest.mark.parametrize("step", [(exchange, "decode_json"), (rest_storage, "creator")])
async def test_others_are_served_while_a_large_object_is_created(http, monkeypatch, step):
    gate = Gate(monkeypatch, step)
    task = asyncio.create_task(http.call("POST", MAPS, config_map(**MANY)))
    await gate.reached.get()
    other = {**config_map(), "metadata": {"name": "b"}}
    assert (await http.post(MAPS, other))["metadata"]["name"] == "b"
    assert not task.done()
    gate.opened.release(10)
    status, answer = await task
    assert (status, answer["data"]) == (201, MANY)
    assert await http.get(f"{MAPS}/a") == answer


@pytest.mark.parametrize("step", [(exchange, "decode_json"), (rest_storage, "after_update")])
async def test_others_are_served_while_a_large_object_is_replaced(http, monkeypatch, step):
    await http.post(MAPS, config_map(old="v"))
    gate = Gate(monkeypatch, step)
    task = putting(http, config_map(**MANY))
    await gate.reached.get()
    assert (await http.get(f"{MAPS}/a"))["data"] == {"old": "v"}
    gate.opened.release(10)
    status, answer = await task
    assert (status, answer["data"]) == (200, MANY)
    assert await http.get(f"{MAPS}/a") == answer


@pytest.mark.parametrize("states_version", [False, True])
async def test_a_replacement_that_is_overtaken(http, monkeypatch, states_version):
    """With a version it is a conflict; without, it replaces what came in between."""
    made = await http.post(MAPS, config_map(old="v"))
    body = config_map(**MANY)
    if states_version:
        body["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]
    gate = Gate(monkeypatch, (rest_storage, "after_update"))
    task = putting(http, body)
    await gate.reached.get()
    await http.call("PATCH", f"{MAPS}/a", {"data": {"new": "v"}}, content_type=MERGE)
    gate.opened.release(10)
    status, _ = await task
    assert status == (409 if states_version else 200)
    left = {"old": "v", "new": "v"} if states_version else MANY
    assert (await http.get(f"{MAPS}/a"))["data"] == left


async def test_what_was_created_meanwhile_exists_already(http, monkeypatch):
    gate = Gate(monkeypatch, (rest_storage, "creator"))
    task = asyncio.create_task(http.call("POST", MAPS, config_map(**MANY)))
    await gate.reached.get()
    await http.post(MAPS, config_map(first="v"))
    gate.opened.release(10)
    assert (await task)[0] == 409
    assert (await http.get(f"{MAPS}/a"))["data"] == {"first": "v"}


async def test_nothing_is_created_in_a_namespace_that_goes_meanwhile(http, monkeypatch):
    namespaces, maps = "/api/v1/namespaces", "/api/v1/namespaces/n/configmaps"
    await http.post(namespaces, {"metadata": {"name": "n"}})
    gate = Gate(monkeypatch, (rest_storage, "creator"))
    task = asyncio.create_task(http.call("POST", maps, config_map(**MANY)))
    await gate.reached.get()
    assert (await http.call("DELETE", f"{namespaces}/n"))[0] == 200
    gate.opened.release(10)
    status, answer = await task
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert "because it is being terminated" in answer["message"]


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_nothing_is_created_of_a_kind_that_goes_meanwhile(http, monkeypatch, method):
    open_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True}
    spec = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [{**version, "schema": {"openAPIV3Schema": open_object}}],
    }
    definition = {"metadata": {"name": "things.example.com"}, "spec": spec}
    await http.post(DEFINITIONS, definition)
    things = "/apis/example.com/v1/namespaces/default/things"
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}}
    body = json.dumps({**thing, "data": MANY}).encode()
    if method == "POST":
        gate = Gate(monkeypatch, (rest_storage, "creator"))
        task = asyncio.create_task(http.call("POST", things, body))
    else:
        gate = Gate(monkeypatch, (writing, "decode_yaml"))
        task = patching(http, APPLY, json.loads(body), f"{things}/a?fieldManager=m")
    await gate.reached.get()
    assert (await http.call("DELETE", f"{DEFINITIONS}/things.example.com"))[0] == 200
    gate.opened.release(10)
    assert (await task)[0] == 404
    await http.post(DEFINITIONS, definition)
    assert (await http.get(things))["items"] == []


async def test_a_small_write_of_a_small_object_is_answered_at_once(http):
    await http.post(MAPS, config_map())
    headers = {"content-type": MERGE, "accept": "application/json"}
    request = ApiRequest("PATCH", f"{MAPS}/a", "", headers, b'{"data":{"a":"b"}}')
    assert http.server.respond(request).status == 200
    large_patch = ApiRequest("PATCH", f"{MAPS}/a", "", headers, json.dumps(large(MERGE)).encode())
    assert (await http.server.respond(large_patch)).status == 200
    small_of_large = ApiRequest("PATCH", f"{MAPS}/a", "", headers, b'{"data":{"a":"c"}}')
    assert (await http.server.respond(small_of_large)).status == 200
