"""Regular expressions agree with Python's where both define the same, and with Go's in errors."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.cel import EvaluationError
from kubesched.api.cel.regular_expressions import compile

ATOMS = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", r"\w", r"\d", r"\b", "^", "c", "[a-c]", r"\.", "(?:ab|a)"]
)


def _joined(parts):
    return "".join(parts)


PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(_joined),
        st.tuples(inner, inner).map("|".join).map("(?:{})".format),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{1,2}", "{2}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)
TEXTS = st.text(alphabet="abc1 .\n", max_size=8)


@given(PATTERNS, TEXTS)
def test_matches_and_find_agree_with_a_backtracking_engine(pattern, text):
    reference = re.compile(pattern, re.ASCII)
    regex = compile(pattern)
    found = reference.search(text)
    assert regex.matches(text) is (found is not None)
    # An empty turn of a loop ends it in RE2 but not always in Python: only the place must agree.
    if found is not None and not re.search(r"\)[*+?{].*\)[*+?{]|\?\)|\*|\?|\^|\\b", pattern):
        assert regex.find(text) == found.group()


@given(st.lists(st.sampled_from(["a", "b", "[ab]", "c+", "a?", "(?:ab|a)"]), max_size=4), TEXTS)
def test_find_agrees_on_simple_patterns(parts, text):
    pattern = "".join(parts)
    found = re.search(pattern, text)
    assert compile(pattern).find(text) == (found.group() if found else "")


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("b|bc", "abc", ["b"]),
        ("(?:b|bc)c?", "abc", ["bc"]),
        ("a*", "baaac", ["", "aaa", ""]),
        ("(abc)+?", "abcabc", ["abc", "abc"]),
        ("(?i)AxC", "axc AXC", ["axc", "AXC"]),
        ("(?s)a.b", "a\nb", ["a\nb"]),
        ("(?m)^b$", "a\nb", ["b"]),
        (r"\bword\b", "word words", ["word"]),
        (r"\Qa.b\E+", "a.bbb", ["a.bbb"]),
        (r"[[:alpha:]]+\d", "ab1 2", ["ab1"]),
        (r"\p{Lu}\pN", "a1 B2", ["B2"]),
        (r"\x41\x{42}\103", "ABC", ["ABC"]),
        ("(?U)a+", "aaa", ["a", "a", "a"]),
        ("a{,2}", "a{,2}", ["a{,2}"]),
        ("[]a]+", "]a", ["]a"]),
        ("(?P<name>x)(?<other>y)", "xy", ["xy"]),
        ("é+", "éé", ["éé"]),
        # A turn of a loop that consumes nothing leaves the loop.
        (r"(?:(^|\w))*(?:(\d|[^a]))*?", "A11", ["", "11"]),
        ("(?:(|a))*", "aa", ["", "", ""]),
        ("(?:(|a))+", "aa", ["", "", ""]),
        (r"(?:(\b|.))*\w\w", "aAb", ["aA"]),
    ],
)
def test_find_all(pattern, text, found):
    assert compile(pattern).find_all(text) == found


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "missing closing ): `(`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing closing ]: `[a`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("*", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("(a{500}){3}", "invalid repeat count: `{3}`"),
        ("a(?=b)", "invalid or unsupported Perl syntax: `(?=`"),
        (r"\1", r"invalid escape sequence: `\1`"),
        ("\\", "trailing backslash at end of expression: ``"),
        (r"\x{110000}", r"invalid escape sequence: `\x{110000`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
    ],
)
def test_errors_have_gos_texts(pattern, problem):
    with pytest.raises(EvaluationError) as raised:
        compile(pattern)
    assert str(raised.value) == f"error parsing regexp: {problem}"


@given(st.text(max_size=20))
def test_any_pattern_compiles_or_is_refused(pattern):
    try:
        regex = compile(pattern)
    except EvaluationError:
        return
    regex.matches("some text\nwith 2 lines")
    regex.find_all("aé1")
