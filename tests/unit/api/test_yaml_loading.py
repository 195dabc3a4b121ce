"""Nesting and aliases are bounded before they can overflow the stack or fill the memory."""

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


def bomb(levels: int, opening: str = "[", closing: str = "]") -> str:
    """Each level consists of nine aliases of the one before."""
    lines = ["a0: &a0 [x]"]
    lines += [
        f"a{n}: &a{n} {opening}{', '.join([f'*a{n - 1}'] * 9)}{closing}" for n in range(1, levels)
    ]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(bomb(10), "excessive aliasing", id="lists of lists"),
        pytest.param(
            bomb(10, "{<<: [", "]}").replace("[x]", "{x: y}"), "excessive aliasing", id="merge keys"
        ),
        pytest.param("a: &a [*a]", "refers to a value that contains it", id="recursion"),
        pytest.param(
            "\n".join(["- &a0 x", *(f"- &a{n} [*a{n - 1}]" for n in range(1, 2 * MAX_DEPTH))]),
            "nested deeper than 500 levels",
            id="a chain of aliases",
        ),
    ],
)
@pytest.mark.parametrize("encode", [str, str.encode])
def test_aliases_that_multiply_the_document_are_an_error(text, problem, encode):
    assert len(text) < 20_000
    with pytest.raises(yaml.YAMLError, match=problem):
        yaml.load(encode(text), BoundedLoader)


def test_aliases_in_moderation_are_read():
    loaded = yaml.load(bomb(5), BoundedLoader)
    assert loaded["a4"][0][0][0][0] == ["x"]
