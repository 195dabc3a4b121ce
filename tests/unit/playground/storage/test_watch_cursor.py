"""Waiting for changes: wake-ups, time-outs, closing, and readers that fall behind."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from kubesched.base.errors import Gone
from kubesched.playground.storage.store import Store
from kubesched.playground.storage.watch import Watch


def put(store: Store, name: str, **labels: str) -> None:
    store.put("pods", {"metadata": {"name": name, "namespace": "ns", "labels": labels}})


async def test_a_waiting_watcher_gets_the_next_change():
    store = Store()
    with closing(Watch(store, "pods", store.revision)) as watch:
        waiting = asyncio.create_task(watch.next_batch())
        await asyncio.sleep(0)
        put(store, "a")
        batch = await waiting
    assert [(event, entry.obj["metadata"]["name"]) for event, entry, _ in batch] == [("ADDED", "a")]


async def test_a_burst_is_read_as_one_batch():
    store = Store()
    with closing(Watch(store, "pods", store.revision)) as watch:
        for index in range(50):
            put(store, f"p{index}")
        assert len(await watch.next_batch()) == 50


async def test_time_passes_without_a_change():
    store = Store()
    with closing(Watch(store, "pods", store.revision)) as watch:
        assert await watch.next_batch(timeout_s=0.001) == []


async def test_a_change_between_the_end_of_the_wait_and_its_notice_is_not_missed():
    store = Store()
    with closing(Watch(store, "pods", store.revision)) as watch:
        waiting = asyncio.create_task(watch.next_batch(timeout_s=1000.0))
        await asyncio.sleep(0)
        watch._on_timeout()  # the time is up, and before the watcher gets its turn ...
        put(store, "a")
        assert [entry.obj["metadata"]["name"] for _, entry, _ in await waiting] == ["a"]


async def test_changes_that_do_not_concern_the_watcher_do_not_end_its_wait():
    store = Store()
    with closing(
        Watch(
            store, "pods", store.revision, matches=lambda obj: "mine" in obj["metadata"]["labels"]
        )
    ) as watch:
        waiting = asyncio.create_task(watch.next_batch())
        await asyncio.sleep(0)
        put(store, "other")
        await asyncio.sleep(0)
        assert not waiting.done()
        put(store, "mine", mine="yes")
        assert [entry.obj["metadata"]["name"] for _, entry, _ in await waiting] == ["mine"]


async def test_an_object_leaving_the_selector_is_deleted_for_the_observer():
    store = Store()
    put(store, "a", color="red")
    with closing(
        Watch(
            store,
            "pods",
            store.revision,
            matches=lambda obj: obj["metadata"]["labels"]["color"] == "red",
        )
    ) as watch:
        put(store, "a", color="blue")
        put(store, "a", color="red")
        events = await watch.next_batch()
    assert [event for event, _, _ in events] == ["DELETED", "ADDED"]
    last_seen = events[0][1].obj
    assert last_seen["metadata"]["labels"] == {"color": "red"}, "the observer is shown what it knew"
    assert last_seen["metadata"]["resourceVersion"] == "3"


async def test_closing_releases_whoever_waits():
    store = Store()
    watch = Watch(store, "pods", store.revision)
    waiting = asyncio.create_task(watch.next_batch())
    await asyncio.sleep(0)
    watch.close()
    assert await waiting == []
    assert not store.collection("pods").subscribers


async def test_a_reader_behind_the_history_is_cut_off_and_others_are_not():
    store = Store(history_limit=8)
    with (
        closing(Watch(store, "pods", store.revision)) as sleeper,
        closing(Watch(store, "pods", store.revision)) as reader,
    ):
        seen = 0
        for index in range(30):
            put(store, f"p{index}")
            seen += len(await reader.next_batch())
        assert seen == 30
        with pytest.raises(Gone):
            await sleeper.next_batch()
