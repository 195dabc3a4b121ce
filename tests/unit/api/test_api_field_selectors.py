"""Field selectors: text to requirements and back, escaping, and what they match."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.field_selectors import FieldRequirement, FieldSelector, escape_value, parse
from kubesched.api.selectors import SelectorError


@pytest.mark.parametrize(
    ("text", "fields", "matches"),
    [
        pytest.param("", {}, True, id="nothing asked, everything matches"),
        pytest.param("metadata.name=x", {"metadata.name": "x"}, True, id="equal"),
        pytest.param("metadata.name==x", {"metadata.name": "y"}, False, id="not equal"),
        pytest.param(
            "status.phase!=Failed", {"status.phase": "Running"}, True, id="unequal as asked"
        ),
        pytest.param("status.phase!=Failed", {}, True, id="an absent field is the empty string"),
        pytest.param("spec.nodeName=", {}, True, id="the empty value matches an absent field"),
        pytest.param("spec.nodeName!=", {}, False, id="and its negation does not"),
        pytest.param("a=1,b!=2", {"a": "1", "b": "2"}, False, id="all must hold"),
        pytest.param(",a=1,,", {"a": "1"}, True, id="empty terms are skipped"),
        pytest.param("=", {}, True, id="a lone operator asks for nothing"),
        pytest.param(r"a=x\,y\=z\\", {"a": "x,y=z\\"}, True, id="escaped characters are data"),
    ],
)
def test_fields_are_matched(text, fields, matches):
    assert parse(text).matches(fields) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a", "invalid selector: 'a'; can't understand 'a'", id="no operator"),
        pytest.param(
            "a=b=c",
            "invalid field selector: unescaped character in value: 61",
            id="a bare equals sign",
        ),
        pytest.param(
            r"a=\x", r"invalid field selector: invalid escape sequence: \x", id="an unknown escape"
        ),
        pytest.param(
            "a=b\\",
            "invalid field selector: invalid escape sequence: \\",
            id="an escape of nothing",
        ),
    ],
)
def test_bad_text_is_refused_in_upstream_words(text, message):
    with pytest.raises(SelectorError) as caught:
        parse(text)
    assert str(caught.value) == message


def test_requirements_are_inspected():
    built = parse("b!=2,a=1")
    assert [str(r) for r in built.requirements] == ["a=1", "b!=2"]
    assert not built.is_empty()
    assert parse("").is_empty()


def test_selectors_are_keys():
    assert parse("a=1,b=2") == parse("b=2,a==1")
    assert hash(parse("a=1,b=2")) == hash(parse("b=2,a==1"))
    assert parse("a=1") != parse("a!=1")


@given(st.lists(st.tuples(st.sampled_from(["a", "b.c"]), st.booleans(), st.text(max_size=8))))
def test_printed_selectors_parse_back(parts):
    built = FieldSelector(FieldRequirement(*part) for part in parts)
    assert parse(str(built)) == built


@given(st.text())
def test_an_escaped_value_is_read_back(value):
    assert parse(f"k={escape_value(value)}").matches({"k": value})
