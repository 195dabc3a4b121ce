"""Proves that YAML is read as kube-scheduler's decoder reads it, with positions and within bounds.

What the values mean as configuration is left to the schema tests.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.yaml_nodes import (
    MAX_BYTES,
    MAX_DEPTH,
    Mapping,
    Scalar,
    Sequence,
    YamlError,
    from_plain,
    is_json,
    load,
    parse,
    resolve_plain,
    to_plain,
)
from kubesched.base.errors import ConfigError


def read(text: str | bytes):
    """Plain data, and the problems found on the way as (path, message, line, column)."""
    data = text.encode() if isinstance(text, str) else text
    problems = []

    def report(path, message, node):
        problems.append((path, message, node.line, node.column))

    return to_plain(parse(data), "", report, json=is_json(data)), problems


def problems_of(function, argument):
    """Why the function refuses; anything but a ConfigError is a failure."""
    try:
        function(argument)
    except ConfigError as error:
        return error.problems
    return []


def refusal(text: str | bytes):
    with pytest.raises(ConfigError) as caught:
        read(text)
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(
            pytest.param(word, True, id=f"plain {word} is true")
            for word in ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")
        ),
        *(
            pytest.param(word, False, id=f"plain {word} is false")
            for word in ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")
        ),
        *(
            pytest.param(word, None, id=f"plain {word!r} is null")
            for word in ("", "~", "null", "Null", "NULL")
        ),
        pytest.param("yEs", "yEs", id="odd capitals make no boolean"),
        pytest.param("12", 12, id="digits are an integer"),
        pytest.param("-12", -12, id="a sign belongs to the integer"),
        pytest.param("+12", 12, id="a plus sign too"),
        pytest.param("1_000", 1000, id="underscores are skipped"),
        pytest.param("0x1F", 31, id="hexadecimal"),
        pytest.param("0b11", 3, id="binary"),
        pytest.param("-0b11", -3, id="negative binary"),
        pytest.param("0o17", 15, id="octal with an o"),
        pytest.param("017", 15, id="octal with a leading zero"),
        pytest.param("08", 8.0, id="what is no octal number becomes a float"),
        pytest.param("1e3", 1000.0, id="an exponent needs no dot"),
        pytest.param("1.5", 1.5, id="a fraction"),
        pytest.param("1.", 1.0, id="a trailing dot"),
        pytest.param(".5", 0.5, id="a leading dot"),
        pytest.param("1e999", "1e999", id="a float out of range stays text"),
        pytest.param("18446744073709551615", 2**64 - 1, id="unsigned 64 bits fit"),
        pytest.param("18446744073709551616", 2.0**64, id="beyond that it is a float"),
        pytest.param("9" * 5000, "9" * 5000, id="thousands of digits are text and cost nothing"),
        pytest.param("12:30", "12:30", id="base 60 is text"),
        pytest.param("2001-12-14", "2001-12-14", id="a date is text"),
        pytest.param("2001-12-14T21:59:43Z", "2001-12-14T21:59:43Z", id="a timestamp is text"),
        pytest.param("1.2.3", "1.2.3", id="a version is text"),
        pytest.param(".", ".", id="a dot is text"),
        pytest.param("-", "-", id="a dash is text"),
        pytest.param("0x", "0x", id="a prefix without digits is text"),
    ],
)
def test_plain_scalars_mean_what_go_yaml_makes_of_them(text, value):
    resolved = resolve_plain(text)
    assert (type(resolved), resolved) == (type(value), value)


def test_infinity_and_nan_are_floats():
    assert resolve_plain(".inf") == math.inf
    assert resolve_plain("-.INF") == -math.inf
    assert math.isnan(resolve_plain(".NaN"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("a: 'yes'", "yes", id="quotes make text"),
        pytest.param('a: "1e3"', "1e3", id="double quotes too"),
        pytest.param("a: |\n  12\n", "12\n", id="a literal block is text"),
        pytest.param("a: !!str 12", "12", id="a tag makes text"),
        pytest.param("a: !!int 12", 12, id="a tag that agrees changes nothing"),
        pytest.param("a: !!float 12", 12.0, id="an integer can be tagged float"),
        pytest.param("a: !mine 12", "12", id="a private tag leaves the text alone"),
        pytest.param("a:", None, id="nothing is null"),
        pytest.param("a: <<", "<<", id="a merge sign as a value is text"),
    ],
)
def test_quotes_and_tags_decide_before_the_text_does(text, value):
    plain, problems = read(text)
    assert (plain, problems) == ({"a": value}, [])


def test_json_is_read_like_yaml():
    text = '{"a": [1, 2.5, "x", null, true],\n\t"b": {"c": "\\u00e9"}}'
    assert read(text) == ({"a": [1, 2.5, "x", None, True], "b": {"c": "é"}}, [])


def test_every_node_knows_its_line_and_column():
    root = parse(b"top:\n  list:\n  - 1\n  - name: x\n")
    assert isinstance(root, Mapping)
    key, inner = root.entries[0]
    assert (key.line, key.column) == (1, 1)
    assert isinstance(inner, Mapping)
    list_key, items = inner.entries[0]
    assert (list_key.line, list_key.column) == (2, 3)
    assert isinstance(items, Sequence)
    assert (items.items[0].line, items.items[0].column) == (3, 5)
    named = items.items[1]
    assert isinstance(named, Mapping)
    assert (named.entries[0][1].line, named.entries[0][1].column) == (4, 11)


def test_columns_count_characters_not_bytes():
    root = parse("é: ü\n".encode())
    assert isinstance(root, Mapping)
    value = root.entries[0][1]
    assert (value.line, value.column) == (1, 4)


# -- keys and merges ------------------------------------------------------------------------------


def test_a_repeated_key_is_a_problem_and_the_first_value_stays():
    plain, problems = read("a: 1\nb: 2\na: 3\n")
    assert plain == {"a": 1, "b": 2}
    assert problems == [("a", 'strict decoding error: line 3: key "a" already set in map', 3, 1)]


def test_a_repeated_key_in_json_is_worded_as_a_duplicate_field():
    _, problems = read('{"a": {"b": 1, "b": 2}}')
    assert problems == [("a.b", 'strict decoding error: duplicate field "a.b"', 1, 16)]


def test_keys_that_spell_the_same_are_the_same():
    _, problems = read("yes: 1\n'true': 2\n")
    assert [message for _, message, *_ in problems] == [
        'strict decoding error: line 2: key "true" already set in map'
    ]


def test_a_null_key_is_refused():
    _, problems = read("a:\n  ~: 1\n")
    assert problems == [("a", "unsupported map key '~'", 2, 3)]


def test_aliases_stand_for_what_they_name():
    assert read("a: &x [1, 2]\nb: *x\n") == ({"a": [1, 2], "b": [1, 2]}, [])


def test_a_merge_brings_in_the_keys_of_a_map():
    plain, problems = read("base: &b {x: 1, w: 2}\nmine:\n  <<: *b\n  z: 3\n")
    assert plain["mine"] == {"x": 1, "w": 2, "z": 3}
    assert problems == []


def test_a_merge_takes_several_maps():
    plain, _ = read("a: &a {x: 1}\nb: &b {w: 2}\nc: {<<: [*a, *b]}\n")
    assert plain["c"] == {"x": 1, "w": 2}


def test_overriding_a_merged_key_is_a_duplicate_as_it_is_upstream():
    _, problems = read("a: &a {x: 1}\nb: {<<: *a, x: 2}\n")
    assert [path for path, *_ in problems] == ["b.x"]


def test_merging_something_else_than_a_map_is_a_problem():
    _, problems = read("a: {<<: [1]}\n")
    assert problems == [("a", "map merge requires map or sequence of maps as the value", 1, 9)]


def test_a_quoted_merge_sign_is_an_ordinary_key():
    assert read("a: {'<<': 1}") == ({"a": {"<<": 1}}, [])


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "part", "line", "column"),
    [
        pytest.param("a: [1\n", "not valid YAML", 2, 1, id="an open bracket"),
        pytest.param("a: b: c\n", "not valid YAML", 1, 5, id="two colons in a line"),
        pytest.param("a:\n\tb: 1\n", "not valid YAML", 2, 1, id="a tab as indentation"),
        pytest.param("a: *b", "anchor", 1, 4, id="an unknown anchor"),
        pytest.param("a: &x\n  b: *x\n", "contains itself", 2, 6, id="a value inside itself"),
        pytest.param("a: 1\n---\nb: 2\n", "several YAML documents", 2, 1, id="two documents"),
        pytest.param("? [a]\n: 1\n", "invalid map key", 1, 3, id="a list as a key"),
        pytest.param("a: &m {b: 1}\n*m : 2\n", "invalid map key", 1, 4, id="a map as a key"),
        pytest.param("a: !!int x\n", "cannot decode `x` as a !!int", 1, 4, id="a tag that lies"),
        pytest.param("a: !!bool 1\n", "cannot decode `1` as a !!bool", 1, 4, id="1 is no boolean"),
        pytest.param("a: !!int yes\n", "as a !!int", 1, 4, id="a boolean is no integer"),
        pytest.param("a: !!binary aGk=\n", "!!binary", 1, 4, id="binary data"),
        pytest.param("a: 1\nb: \x07\n", "character #x0007", 2, 4, id="a control character"),
        pytest.param("a: 1\nb: c\0d\n", "character #x0000", 2, 5, id="a zero byte"),
        pytest.param(b"a: 1\nb: \xff\n", "not UTF-8 text", 2, 4, id="bytes that are no text"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_position(text, part, line, column):
    problem = refusal(text)
    assert part in problem.message
    assert (problem.line, problem.column) == (line, column)


def test_the_source_is_named():
    with pytest.raises(ConfigError, match=r"^scheduler\.yaml: not valid YAML"):
        parse(b"[", "scheduler.yaml")


def test_a_byte_order_mark_is_skipped():
    assert read(b"\xef\xbb\xbfa: 1\n") == ({"a": 1}, [])


def test_an_empty_document_is_null():
    for text in ("", "# only a comment\n", "---\n", "---\n...\n"):
        assert read(text) == (None, [])


def test_numbers_that_json_cannot_say_are_problems():
    plain, problems = read("a: .nan\nb: [-.inf]\n")
    assert plain == {"a": None, "b": [None]}
    assert [path for path, *_ in problems] == ["a", "b[0]"]


# -- bounds ---------------------------------------------------------------------------------------


def test_large_files_are_not_parsed():
    assert "too large" in refusal(b"#" * (MAX_BYTES + 1)).message


@pytest.mark.parametrize("bracket", ["[", "{a: ", "- "], ids=["lists", "maps", "block lists"])
def test_deep_nesting_is_refused_before_it_can_exhaust_the_stack(bracket):
    assert "nested deeper" in refusal(bracket * 20_000).message


def test_the_deepest_allowed_document_is_read():
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    plain, _ = read(text)
    for _ in range(MAX_DEPTH - 1):
        (plain,) = plain
    assert plain == []


def test_depth_through_aliases_counts():
    lines = ["a0: &a0 [1]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, MAX_DEPTH + 2)]
    assert "nested deeper" in refusal("\n".join(lines)).message


def test_aliases_cannot_blow_up_a_small_file():
    lines = ["a0: &a0 [1,1,1,1,1,1,1,1,1,1]"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    assert "excessive aliasing" in refusal("\n".join(lines)).message


# -- anything at all ------------------------------------------------------------------------------


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_read_or_refused(data):
    assert len(problems_of(parse, data)) <= 1


_YAML_ALPHABET = st.sampled_from(list("ab01-:[]{},&*!|>'\"%@`#?<~.=_ \n\t"))


@given(st.text(_YAML_ALPHABET, max_size=60))
def test_text_full_of_yaml_syntax_is_read_or_refused(text):
    assert len(problems_of(read, text)) <= 1


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(_JSON)
def test_nodes_made_from_data_give_the_data_back(data):
    problems = []
    node = from_plain(data)
    assert to_plain(node, "", lambda *args: problems.append(args), json=True) == data
    assert problems == []


def test_scalars_remember_how_they_were_written():
    plain, quoted = (parse(text) for text in (b"1e3", b"'1e3'"))
    assert isinstance(plain, Scalar)
    assert isinstance(quoted, Scalar)
    assert (plain.text, plain.plain) == ("1e3", True)
    assert (quoted.text, quoted.plain) == ("1e3", False)


# -- values, as other files are read ---------------------------------------------------------------


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def test_what_people_write_is_read():
    assert load(b"a: &x {b: [1, {c: d}]}\ne: *x") == {
        "a": {"b": [1, {"c": "d"}]},
        "e": {"b": [1, {"c": "d"}]},
    }
    load(nested(MAX_DEPTH - 1))


def test_many_branches_are_not_depth():
    assert len(load(b"[" + b"[[]]," * (2 * MAX_DEPTH) + b"]")) == 2 * MAX_DEPTH


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(nested(MAX_DEPTH + 1), id="one level too many"),
        pytest.param(b"[" * 200_000, id="brackets without end"),
        pytest.param(b"{a: " * 200_000, id="mappings without end"),
    ],
)
def test_deeper_nesting_is_an_error_and_nothing_worse(text):
    with pytest.raises(YamlError, match="nested deeper than 150 levels"):
        load(text)


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
        pytest.param("a: &a [*a]", "contains itself", id="recursion"),
        pytest.param(
            "\n".join(["- &a0 x", *(f"- &a{n} [*a{n - 1}]" for n in range(1, 2 * MAX_DEPTH))]),
            "nested deeper than 150 levels",
            id="a chain of aliases",
        ),
    ],
)
def test_aliases_that_multiply_the_document_are_an_error(text, problem):
    assert len(text) < 20_000
    with pytest.raises(YamlError, match=problem):
        load(text.encode())


def test_aliases_in_moderation_are_read():
    loaded = load(bomb(5).encode())
    assert loaded["a4"][0][0][0][0] == ["x"]
