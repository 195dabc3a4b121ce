"""Arbitrary text neither crashes nor hangs; what runs away is stopped."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kubesched.api.cel import (
    KUBERNETES,
    CelError,
    CompileError,
    CostLimitExceededError,
    Environment,
    compile,
    types,
)

ENVIRONMENT = Environment({"x": types.DYN, "l": types.list_of(types.INT)}, KUBERNETES, 100_000)
BINDINGS = {"x": {"a": 1, "b": "text", "c": [1, "z", 2.5], "n": None}, "l": [1, 2, 3]}

WORDS = st.sampled_from(
    [
        "x",
        "l",
        "a",
        "b",
        "1",
        "2.5",
        "'a'",
        '"b"',
        "b'c'",
        "true",
        "null",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ".",
        ".?",
        "?",
        ":",
        ",",
        "+",
        "-",
        "*",
        "/",
        "%",
        "!",
        "&&",
        "||",
        "==",
        "!=",
        "<",
        "<=",
        "in",
        "has",
        "size",
        "map",
        "all",
        "exists",
        "optional.of",
        "cel.bind",
        "quantity",
        "semver",
        "ip",
        "format",
        "matches",
        "sort",
        "dyn",
        "type",
        "'%s'",
        "'\\'",
        "r'",
        '"""',
        "0x",
        "1u",
        "1e",
        ".5",
        "@",
        "#",
        "`",
        "//",
        "\n",
        "é",
    ]
)


def check_text(expression):
    try:
        program = compile(expression, ENVIRONMENT)
    except CelError:
        return
    program.run(BINDINGS)


@pytest.mark.slow
@given(st.text(max_size=60))
@example("\ud800")
@example("'\ud800' + x.b")
@example("\x00")
@example("x.b.matches('\ud800')")
def test_any_text_compiles_or_is_refused(text):
    check_text(text)


@given(st.lists(WORDS, max_size=25))
@example(["x", ".", "c", "[", "1u", "]"])
@example(["{", "l", ":", "1", "}"])
@example(["l", "[", "l", "]"])
@example(["x", "in", "x"])
@example(["x", "[", "x", "]"])
def test_any_sequence_of_tokens_compiles_or_is_refused(words):
    check_text(" ".join(words))
    check_text("".join(words))


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 300 + "1" + ")" * 300,
        "[" * 300 + "]" * 300,
        "{1:" * 300 + "1" + "}" * 300,
        "x" + ".a" * 300,
        "x" + "[0]" * 300,
        "+".join(["1"] * 300),
        "true ? 1 : " * 300 + "2",
        "l.map(y, " * 120 + "1" + ")" * 120,
        "optional.of(" * 300 + "1" + ")" * 300,
        "-(" * 300 + "1" + ")" * 300,
        "[" * 50_000,
        "x" + ".a()" * 20_000,
    ],
)
def test_deep_nesting_is_refused(expression):
    with pytest.raises(CompileError):
        compile(expression, ENVIRONMENT)


def test_what_is_long_but_flat_is_accepted():
    terms = " && ".join(["x.a == 1"] * 2000)
    assert compile(terms, ENVIRONMENT).evaluate(BINDINGS) is True
    assert compile(f"[{','.join(['1'] * 5000)}].size()", ENVIRONMENT).evaluate({}) == 5000
    assert compile("(" * 100 + "1" + ")" * 100, ENVIRONMENT).evaluate({}) == 1


def test_an_expression_longer_than_upstream_accepts_is_refused():
    with pytest.raises(CompileError, match="expression code point size exceeds limit"):
        compile(" " * 100_001, ENVIRONMENT)


def doubled(operation, value, times):
    """A value of exponential size, built by an expression of linear length."""
    expression = f"v{times}"
    for level in range(times, 0, -1):
        expression = f"cel.bind(v{level}, {operation.replace('v', f'v{level - 1}')}, {expression})"
    return f"cel.bind(v0, {value}, {expression})"


@pytest.mark.slow
@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(1000).all(a, lists.range(1000).all(b, a + b >= 0))",
        "lists.range(1000000000000)",
        "lists.range(9223372036854775807).size()",
        doubled("v + v", "'ab'", 40),
        doubled("v + v", "[1, 2]", 40),
        doubled("v.replace('', v)", "'abcdefgh'", 8),
        doubled("v.map(e, v).flatten()", "[1, 2, 3]", 12),
        doubled("[v, v]", "[1]", 40) + " == " + doubled("[v, v]", "[1]", 40),
        "'%s'.format([" + doubled("[v, v]", "[1]", 40) + "]).size()",
        doubled("[v, v]", "[1]", 40) + ".flatten(50).size()",
        "lists.range(5000).distinct()",
        "sets.contains(lists.range(9000), lists.range(9000))",
    ],
)
def test_runaway_evaluation_is_stopped(expression):
    with pytest.raises(CostLimitExceededError):
        compile(expression, ENVIRONMENT).evaluate({})


def test_catastrophic_patterns_take_linear_time():
    text = "a" * 5000
    environment = Environment({"text": types.STRING}, KUBERNETES)
    for pattern in ("(a|a)*b", "(a*)*b", "(a|aa)+$b", "a*a*a*a*a*a*b", "(x+x+)+y"):
        program = compile(f"text.matches('{pattern}')", environment)
        assert program.evaluate({"text": text}) is False
    assert compile("text.find('(a*)*b') == ''", environment).evaluate({"text": "a" * 200}) is True


def test_a_pattern_whose_program_would_be_huge_is_refused():
    with pytest.raises(CelError, match="invalid repeat count"):
        compile("x.b.find('((a{100}){100}){100}') == ''", ENVIRONMENT)
