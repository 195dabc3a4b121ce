"""The store knows the objects of a namespace after any changes, and the lister reads them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from self_checks import check_store

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import ObjectMeta
from kubesched.api.names import key_of, object_key
from kubesched.client.informers.lister import Lister
from kubesched.client.informers.store import Store


def pod(name: str, namespace: str = "default", **labels: str) -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "remove"]),
            st.sampled_from("abc"),
            st.sampled_from(["x", "y", ""]),
        )
    )
)
def test_namespaces_hold_what_is_there_after_any_changes(steps):
    store: Store[Pod] = Store()
    expected: dict[str, Pod] = {}
    for what, name, namespace in steps:
        key = object_key(namespace, name)
        version = store.version
        if what == "put":
            obj = pod(name, namespace)
            assert store.put(key, obj) is expected.get(key)
            expected[key] = obj
            assert store.version > version
        else:
            assert store.remove(key) is expected.pop(key, None)
        check_store(store)
    assert {key_of(obj.metadata): obj for obj in store} == expected
    for namespace in "xy":
        there = [obj for obj in expected.values() if obj.metadata.namespace == namespace]
        assert store.of_namespace(namespace) == there


def test_lister_finds_by_name_namespace_and_predicate():
    store: Store[Pod] = Store()
    lister = Lister(store)
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
    before = lister.version
    store.remove("default/a")
    assert lister.version != before


def test_cluster_scoped_objects_have_their_name_as_key():
    assert key_of(pod("node-1", "").metadata) == object_key("", "node-1") == "node-1"
