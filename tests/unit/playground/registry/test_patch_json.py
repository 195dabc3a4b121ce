"""JSON Patch and JSON Merge Patch by the cases of their RFCs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.base.errors import BadRequest, Invalid
from kubesched.playground.apimachinery.objects import copy_json
from kubesched.playground.registry.patching.json_patch import apply_json_patch
from kubesched.playground.registry.patching.verb import apply_merge_patch

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab/~", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text("ab/~", max_size=2), JSON, max_size=4)


@pytest.mark.parametrize(
    ("document", "operation", "expected"),
    [
        pytest.param(
            {"a": 1}, {"op": "add", "path": "/b", "value": 2}, {"a": 1, "b": 2}, id="add a member"
        ),
        pytest.param(
            {"a": [1, 3]},
            {"op": "add", "path": "/a/1", "value": 2},
            {"a": [1, 2, 3]},
            id="insert an item",
        ),
        pytest.param(
            {"a": [1]},
            {"op": "add", "path": "/a/-", "value": 2},
            {"a": [1, 2]},
            id="append an item",
        ),
        pytest.param(
            {"a": 1},
            {"op": "add", "path": "/a", "value": None},
            {"a": None},
            id="adding null is a value",
        ),
        pytest.param(
            {"a": {"b": 1}}, {"op": "remove", "path": "/a/b"}, {"a": {}}, id="remove a member"
        ),
        pytest.param(
            {"a": [1, 2]}, {"op": "remove", "path": "/a/0"}, {"a": [2]}, id="remove an item"
        ),
        pytest.param(
            {"a/b": 1},
            {"op": "replace", "path": "/a~1b", "value": 2},
            {"a/b": 2},
            id="escaped slash",
        ),
        pytest.param(
            {"a~b": 1},
            {"op": "replace", "path": "/a~0b", "value": 2},
            {"a~b": 2},
            id="escaped tilde",
        ),
        pytest.param({"a": 1}, {"op": "move", "from": "/a", "path": "/b"}, {"b": 1}, id="move"),
        pytest.param(
            {"a": [1]}, {"op": "copy", "from": "/a", "path": "/b"}, {"a": [1], "b": [1]}, id="copy"
        ),
        pytest.param(
            {"a": 1}, {"op": "test", "path": "/a", "value": 1}, {"a": 1}, id="a test that holds"
        ),
    ],
)
def test_an_operation_does_what_the_rfc_says(document, operation, expected):
    before = copy_json(document)
    assert apply_json_patch(document, [operation]) == expected
    assert document == before, "the document given is never changed"


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        pytest.param({"op": "test", "path": "/a", "value": 2}, Invalid, id="a test that fails"),
        pytest.param(
            {"op": "remove", "path": "/missing"}, Invalid, id="removing what is not there"
        ),
        pytest.param(
            {"op": "replace", "path": "/missing", "value": 1},
            Invalid,
            id="replacing what is not there",
        ),
        pytest.param(
            {"op": "add", "path": "/x/y", "value": 1}, Invalid, id="adding below what is not there"
        ),
        pytest.param(
            {"op": "add", "path": "/list/9", "value": 1}, Invalid, id="inserting past the end"
        ),
        pytest.param(
            {"op": "add", "path": "/list/01", "value": 1},
            Invalid,
            id="an index with a leading zero",
        ),
        pytest.param(
            {"op": "add", "path": "nowhere", "value": 1}, Invalid, id="a pointer without a slash"
        ),
        pytest.param({"op": "fly", "path": "/a"}, BadRequest, id="an unknown operation"),
        pytest.param({"op": "add", "path": "/b"}, BadRequest, id="an add without a value"),
        pytest.param(
            {"op": "move", "from": "/list", "path": "/list/0"},
            Invalid,
            id="moving a value into itself",
        ),
        pytest.param({"path": 7}, BadRequest, id="a path that is no string"),
    ],
)
def test_an_operation_that_cannot_be_done_refuses_the_patch(operation, error):
    with pytest.raises(error):
        apply_json_patch(
            {"a": 1, "list": [1]}, [{"op": "add", "path": "/ok", "value": 1}, operation]
        )


def test_a_patch_must_be_a_list():
    with pytest.raises(BadRequest, match="list of operations"):
        apply_json_patch({}, {"op": "add"})


@given(document=OBJECTS, key=st.text("ab/~", max_size=2), value=JSON)
def test_adding_a_member_then_removing_it_restores_the_rest(document, key, value):
    pointer = "/" + key.replace("~", "~0").replace("/", "~1")
    added = apply_json_patch(document, [{"op": "add", "path": pointer, "value": value}])
    assert added[key] == value
    removed = apply_json_patch(added, [{"op": "remove", "path": pointer}])
    assert removed == {name: item for name, item in document.items() if name != key}


@given(document=OBJECTS, patch=OBJECTS)
def test_merge_patching_twice_is_merge_patching_once(document, patch):
    once = apply_merge_patch(document, patch)
    assert apply_merge_patch(once, patch) == once


@given(document=OBJECTS)
def test_an_empty_merge_patch_changes_nothing(document):
    assert apply_merge_patch(document, {}) == document


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="replace"),
        pytest.param({"a": "b"}, {"a": None}, {}, id="null removes"),
        pytest.param(
            {"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}, id="objects merge"
        ),
        pytest.param({"a": [1, 2]}, {"a": [3]}, {"a": [3]}, id="lists are replaced"),
        pytest.param(
            {"a": "x"},
            {"a": {"b": None, "c": 1}},
            {"a": {"c": 1}},
            id="nulls do not survive in new objects",
        ),
    ],
)
def test_merge_patch_follows_its_rfc(document, patch, expected):
    assert apply_merge_patch(document, patch) == expected


def test_copies_of_copies_are_refused_before_they_are_large():
    patch = [{"op": "add", "path": "/a", "value": {"x": "y" * 20}}]
    patch += [{"op": "copy", "from": "/a", "path": f"/a/b{n}"} for n in range(60)]
    with pytest.raises(Invalid, match="the accumulated size increase of copy is"):
        apply_json_patch({"a": {}}, patch)


def test_many_copies_that_are_small_in_all_are_made():
    patch = [{"op": "copy", "from": "/a", "path": f"/b{n}"} for n in range(9_000)]
    assert len(apply_json_patch({"a": {"x": [1]}}, patch)) == 9_001


def test_places_with_equal_values_do_not_change_together():
    value = {"x": [1]}
    patch = [
        {"op": "add", "path": "/a", "value": value},
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/b/x/-", "value": 2},
        {"op": "remove", "path": "/a/x/0"},
    ]
    assert apply_json_patch({}, patch) == {"a": {"x": []}, "b": {"x": [1, 2]}}
    assert value == {"x": [1]}


def test_thousands_of_operations_on_a_large_list():
    patch = [{"op": "add", "path": "/a/b/c/-", "value": n} for n in range(9_000)]
    result = apply_json_patch({"a": {"b": {"c": [0] * 50_000}}}, patch)
    assert len(result["a"]["b"]["c"]) == 59_000
