"""Pods of one controller share what they have in common, and are the same in content."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.core_v1 import Pod
from kubesched.informers.shared_parts import MAX_OWNERS, VARIANTS, SharedParts

LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=3)
CONTAINERS = st.lists(st.fixed_dictionaries({"name": st.sampled_from("ab"), "image": st.sampled_from("xy")}), min_size=1, max_size=2)  # fmt: skip
TOLERATIONS = st.lists(st.fixed_dictionaries({"key": st.sampled_from("ab")}), max_size=2)


def decoded(name="p", owner="o", labels=None, **spec):
    owners = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}]  # fmt: skip
    metadata = {"name": name, "namespace": "default", "labels": labels or {}}
    if owner:
        metadata["ownerReferences"] = owners
    body = {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}
    return msgspec.json.decode(msgspec.json.encode(body), type=Pod)


def test_equal_parts_are_kept_once():
    shared = SharedParts()
    first, second = (shared.share(decoded(name, labels={"a": "b"})) for name in "pq")
    assert second.spec.containers is first.spec.containers
    assert second.metadata.labels is first.metadata.labels
    assert second.metadata.owner_references is first.metadata.owner_references
    assert second.metadata.name == "q"


def test_parts_of_other_controllers_and_of_loose_pods_are_their_own():
    shared = SharedParts()
    first, second, loose = (shared.share(decoded(owner=owner)) for owner in ("a", "b", ""))
    assert second.spec.containers is not first.spec.containers
    assert loose.spec.containers is not first.spec.containers


def test_what_is_remembered_is_bounded():
    shared = SharedParts()
    for number in range(MAX_OWNERS + 5):
        shared.share(decoded(owner=f"o{number}"))
    assert len(shared._by_owner) == MAX_OWNERS
    for number in range(VARIANTS + 3):
        shared.share(decoded(owner="last", labels={"n": str(number)}))
    assert len(shared._by_owner["last"]["labels"]) == VARIANTS


@given(st.lists(st.tuples(st.sampled_from("op"), LABELS, CONTAINERS, TOLERATIONS), max_size=12))
def test_content_does_not_change(pods):
    shared = SharedParts()
    for owner, labels, containers, tolerations in pods:
        made = [decoded(owner=owner, labels=labels, containers=containers, tolerations=tolerations) for _ in "ab"]  # fmt: skip
        assert shared.share(made[0]) == made[1]
