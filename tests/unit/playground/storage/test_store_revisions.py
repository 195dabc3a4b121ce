"""The store: one counter, ordered notifications, snapshots of the past, bounded history."""

from __future__ import annotations

import pytest

from kubesched.base.errors import Gone
from kubesched.playground.storage.store import Change, Store


def obj(name: str, namespace: str = "ns", **more: object) -> dict:
    return {"metadata": {"name": name, "namespace": namespace}, **more}


def names(entries) -> list[str]:
    return [entry.obj["metadata"]["name"] for entry in entries]


def test_every_write_of_every_resource_gets_the_next_revision():
    store = Store()
    first = store.put("pods", obj("a"))
    second = store.put("nodes", obj("n", ""))
    third = store.remove("pods", "ns", "a")
    assert [first.revision, second.revision, third.revision] == [2, 3, 4]
    assert third.obj["metadata"]["resourceVersion"] == "4"
    store.check_invariants()


def test_entries_come_in_key_order_across_namespaces():
    store = Store()
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "y")):
        store.put("pods", obj(name, namespace))
    assert names(store.collection("pods").entries()) == ["y", "z", "x"]
    assert names(store.collection("pods").entries("a")) == ["y", "z"]


def test_a_past_revision_can_be_read_while_the_history_reaches_back():
    store = Store()
    store.put("pods", obj("a", v=1))
    store.put("pods", obj("b"))
    then = store.revision
    store.put("pods", obj("a", v=2))
    store.remove("pods", "ns", "b")
    store.put("pods", obj("c"))
    past = list(store.collection("pods").entries_at(then))
    assert names(past) == ["a", "b"]
    assert past[0].obj["v"] == 1
    assert names(store.collection("pods").entries_at(store.revision)) == ["a", "c"]


def test_a_compacted_revision_is_gone():
    store = Store(history_limit=4)
    for index in range(10):
        store.put("pods", obj(f"p{index}"))
    with pytest.raises(Gone, match="too old resource version: 2"):
        list(store.collection("pods").entries_at(2))
    with pytest.raises(Gone):
        store.collection("pods").position_after(2)


def test_compaction_on_request_forgets_up_to_the_revision():
    store = Store()
    for index in range(5):
        store.put("pods", obj(f"p{index}"))
    collection = store.collection("pods")
    collection.compact(4)
    assert [
        change.revision
        for change in collection.changes_from(collection.position_after(4), 10) or []
    ] == [5, 6]
    with pytest.raises(Gone):
        collection.require_history(3)


def test_a_cursor_in_dropped_history_is_told_so():
    store = Store(history_limit=4)
    store.put("pods", obj("first"))
    position = store.collection("pods").position_after(1)
    for index in range(10):
        store.put("pods", obj(f"p{index}"))
    assert store.collection("pods").changes_from(position, 100) is None


def test_a_write_from_within_a_notification_reaches_everybody_after_the_present_one():
    store = Store()
    seen: list[tuple[str, int]] = []

    def writer(change: Change) -> None:
        seen.append(("writer", change.revision))
        if change.entry.obj["metadata"]["name"] == "first":
            store.put("pods", obj("second"))

    store.subscribe("pods", writer)
    store.subscribe("pods", lambda change: seen.append(("reader", change.revision)))
    store.put("pods", obj("first"))
    assert seen == [("writer", 2), ("reader", 2), ("writer", 3), ("reader", 3)]


def test_a_failing_subscriber_does_not_affect_the_others(caplog):
    store = Store()
    seen: list[int] = []

    def fail(change: Change) -> None:
        raise RuntimeError("boom")

    store.subscribe("pods", fail)
    store.subscribe("pods", lambda change: seen.append(change.revision))
    store.put("pods", obj("a"))
    assert seen == [2]
    (record,) = [r for r in caplog.records if r.getMessage() == "Subscriber failed"]
    told = [record.values[key] for key in ("resource", "change", "namespace", "name")]
    assert told == ["pods", "ADDED", "ns", "a"]


def test_an_unsubscribed_listener_hears_nothing_more():
    store = Store()
    seen: list[int] = []
    unsubscribe = store.subscribe("pods", lambda change: seen.append(change.revision))
    store.put("pods", obj("a"))
    unsubscribe()
    unsubscribe()
    store.put("pods", obj("b"))
    assert seen == [2]


def test_changing_a_stored_object_in_place_is_found_out():
    store = Store()
    entry = store.put("pods", obj("a", spec={"x": 1}))
    assert entry.body
    store.check_invariants()
    entry.obj["spec"]["x"] = 2
    with pytest.raises(AssertionError, match="changed in place"):
        store.check_invariants()


def test_a_store_goes_back_to_an_older_revision():
    store = Store()
    store.put("pods", obj("a", spec={"x": 1}))
    store.put("pods", obj("b"))
    before = store.revision
    store.put("pods", obj("a", spec={"x": 2}))
    store.remove("pods", "ns", "b")
    store.put("pods", obj("c"))
    store.rewind(before)
    assert store.revision == before
    assert [entry.obj["metadata"]["name"] for entry in store.collection("pods").entries()] == [
        "a",
        "b",
    ]
    assert store.get("pods", "ns", "a").obj["spec"] == {"x": 1}
    store.check_invariants()
    assert store.put("pods", obj("d")).revision == before + 1


def test_a_store_does_not_go_back_beyond_what_it_remembers():
    store = Store()
    store.put("pods", obj("a"))
    store.put("pods", obj("b"))
    store.collection("pods").compact(store.revision)
    with pytest.raises(Gone):
        store.rewind(store.revision - 1)
    assert store.collection("pods").count == 2
