"""Label selectors: meaning, construction errors, text form, and that equal meanings are equal
keys.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api import selectors as module
from kubesched.api.meta import LabelSelector, LabelSelectorRequirement
from kubesched.api.selectors import (
    EVERYTHING,
    NOTHING,
    Operator,
    Requirement,
    Selector,
    SelectorError,
    from_label_selector,
    from_map,
    new_requirement,
    parse,
    parse_int64,
)


def expression(key, operator, *values):
    return LabelSelectorRequirement(key=key, operator=operator, values=list(values) or None)


def selector(match_labels=None, *expressions):
    return LabelSelector(match_labels=match_labels, match_expressions=list(expressions) or None)


@pytest.mark.parametrize(
    ("written", "selects_labels", "selects_none", "is_empty"),
    [
        pytest.param(None, False, False, False, id="no selector selects nothing and is not empty"),
        pytest.param(LabelSelector(), True, True, True, id="an empty one selects everything"),
        pytest.param(
            LabelSelector(match_labels={}, match_expressions=[]),
            True,
            True,
            True,
            id="empty lists are empty",
        ),
        pytest.param(selector({"a": "1"}), True, False, False, id="a label that is there"),
        pytest.param(selector({"a": "2"}), False, False, False, id="a label with another value"),
        pytest.param(
            selector({"a": "1"}, expression("b", "Exists")), False, False, False, id="all must hold"
        ),
    ],
)
def test_selectors_select(written, selects_labels, selects_none, is_empty):
    built = from_label_selector(written)
    assert built.matches({"a": "1"}) is selects_labels
    assert built.matches(None) is selects_none
    assert built.is_empty() is is_empty


@pytest.mark.parametrize(
    ("requirement", "present", "other", "absent"),
    [
        pytest.param(Requirement("k", Operator.IN, ["v", "w"]), True, False, False, id="In"),
        pytest.param(Requirement("k", Operator.EQUALS, ["v"]), True, False, False, id="Equals"),
        pytest.param(Requirement("k", Operator.NOT_IN, ["v"]), False, True, True, id="NotIn"),
        pytest.param(
            Requirement("k", Operator.NOT_EQUALS, ["v"]), False, True, True, id="NotEquals"
        ),
        pytest.param(Requirement("k", Operator.EXISTS), True, True, False, id="Exists"),
        pytest.param(
            Requirement("k", Operator.DOES_NOT_EXIST), False, False, True, id="DoesNotExist"
        ),
    ],
)
def test_operators(requirement, present, other, absent):
    assert requirement.matches({"k": "v"}) is present
    assert requirement.matches({"k": "other"}) is other
    assert requirement.matches({"x": "v"}) is absent


@pytest.mark.parametrize(
    ("label", "greater", "less"),
    [
        pytest.param("11", True, False, id="larger"),
        pytest.param("10", False, False, id="equal is neither"),
        pytest.param("9", False, True, id="smaller"),
        pytest.param("+0011", True, False, id="signs and leading zeros are read"),
        pytest.param("-11", False, True, id="negative labels are read"),
        pytest.param("x", False, False, id="not a number"),
        pytest.param("1_1", False, False, id="no Python extras"),
        pytest.param("9223372036854775808", False, False, id="past int64"),
        pytest.param(None, False, False, id="absent"),
    ],
)
def test_gt_and_lt_compare_labels_as_integers(label, greater, less):
    labels = {} if label is None else {"k": label}
    assert new_requirement("k", Operator.GREATER_THAN, ["10"]).matches(labels) is greater
    assert new_requirement("k", Operator.LESS_THAN, ["10"]).matches(labels) is less


NAME_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with "
    "an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    "'12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        pytest.param(
            selector({"-a": "1"}), f'key: Invalid value: "-a": {NAME_RULE}', id="a bad key"
        ),
        pytest.param(
            selector({"a": "{{bad}}"}),
            f'values[0][a]: Invalid value: "{{{{bad}}}}": {VALUE_RULE}',
            id="a bad value",
        ),
        pytest.param(
            selector({"a": "x" * 64}),
            f'values[0][a]: Invalid value: "{"x" * 64}": must be no more than 63 bytes',
            id="a long value",
        ),
        pytest.param(
            selector(None, expression("a", "In")),
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
            id="In without values",
        ),
        pytest.param(
            selector(None, expression("a", "Exists", "v")),
            'values: Invalid value: ["v"]: values set must be empty for exists and does not exist',
            id="Exists with values",
        ),
        pytest.param(
            selector(None, expression("a", "Gt", "1")),
            '"Gt" is not a valid label selector operator',
            id="Gt is for node selectors",
        ),
        pytest.param(
            selector(None, expression("", "In")),
            f'[key: Invalid value: "": name part must be non-empty; {NAME_RULE}, '
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty]",
            id="every problem of a requirement is told",
        ),
    ],
)
def test_a_selector_that_cannot_be_built_says_why(written, message):
    with pytest.raises(SelectorError) as caught:
        from_label_selector(written)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param(
            [],
            "values: Invalid value: []: for 'Gt', 'Lt' operators, exactly one value is required",
            id="none",
        ),
        pytest.param(
            ["1", "2"],
            "values: Invalid value: [\"1\",\"2\"]: for 'Gt', 'Lt' operators, exactly one value "
            "is required",
            id="two",
        ),
        pytest.param(
            ["x"],
            "values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an "
            "integer",
            id="not a number",
        ),
        pytest.param(
            ["-1"],
            f'values[0][k]: Invalid value: "-1": {VALUE_RULE}',
            id="a negative number is no label value",
        ),
    ],
)
def test_gt_wants_one_integer_that_is_a_label_value(values, message):
    with pytest.raises(SelectorError) as caught:
        new_requirement("k", Operator.GREATER_THAN, values)
    assert str(caught.value) == message


def test_a_map_becomes_equalities_without_validation():
    built = from_map({"b": "{{anything}}", "a": "1"})
    assert str(built) == "a=1,b={{anything}}"
    assert built.matches({"a": "1", "b": "{{anything}}", "c": "x"})
    assert not built.matches({"a": "1"})
    assert from_map(None) is EVERYTHING
    assert from_map({}) is EVERYTHING


def test_adding_to_a_selector():
    more = Requirement("b", Operator.EXISTS)
    assert EVERYTHING.add(more).matches({"b": ""})
    assert not EVERYTHING.add(more).matches({})
    assert NOTHING.add(more) is NOTHING


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("a=b", "a=b", id="equality"),
        pytest.param("a==b", "a==b", id="double equality keeps its spelling"),
        pytest.param("x != y , a", "a,x!=y", id="sorted by key, spaces dropped"),
        pytest.param("a in (b,c),!d,e=f", "a in (b,c),!d,e=f", id="all forms"),
        pytest.param("a notin (z, y)", "a notin (y,z)", id="values are sorted"),
        pytest.param("a in ()", "a in ()", id="the empty value"),
        pytest.param("a in (b,,c)", "a in (,b,c)", id="an empty value among others"),
        pytest.param("a in (b,)", "a in (,b)", id="an empty value at the end"),
        pytest.param("a=", "a=", id="equality with the empty value"),
        pytest.param("in in (in,notin)", "in in (in,notin)", id="keywords as key and values"),
        pytest.param("gen>5,gen<9", "gen>5,gen<9", id="comparisons"),
    ],
)
def test_text_is_parsed(text, printed):
    assert str(parse(text)) == printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            ",", "found ',', expected: !, identifier, or 'end of string'", id="a lone comma"
        ),
        pytest.param("a,", "found '', expected: identifier after ','", id="a trailing comma"),
        pytest.param(
            "a b",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            id="two words",
        ),
        pytest.param(
            "!a=b", "found '=', expected: ',' or 'end of string'", id="a negated equality"
        ),
        pytest.param(
            "!", "unable to parse requirement: found '', expected: identifier", id="a lone bang"
        ),
        pytest.param(
            "a in b", "unable to parse requirement: found 'b' expected: '('", id="no parenthesis"
        ),
        pytest.param(
            "a in (b",
            "unable to parse requirement: found '', expected: ',' or ')'",
            id="an open parenthesis",
        ),
        pytest.param(
            "a in (=)",
            "unable to parse requirement: found '=', expected: ',', ')' or identifier",
            id="an operator as value",
        ),
        pytest.param(
            "a=(",
            "unable to parse requirement: found '(', expected: identifier",
            id="a parenthesis as value",
        ),
        pytest.param(
            "-a",
            f'unable to parse requirement: <nil>: Invalid value: "-a": {NAME_RULE}',
            id="a bad key",
        ),
        pytest.param(
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' "
            "operators, "
            "the value must be an integer",
            id="a bad bound",
        ),
    ],
)
def test_bad_text_is_refused_in_upstream_words(text, message):
    with pytest.raises(SelectorError) as caught:
        parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("a=1", "a==1", id="spellings of equality"),
        pytest.param("a=1", "a in (1)", id="a set of one"),
        pytest.param("a!=1", "a notin (1)", id="spellings of inequality"),
        pytest.param("a in (1,2)", "a in (2,1,2)", id="order and repetition of values"),
        pytest.param("a=1,b", "b,a=1", id="order of requirements"),
        pytest.param("a,a", "a", id="repetition of requirements"),
    ],
)
def test_equal_meanings_are_equal_keys(one, other):
    assert parse(one) == parse(other)
    assert hash(parse(one)) == hash(parse(other))
    assert len({parse(one): 1, parse(other): 2}) == 1


def test_different_meanings_are_different_keys():
    distinct = [NOTHING, *map(parse, ["", "a", "!a", "a=1", "a!=1", "a=2", "b=1", "a>1", "a<1"])]
    assert len(set(distinct)) == len(distinct)
    assert EVERYTHING != NOTHING
    assert parse("a") != "a"


keys = st.sampled_from(["a", "b", "example.com/c"])
values = st.sampled_from(["", "1", "2", "10", "x-y"])
requirements = st.one_of(
    st.builds(
        Requirement,
        keys,
        st.sampled_from([Operator.IN, Operator.NOT_IN]),
        st.lists(values, min_size=1, max_size=3),
    ),
    st.builds(
        lambda k, o, v: Requirement(k, o, [v]),
        keys,
        st.sampled_from([Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.NOT_EQUALS]),
        values,
    ),
    st.builds(Requirement, keys, st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
    st.builds(
        lambda k, o, v: Requirement(k, o, [v]),
        keys,
        st.sampled_from([Operator.GREATER_THAN, Operator.LESS_THAN]),
        st.sampled_from(["1", "5", "010"]),
    ),
)
selectors = st.builds(Selector, st.lists(requirements, max_size=4))
label_sets = st.dictionaries(keys, values)


@given(selectors)
def test_printed_selectors_parse_to_the_same_selector(built):
    assert parse(str(built)) == built


@given(selectors, selectors, label_sets)
def test_equal_selectors_match_the_same_labels(one, other, labels):
    if one == other:
        assert one.matches(labels) is other.matches(labels)
        assert hash(one) == hash(other)


@given(st.lists(requirements, max_size=4), st.randoms(), label_sets)
def test_order_of_requirements_does_not_matter(listed, shuffler, labels):
    shuffled = list(listed)
    shuffler.shuffle(shuffled)
    assert Selector(shuffled) == Selector(listed)
    assert Selector(shuffled).matches(labels) is all(r.matches(labels) for r in listed)


@given(st.text("ab=!(),<> inot", max_size=14))
def test_any_text_is_either_refused_or_a_selector_that_prints_back(text):
    try:
        built = parse(text)
    except SelectorError:
        return
    assert parse(str(built)) == built


@given(st.integers(-(2**64), 2**64))
def test_int64_bounds(number):
    assert parse_int64(str(number)) == (number if -(2**63) <= number < 2**63 else None)


def test_long_selectors_are_not_kept():
    before = module._built.cache_info().currsize
    for n in range(20):
        values = [f"v{n}-{value}" for value in range(100)]
        wide = LabelSelectorRequirement(key="a", operator="In", values=values)
        assert from_label_selector(LabelSelector(match_expressions=[wide])).matches(
            {"a": values[7]}
        )
        many = {f"k{n}-{key}": "v" for key in range(100)}
        assert from_label_selector(LabelSelector(match_labels=many)).matches(many)
    assert module._built.cache_info().currsize == before
