"""Quantities: what is accepted, what integers come out, how they add up and print.

The expected values are upstream's; the arithmetic is checked against exact fractions.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api import quantity
from kubesched.api.quantity import (
    FORMAT_WRONG,
    MAX_INT64,
    NUMERIC_PART_WRONG,
    SUFFIX_WRONG,
    Format,
    Quantity,
    QuantityError,
    canonical,
    milli_value,
    nanos,
    parse,
    value,
)


@pytest.mark.parametrize(
    ("text", "whole", "milli"),
    [
        pytest.param("100m", 1, 100, id="a tenth rounds up to one"),
        pytest.param("0.5", 1, 500, id="a half rounds up to one"),
        pytest.param("1.0001", 2, 1001, id="rounding is away from zero at both scales"),
        pytest.param("0.1m", 1, 1, id="a tenth of a milli is still one milli"),
        pytest.param("1u", 1, 1, id="a micro rounds up"),
        pytest.param("1n", 1, 1, id="a nano rounds up"),
        pytest.param("-1.5", -2, -1500, id="negative amounts round away from zero too"),
        pytest.param("1.1Ki", 1127, 1126400, id="a binary suffix multiplies before rounding"),
        pytest.param("1.5Gi", 1610612736, 1610612736000, id="a fraction of a binary unit is exact"),
        pytest.param("1E", 10**18, 0, id="exa overflows milli to zero"),
        pytest.param("10E", 0, 0, id="ten exa overflows to zero"),
        pytest.param("1e19", 0, 0, id="an exponent past int64 overflows to zero"),
        pytest.param("1e30", 0, 0, id="a larger exponent overflows to zero"),
        pytest.param("8Ei", MAX_INT64, -1000, id="binary values are capped and milli wraps"),
        pytest.param("9Ei", MAX_INT64, -1000, id="the cap is the same for anything larger"),
        pytest.param(
            "9223372036854775807", MAX_INT64, -1000, id="the largest int64 wraps in milli"
        ),
        pytest.param(
            "10000000000000000000",
            10**19 - 2**64,
            1864712049423024128,
            id="a long number keeps its low 64 bits",
        ),
        pytest.param("1E3", 1000, 10**6, id="E with digits is an exponent"),
        pytest.param("1e-3", 1, 1, id="a negative exponent is a fraction"),
        pytest.param(" 1 ", 1, 1000, id="space around the number is trimmed"),
        pytest.param("1.", 1, 1000, id="a trailing point is fine"),
        pytest.param(".5", 1, 500, id="a leading point is fine"),
        pytest.param("5.Gi", 5 * 2**30, 5 * 2**30 * 1000, id="a point before a suffix is fine"),
        pytest.param(".", 0, 0, id="a lone point is zero"),
        pytest.param("+", 0, 0, id="a lone plus is zero"),
        pytest.param("-", 0, 0, id="a lone minus is zero"),
        pytest.param("00", 0, 0, id="zeros are zero"),
        pytest.param("Ki", 0, 0, id="a lone suffix is zero"),
        pytest.param("m", 0, 0, id="a lone decimal suffix is zero"),
        pytest.param("E", 0, 0, id="a lone exa is zero"),
        pytest.param(2, 2, 2000, id="a bare JSON integer counts"),
        pytest.param(0.25, 1, 250, id="a bare JSON number with a fraction counts"),
        pytest.param(1e3, 1000, 10**6, id="a bare JSON number with an exponent counts"),
    ],
)
def test_integers_are_extracted_as_upstream_does(text, whole, milli):
    assert (value(text), milli_value(text)) == (whole, milli)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", FORMAT_WRONG, id="nothing at all"),
        pytest.param("1 Gi", FORMAT_WRONG, id="a space inside"),
        pytest.param("0x1", FORMAT_WRONG, id="hexadecimal"),
        pytest.param("1_0", FORMAT_WRONG, id="an underscore"),
        pytest.param("KB", FORMAT_WRONG, id="a byte suffix"),
        pytest.param("١", FORMAT_WRONG, id="a digit that is not ASCII"),
        pytest.param("1K", SUFFIX_WRONG, id="capital kilo"),
        pytest.param("1ki", SUFFIX_WRONG, id="lower-case kibi"),
        pytest.param("1mi", SUFFIX_WRONG, id="lower-case mebi"),
        pytest.param("1e", SUFFIX_WRONG, id="an exponent without digits"),
        pytest.param("1e99999999999999999999", SUFFIX_WRONG, id="an exponent past int64"),
        pytest.param("Pi", NUMERIC_PART_WRONG, id="pebi without a number"),
        pytest.param("Ei", NUMERIC_PART_WRONG, id="exbi without a number"),
        pytest.param("1e2000000000", NUMERIC_PART_WRONG, id="a number of two billion digits"),
        pytest.param("9" * 5000, NUMERIC_PART_WRONG, id="five thousand digits"),
    ],
)
def test_malformed_text_is_refused_in_upstream_words(text, message):
    with pytest.raises(QuantityError) as caught:
        parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        pytest.param("0.5", "500m", id="a fraction becomes milli"),
        pytest.param("1000m", "1", id="a thousand milli is one"),
        pytest.param("1024Ki", "1Mi", id="the largest binary suffix wins"),
        pytest.param("1.5Gi", "1536Mi", id="no fraction is printed"),
        pytest.param("1000", "1k", id="the largest decimal suffix wins"),
        pytest.param("0.1Ki", "102400m", id="binary amounts that are not whole print as decimal"),
        pytest.param("512Ki", "512Ki", id="canonical text stays"),
        pytest.param("1000Ki", "1000Ki", id="a binary amount has no decimal suffix"),
        pytest.param("0Gi", "0", id="zero has no suffix"),
        pytest.param("1e3", "1e3", id="an exponent stays an exponent"),
        pytest.param("1E4", "10e3", id="exponents are multiples of three"),
        pytest.param("1.0001", "1000100u", id="precision is kept"),
        pytest.param("0.1n", "1n", id="below nano rounds up"),
        pytest.param("8Ei", "9223372036854775807", id="a capped amount prints as a number"),
        pytest.param("+5", "+5", id="a sign that needs no change stays"),
        pytest.param("1.500", "1.500", id="text that looks canonical is reused"),
        pytest.param("0.500", "500m", id="text with a leading zero is not"),
        pytest.param("1000E", "1", id="past exa there is no suffix"),
    ],
)
def test_canonical_form_is_upstreams(text, printed):
    assert canonical(text) == printed


@pytest.mark.parametrize(
    ("terms", "total", "printed"),
    [
        pytest.param(["0.4m", "0.4m"], 1, "800u", id="the sum is rounded, not the terms"),
        pytest.param(["300m", "200m"], 500, "500m", id="milli add up"),
        pytest.param(["0", "1Gi"], 2**30 * 1000, "1Gi", id="zero takes the other's suffix family"),
        pytest.param(["1", "1Ki"], 1025000, "1025", id="the first suffix family is kept"),
        pytest.param(["1.5Gi", "512Mi"], 2**31 * 1000, "2Gi", id="big and small forms mix"),
    ],
)
def test_sums_are_exact_until_an_integer_is_taken(terms, total, printed):
    amount = quantity.ZERO
    for term in terms:
        amount = amount + parse(term)
    assert amount.milli_value() == total
    assert str(amount) == printed


def test_a_sum_past_int64_becomes_big_and_keeps_its_low_bits():
    total = parse("9223372036854775807") + parse("1")
    assert total.is_big
    assert total.value() == -(2**63)


@pytest.mark.parametrize(
    ("text", "rounded"),
    [
        pytest.param("1.0001", "1001m", id="below milli rounds up"),
        pytest.param("250m", "250m", id="milli stays"),
        pytest.param("1.500", "1.500", id="text is kept when nothing changes"),
        pytest.param("1.1Ki", "1126400m", id="a big form is rounded as well"),
        pytest.param("-0.1m", "-1m", id="negative amounts go away from zero"),
    ],
)
def test_round_up_cuts_to_milli_as_api_defaulting_does(text, rounded):
    assert str(parse(text).round_up(-3)) == rounded


def test_quantities_compare_and_hash_by_amount():
    assert parse("1Gi") == parse("1024Mi")
    assert hash(parse("1Gi")) == hash(parse("1024Mi"))
    assert parse("999m") < parse("1") <= parse("1000m") < parse("1001m")
    assert parse("1") != "1"
    assert sorted([parse("2"), parse("1Ki"), parse("500m")], key=lambda q: q.nanos) == [
        parse("500m"),
        parse("2"),
        parse("1Ki"),
    ]


SUFFIXES = {
    "": 1,
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
    "Ei": 2**60,
    "e3": 1000,
    "E-2": Fraction(1, 100),
}


@st.composite
def written_quantities(draw):
    """(text, exact value as upstream holds it)."""
    sign = draw(st.sampled_from(["", "+", "-"]))
    integer = draw(st.text("0123456789", min_size=1, max_size=22))
    fraction = draw(st.one_of(st.none(), st.text("0123456789", max_size=12)))
    suffix = draw(st.sampled_from(sorted(SUFFIXES)))
    text = sign + integer + ("" if fraction is None else f".{fraction}") + suffix
    exact = Fraction(integer + "." + (fraction or "0")) * SUFFIXES[suffix]
    in_nanos = Fraction(ceil(exact * 10**9), 10**9)
    if suffix.endswith("i"):
        in_nanos = min(in_nanos, Fraction(MAX_INT64))
    return text, -in_nanos if sign == "-" else in_nanos


def away_from_zero(exact):
    return ceil(exact) if exact >= 0 else floor(exact)


@given(written_quantities())
def test_parsing_is_exact_to_the_nano(written):
    text, exact = written
    assert Fraction(nanos(text), 10**9) == exact


@given(written_quantities())
def test_integers_that_fit_are_the_exact_value_rounded_away_from_zero(written):
    text, exact = written
    if exact < 0 and parse(text).is_big:
        return  # upstream mangles these; nothing valid is negative
    for extract, factor in ((value, 1), (milli_value, 1000)):
        wanted = away_from_zero(exact * factor)
        if abs(wanted) <= MAX_INT64:
            assert extract(text) == wanted


@given(written_quantities(), written_quantities())
def test_addition_and_order_are_those_of_fractions(first, second):
    (text_a, a), (text_b, b) = first, second
    assert Fraction((parse(text_a) + parse(text_b)).nanos, 10**9) == a + b
    assert Fraction((parse(text_a) - parse(text_b)).nanos, 10**9) == a - b
    assert (parse(text_a) < parse(text_b)) is (a < b)
    assert (parse(text_a) >= parse(text_b)) is (a >= b)
    assert (parse(text_a) == parse(text_b)) is (a == b)


@given(written_quantities())
def test_printing_loses_nothing_and_is_stable(written):
    text, exact = written
    if parse(text).format is not Format.DECIMAL_EXPONENT and abs(exact) >= 10**21:
        return  # no suffix is left to print it with
    printed = canonical(text)
    assert Fraction(nanos(printed), 10**9) == exact
    assert canonical(printed) == printed


@given(st.text("0123456789.+-eEinumkKMGTP ", max_size=12))
def test_any_text_is_either_refused_or_gives_int64s(text):
    try:
        result = parse(text)
    except QuantityError:
        return
    assert isinstance(result, Quantity)
    assert -(2**63) <= result.value() <= MAX_INT64
    assert -(2**63) <= result.milli_value() <= MAX_INT64
