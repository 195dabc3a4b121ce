"""Watches as clients see them: lines of JSON, bookmarks, initial events, expiry, tables."""

from __future__ import annotations

import asyncio
import json

import pytest

from kubesched.playground.handlers import watching

MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str, **labels: str) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}


class Reader:
    """Reads a watch event by event."""

    def __init__(self, response) -> None:
        assert response.status == 200, response.body
        self.stream = response.stream
        self._chunks = response.stream.__aiter__()
        self._events: list[dict] = []

    async def next(self) -> dict:
        while not self._events:
            chunk = await asyncio.wait_for(self._chunks.__anext__(), 5)
            self._events += [json.loads(line) for line in chunk.splitlines()]
        return self._events.pop(0)

    async def close(self) -> None:
        self.stream.close()
        await self._chunks.aclose()


@pytest.fixture
async def open_watch(http):
    readers: list[Reader] = []

    async def open_it(query: str = "", path: str = MAPS, **options) -> Reader:
        reader = Reader(await http.raw("GET", f"{path}?watch=true&{query}", **options))
        readers.append(reader)
        return reader

    yield open_it
    for reader in readers:
        await reader.close()


async def test_a_watch_begins_where_it_was_asked_to(http, open_watch):
    await http.post(MAPS, config_map("before"))
    start = http.server.registry.store.revision
    await http.post(MAPS, config_map("after"))
    watch = await open_watch(f"resourceVersion={start}")
    event = await watch.next()
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "after")
    await http.call("DELETE", f"{MAPS}/before")
    event = await watch.next()
    assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "before")


@pytest.mark.parametrize("version", ["", "resourceVersion=0"])
async def test_a_watch_from_nowhere_begins_with_what_exists(http, open_watch, version):
    await http.post(MAPS, config_map("a"))
    watch = await open_watch(version)
    assert (await watch.next())["object"]["metadata"]["name"] == "a"
    await http.post(MAPS, config_map("b"))
    assert (await watch.next())["object"]["metadata"]["name"] == "b"


async def test_a_streamed_list_ends_with_a_bookmark_that_says_so(http, open_watch):
    await http.post(MAPS, config_map("a"))
    watch = await open_watch(
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    )
    assert (await watch.next())["type"] == "ADDED"
    bookmark = await watch.next()
    assert bookmark["type"] == "BOOKMARK"
    metadata = bookmark["object"]["metadata"]
    assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert metadata["resourceVersion"] == str(http.server.registry.store.revision)


async def test_a_selective_watch_sees_objects_come_and_go(http, open_watch):
    watch = await open_watch("labelSelector=color%3Dred&resourceVersion=0")
    await http.post(MAPS, config_map("a", color="blue"))
    await http.post(MAPS, config_map("b", color="red"))
    assert (await watch.next())["object"]["metadata"]["name"] == "b"
    patch = {"metadata": {"labels": {"color": "blue"}}}
    await http.call("PATCH", f"{MAPS}/b", patch, content_type="application/merge-patch+json")
    event = await watch.next()
    assert (event["type"], event["object"]["metadata"]["labels"]) == ("DELETED", {"color": "red"})


async def test_a_watch_of_one_object(http, open_watch):
    watch = await open_watch("resourceVersion=0&fieldSelector=metadata.name%3Db")
    named = await open_watch("resourceVersion=0", path=f"{MAPS}/b")
    await http.post(MAPS, config_map("a"))
    await http.post(MAPS, config_map("b"))
    assert (await watch.next())["object"]["metadata"]["name"] == "b"
    assert (await named.next())["object"]["metadata"]["name"] == "b"


async def test_a_revision_that_is_gone_is_an_error_event(http, open_watch):
    for index in range(3):
        await http.post(MAPS, config_map(f"c{index}"))
    store = http.server.registry.store
    store.collection("configmaps").compact(store.revision)
    watch = await open_watch("resourceVersion=2")
    event = await watch.next()
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    with pytest.raises(StopAsyncIteration):
        await watch.next()


async def test_bookmarks_come_while_nothing_happens(http, open_watch, monkeypatch):
    monkeypatch.setattr(watching, "BOOKMARK_INTERVAL_S", 0.01)
    watch = await open_watch("allowWatchBookmarks=true")
    while (event := await watch.next())["type"] != "BOOKMARK":
        pass
    assert event["object"]["metadata"]["resourceVersion"] == str(
        http.server.registry.store.revision
    )


async def test_a_watch_of_tables_has_bookmarks(http, open_watch, monkeypatch):
    monkeypatch.setattr(watching, "BOOKMARK_INTERVAL_S", 0.01)
    table = "application/json;as=Table;g=meta.k8s.io;v=v1"
    watch = await open_watch("allowWatchBookmarks=true", accept=table)
    while (event := await watch.next())["type"] != "BOOKMARK":
        pass
    [row] = event["object"]["rows"]
    revision = str(http.server.registry.store.revision)
    assert (row["cells"], row["object"]["metadata"]["resourceVersion"]) == ([], revision)


async def test_a_watch_ends_when_its_time_is_up(http, open_watch, clock):
    watch = await open_watch("timeoutSeconds=5&resourceVersion=0")
    clock.advance(6)
    await http.post(MAPS, config_map("a"))
    with pytest.raises(StopAsyncIteration):
        await watch.next()


async def test_the_encoding_of_an_event_is_shared(http, open_watch):
    first = await http.raw("GET", f"{MAPS}?watch=true")
    second = await http.raw("GET", f"{MAPS}?watch=true")
    await http.post(MAPS, config_map("a"))
    entry = http.server.registry.store.get("configmaps", "default", "a")
    assert entry.body is entry.body
    chunks = [
        await asyncio.wait_for(each.stream.__aiter__().__anext__(), 5) for each in (first, second)
    ]
    assert chunks[0] == chunks[1]
    assert entry.body in chunks[0]
    first.stream.close()
    second.stream.close()


async def test_a_watch_of_tables_sends_the_columns_once(http, open_watch):
    watch = await open_watch(
        "resourceVersion=0", accept="application/json;as=Table;g=meta.k8s.io;v=v1"
    )
    await http.post(MAPS, config_map("a"))
    await http.post(MAPS, config_map("b"))
    first, second = await watch.next(), await watch.next()
    assert first["object"]["columnDefinitions"][0]["name"] == "Name"
    assert second["object"]["columnDefinitions"] is None
    assert second["object"]["rows"][0]["cells"][0] == "b"


async def test_closing_a_stream_takes_its_subscription_back(http, open_watch):
    watch = await open_watch("resourceVersion=0")
    subscribers = http.server.registry.store.collection("configmaps").subscribers
    assert len(subscribers) == 1
    await watch.close()
    assert not subscribers
