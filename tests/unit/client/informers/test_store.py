"""The store keeps its indexes true under any sequence of changes, and the lister reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from self_checks import check_store, keys_by_value

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import ObjectMeta
from kubesched.api.names import key_of, object_key
from kubesched.client.informers.lister import Lister
from kubesched.client.informers.store import Store


def pod(name: str, namespace: str = "default", **labels: str) -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels))


def label_values(obj: Pod) -> list[str]:
    return sorted((obj.metadata.labels or {}).values())


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "remove"]),
            st.sampled_from("abc"),
            st.sampled_from(["x", "y"]),
            st.dictionaries(st.sampled_from("kl"), st.sampled_from("123")),
        )
    ),
    st.integers(0, 10),
)
def test_indexes_equal_freshly_built_ones_after_any_changes(steps, index_at):
    store: Store[Pod] = Store()
    expected: dict[str, Pod] = {}
    for number, (what, name, namespace, labels) in enumerate(steps):
        if number == index_at:
            store.add_index("label", label_values)
        key = object_key(namespace, name)
        version = store.version
        if what == "put":
            obj = pod(name, namespace, **labels)
            assert store.put(key, obj) is expected.get(key)
            expected[key] = obj
            assert store.version > version
        else:
            assert store.remove(key) is expected.pop(key, None)
        check_store(store)
    assert {key_of(obj.metadata): obj for obj in store} == expected
    assert set(keys_by_value(store._index("namespace"))) == {
        obj.metadata.namespace for obj in store
    }


def test_lister_finds_by_name_namespace_predicate_and_index():
    store: Store[Pod] = Store()
    lister = Lister(store)
    store.add_index("label", label_values)
    for obj in (pod("a"), pod("b", app="web"), pod("c", "kube-system", app="web")):
        store.put(key_of(obj.metadata), obj)

    def names(objects):
        return [obj.metadata.name for obj in objects]

    assert lister.get("default", "a").metadata.name == "a"
    assert lister.get("default", "c") is None
    assert names(lister.list()) == ["a", "b", "c"]
    assert names(lister.list("default")) == ["a", "b"]
    assert names(lister.list("nowhere")) == []
    assert names(lister.list(matches=lambda obj: bool(obj.metadata.labels))) == ["b", "c"]
    assert names(lister.by_index("label", "web")) == ["b", "c"]
    before = lister.version
    store.remove("default/a")
    assert lister.version != before


def test_cluster_scoped_objects_have_their_name_as_key():
    assert key_of(pod("node-1", "").metadata) == object_key("", "node-1") == "node-1"


def test_unknown_and_repeated_indexes_are_errors():
    store: Store[Pod] = Store()
    with pytest.raises(ValueError, match='no index "label", only namespace'):
        store.by_index("label", "x")
    with pytest.raises(ValueError, match="exists already"):
        store.add_index("namespace", label_values)
