"""Strategic merge patches: keys, directives and order, on pods and deployments."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.base.errors import BadRequest
from kubesched.playground.apimachinery.objects import copy_json
from kubesched.playground.apimachinery.schema.table import type_of_kind
from kubesched.playground.registry.patching.strategic import apply_strategic_patch


def patched(document, patch, kind="Pod", group=""):
    object_type = type_of_kind(group, kind)
    assert object_type is not None
    before = copy_json(document)
    result = apply_strategic_patch(object_type, document, patch)
    assert document == before, "the document given is never changed"
    return result


def containers(*items):
    return {"spec": {"containers": list(items)}}


A, B = {"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}


def test_items_of_a_list_with_a_key_merge_by_it():
    result = patched(
        containers(A, B), containers({"name": "b", "image": "b:2"}, {"name": "c", "image": "c:1"})
    )
    assert result == containers(A, {"name": "b", "image": "b:2"}, {"name": "c", "image": "c:1"})


def test_a_list_without_a_key_is_replaced():
    result = patched(
        {"spec": {"tolerations": [{"key": "x"}]}}, {"spec": {"tolerations": [{"key": "y"}]}}
    )
    assert result == {"spec": {"tolerations": [{"key": "y"}]}}


def test_a_set_of_values_is_added_to():
    result = patched(
        {"metadata": {"finalizers": ["a/x"]}}, {"metadata": {"finalizers": ["a/x", "b/y"]}}
    )
    assert result == {"metadata": {"finalizers": ["a/x", "b/y"]}}


def test_values_are_taken_out_of_a_set_by_name():
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/x"]}}
    assert patched({"metadata": {"finalizers": ["a/x", "b/y"]}}, patch) == {
        "metadata": {"finalizers": ["b/y"]}
    }


def test_an_item_is_deleted_by_directive():
    assert patched(containers(A, B), containers({"name": "a", "$patch": "delete"})) == containers(B)


def test_a_list_is_replaced_by_directive():
    assert patched(
        containers(A, B), containers({"$patch": "replace"}, {"name": "c"})
    ) == containers({"name": "c"})


def test_an_object_is_replaced_by_directive():
    patch = {"metadata": {"labels": {"$patch": "replace", "new": "1"}}}
    assert patched({"metadata": {"labels": {"old": "1"}}}, patch) == {
        "metadata": {"labels": {"new": "1"}}
    }


def test_retained_keys_throw_out_the_other_member_of_a_union():
    document = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    patch = {
        "spec": {
            "volumes": [
                {"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}
            ]
        }
    }
    assert patched(document, patch) == {
        "spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}
    }


@pytest.mark.parametrize(
    ("live", "patch", "order", "expected"),
    [
        pytest.param("abc", "z", None, "zabc", id="a new item goes first"),
        pytest.param("abc", "ca", None, "bca", id="the patch's order holds among its own items"),
        pytest.param("abcd", "xcy", None, "xabcyd",
                     id="others keep their place before their neighbour"),
        pytest.param("abc", "b", None, "abc", id="one known item changes nothing"),
        pytest.param("aib", "", "ba", "iba", id="an order without items sorts the live list"),
        pytest.param("abc", "z", "abcz", "abcz", id="a new item goes where the order says"),
        pytest.param("abc", "z", "az", "azbc", id="items out of the order follow"),
        pytest.param("abc", "-b", None, "ac", id="a deleted item leaves no gap"),
        pytest.param("baef", "-gd-a", "edb", "efdb",
                     id="a new item in a deleted one's place counts as live"),
    ],
)  # fmt: skip
def test_order_of_merged_lists(live, patch, order, expected):
    """As kube-apiserver 1.36 answered."""
    names = re.findall(r"-?\w", patch)
    items = [
        {"name": name[1:], "$patch": "delete"} if name[0] == "-" else {"name": name, "image": "i:2"}
        for name in names
    ]
    spec = {"containers": items} if items else {}
    if order is not None:
        spec["$setElementOrder/containers"] = [{"name": name} for name in order]
    document = containers(*({"name": name} for name in live))
    result = patched(document, {"spec": spec})["spec"]["containers"]
    assert "".join(item["name"] for item in result) == expected


def test_an_order_that_contradicts_the_patch_is_refused():
    spec = {"containers": [A, B], "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}
    with pytest.raises(BadRequest, match=r"doesn't match \$setElementOrder/containers list"):
        patched(containers(A, B), {"spec": spec})


def test_values_of_a_merged_set_take_the_patch_order():
    document = {"metadata": {"finalizers": ["x/a", "x/b", "x/c"]}}
    patch = {"metadata": {"finalizers": ["x/c", "x/new", "x/a"]}}
    assert patched(document, patch)["metadata"]["finalizers"] == ["x/b", "x/c", "x/new", "x/a"]


def test_null_removes_a_field_and_never_stays_behind():
    result = patched(
        {"metadata": {"labels": {"a": "1", "b": "2"}}},
        {"metadata": {"labels": {"a": None, "c": None}}},
    )
    assert result == {"metadata": {"labels": {"b": "2"}}}


def test_merge_keys_of_templates_are_those_of_pods():
    document = {"spec": {"template": containers(A, B)}}
    patch = {"spec": {"template": containers({"name": "a", "image": "a:9"})}}
    result = patched(document, patch, "Deployment", "apps")
    assert result == {"spec": {"template": containers({"name": "a", "image": "a:9"}, B)}}


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        pytest.param(
            containers({"image": "x"}),
            "does not contain declared merge key: name",
            id="an item without its key",
        ),
        pytest.param({"spec": {"$patch": "explode"}}, "unknown", id="an unknown directive"),
        pytest.param(
            {"spec": {"$retainKeys": "x"}}, "must be a list", id="retained keys that are no list"
        ),
        pytest.param(containers("text"), "must consist of objects", id="an item that is no object"),
    ],
)
def test_a_malformed_patch_is_refused(patch, words):
    with pytest.raises(BadRequest, match=words):
        patched(containers(A), patch)


names = st.sampled_from(["a", "b", "c"])
items = st.lists(
    st.tuples(names, st.sampled_from(["x:1", "x:2"])), max_size=3, unique_by=lambda each: each[0]
)
pods = st.builds(
    lambda listed, labels: {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": name, "image": image} for name, image in listed]},
    },
    items,
    st.dictionaries(st.sampled_from("kl"), st.sampled_from("vw"), max_size=2),
)


@given(document=pods, patch=pods)
def test_patching_twice_is_patching_once(document, patch):
    once = patched(document, patch)
    assert patched(once, patch) == once


@given(document=pods)
def test_patching_with_the_object_itself_changes_nothing(document):
    assert patched(document, document) == document


@given(document=pods, patch=pods)
def test_everything_the_patch_says_holds_afterwards(document, patch):
    result = patched(document, patch)
    by_name = {each["name"]: each for each in result["spec"]["containers"]}
    assert all(by_name[each["name"]] == each for each in patch["spec"]["containers"])
    assert result["metadata"]["labels"] == {
        **document["metadata"]["labels"],
        **patch["metadata"]["labels"],
    }


def test_lists_of_many_items_merge():
    many = 20_000
    volumes = [{"name": f"v{n}", "emptyDir": {}} for n in range(many)]
    drop = [{"name": f"v{n}", "$patch": "delete"} for n in range(0, many, 2)]
    more = [{"name": f"w{n}", "emptyDir": {}} for n in range(many)]
    result = patched({"spec": {"volumes": volumes}}, {"spec": {"volumes": drop + more}})
    assert len(result["spec"]["volumes"]) == many // 2 + many
    names = [f"example.com/{n}" for n in range(many)]
    gone = {"$deleteFromPrimitiveList/finalizers": names[1:]}
    result = patched({"metadata": {"finalizers": names}}, {"metadata": gone})
    assert result == {"metadata": {"finalizers": names[:1]}}


def test_items_with_the_same_key_go_one_by_one():
    twins = containers(A, {"name": "a", "image": "a:2"}, B)
    assert patched(twins, containers({"name": "a", "$patch": "delete"})) == containers(
        {"name": "a", "image": "a:2"}, B
    )
    again = containers({"name": "b", "$patch": "delete"}, {"name": "b", "image": "b:2"})
    assert patched(containers(A, B), again) == containers(A, {"name": "b", "image": "b:2"})
