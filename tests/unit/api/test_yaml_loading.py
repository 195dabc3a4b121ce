"""Nesting is bounded before it can overflow the stack."""

from __future__ import annotations

import pytest
import yaml

from kubesched.api.yaml_loading import MAX_DEPTH, BoundedLoader


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def test_what_people_write_is_read():
    assert yaml.load(b"a: &x {b: [1, {c: d}]}\ne: *x", BoundedLoader) == {
        "a": {"b": [1, {"c": "d"}]},
        "e": {"b": [1, {"c": "d"}]},
    }
    yaml.load(nested(MAX_DEPTH - 1), BoundedLoader)


def test_many_branches_are_not_depth():
    assert len(yaml.load(b"[" + b"[[]]," * (2 * MAX_DEPTH) + b"]", BoundedLoader)) == 2 * MAX_DEPTH


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(nested(MAX_DEPTH + 1), id="one level too many"),
        pytest.param(b"[" * 200_000, id="brackets without end"),
        pytest.param(b"{a: " * 200_000, id="mappings without end"),
    ],
)
def test_deeper_nesting_is_an_error_and_nothing_worse(text):
    with pytest.raises(yaml.YAMLError, match="nested deeper than 500 levels"):
        yaml.load(text, BoundedLoader)
