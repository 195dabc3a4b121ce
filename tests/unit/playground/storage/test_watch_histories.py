"""Watches under random write histories: from any revision, any observer can rebuild exactly what
exists.
"""

from __future__ import annotations

from contextlib import closing

from hypothesis import given, settings
from hypothesis import strategies as st

from kubesched.base.errors import Gone
from kubesched.playground.storage.store import Store
from kubesched.playground.storage.watch import Watch

NAMES = [f"p{index}" for index in range(4)]
NAMESPACES = ["a", "b"]

writes = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "remove"]),
        st.sampled_from(NAMESPACES),
        st.sampled_from(NAMES),
        st.integers(0, 2),
    ),
    max_size=40,
)


def write(store: Store, operation: str, namespace: str, name: str, color: int) -> None:
    if operation == "put":
        labels = {"color": str(color)}
        store.put("pods", {"metadata": {"name": name, "namespace": namespace, "labels": labels}})
    elif store.get("pods", namespace, name) is not None:
        store.remove("pods", namespace, name)


def visible(entries, namespace, matches) -> dict[tuple[str, str], str]:
    return {
        (entry.obj["metadata"]["namespace"], entry.obj["metadata"]["name"]): entry.obj["metadata"][
            "resourceVersion"
        ]
        for entry in entries
        if (namespace is None or entry.obj["metadata"]["namespace"] == namespace)
        and (matches is None or matches(entry.obj))
    }


@settings(max_examples=200, deadline=None)
@given(
    writes=writes,
    start=st.integers(0, 40),
    namespace=st.sampled_from([None, "a"]),
    color=st.sampled_from([None, "0", "1"]),
    history_limit=st.sampled_from([5, 1000]),
)
async def test_list_then_watch_rebuilds_the_exact_state(
    writes, start, namespace, color, history_limit
):
    matches = None if color is None else lambda obj: obj["metadata"]["labels"]["color"] == color
    store = Store(history_limit=history_limit)
    revision, state = store.revision, {}
    for index, each in enumerate(writes):
        if index == start:
            revision = store.revision
            state = visible(store.collection("pods").entries(), namespace, matches)
        write(store, *each)
    if start >= len(writes):
        revision, state = (
            store.revision,
            visible(store.collection("pods").entries(), namespace, matches),
        )
    try:
        watch = Watch(store, "pods", revision, namespace=namespace, matches=matches)
    except Gone:
        assert revision < store.collection("pods").compacted
        return
    last = revision
    with closing(watch):
        while (batch := watch.poll()) is not None:
            for event, entry, event_revision in batch:
                metadata = entry.obj["metadata"]
                key = (metadata["namespace"], metadata["name"])
                assert event_revision > last, "events come in revision order, each once"
                assert metadata["resourceVersion"] == str(event_revision)
                last = event_revision
                if event == "ADDED":
                    assert key not in state
                    state[key] = metadata["resourceVersion"]
                elif event == "MODIFIED":
                    assert key in state
                    state[key] = metadata["resourceVersion"]
                else:
                    del state[key]
    assert state == visible(store.collection("pods").entries(), namespace, matches)
    store.check_invariants()


@settings(max_examples=100, deadline=None)
@given(writes=writes, at=st.integers(0, 40))
def test_the_past_reads_as_it_was(writes, at):
    store = Store()
    remembered = None
    for index, each in enumerate(writes):
        if index == at:
            remembered = (store.revision, visible(store.collection("pods").entries(), None, None))
        write(store, *each)
    if remembered is not None:
        revision, state = remembered
        assert visible(store.collection("pods").entries_at(revision), None, None) == state
        only_a = {key: value for key, value in state.items() if key[0] == "a"}
        assert visible(store.collection("pods").entries_at(revision, "a"), None, None) == only_a
