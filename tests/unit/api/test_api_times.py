"""RFC 3339 timestamps and Go durations, there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.times import (
    TimeError,
    format_duration,
    format_micro_time,
    format_time,
    parse_duration,
    parse_duration_nanos,
    parse_time,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("1970-01-01T00:00:00Z", 0.0, id="the epoch"),
        pytest.param("2026-01-01T00:00:00Z", 1767225600.0, id="whole seconds"),
        pytest.param("2026-01-01T00:00:00.25Z", 1767225600.25, id="a fraction"),
        pytest.param("2026-01-01T00:00:00.123456789Z", 1767225600.123456, id="nanoseconds are cut"),
        pytest.param("2026-01-01T02:00:00+02:00", 1767225600.0, id="east of Greenwich"),
        pytest.param("2025-12-31T18:30:00-05:30", 1767225600.0, id="west of Greenwich"),
        pytest.param("1969-12-31T23:59:59.5Z", -0.5, id="before the epoch"),
    ],
)
def test_timestamps_are_read(text, seconds):
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("2026-01-01", id="a date"),
        pytest.param("2026-01-01T00:00:00", id="no zone"),
        pytest.param("20260101T000000Z", id="without separators"),
        pytest.param("2026-13-01T00:00:00Z", id="a thirteenth month"),
        pytest.param("2026-02-30T00:00:00Z", id="a day that is not"),
        pytest.param("2026-01-01T00:00:00+25:00", id="a zone that is not"),
        pytest.param("2026-01-01 00:00:00Z", id="a space"),
    ],
)
def test_other_text_is_refused(text):
    with pytest.raises(TimeError, match="cannot parse"):
        parse_time(text)


def test_timestamps_are_written():
    assert format_time(1767225600.9) == "2026-01-01T00:00:00Z"
    assert format_micro_time(1767225600.123456) == "2026-01-01T00:00:00.123456Z"
    assert format_micro_time(1767225600.0) == "2026-01-01T00:00:00.000000Z"
    assert format_micro_time(1767225599.9999997) == "2026-01-01T00:00:00.000000Z"


@given(st.integers(0, 4 * 10**15))
def test_microseconds_survive_a_round_trip(micros):
    text = format_micro_time(micros / 1e6)
    assert round(parse_time(text) * 1e6) == micros
    assert format_micro_time(parse_time(text)) == text


@pytest.mark.parametrize(
    ("text", "seconds", "printed"),
    [
        pytest.param("0", 0.0, "0s", id="zero needs no unit"),
        pytest.param("0s", 0.0, "0s", id="zero seconds"),
        pytest.param("1m30s", 90.0, "1m30s", id="minutes and seconds"),
        pytest.param("500ms", 0.5, "500ms", id="milliseconds"),
        pytest.param("1.5s", 1.5, "1.5s", id="a fraction"),
        pytest.param("1h", 3600.0, "1h0m0s", id="hours"),
        pytest.param("24h", 86400.0, "24h0m0s", id="no days"),
        pytest.param("-1m", -60.0, "-1m0s", id="negative"),
        pytest.param("+.5s", 0.5, "500ms", id="a plus and no digit before the point"),
        pytest.param("1.s", 1.0, "1s", id="no digit after the point"),
        pytest.param("100us", 1e-4, "100µs", id="microseconds"),
        pytest.param("100µs", 1e-4, "100µs", id="the micro sign"),
        pytest.param("100μs", 1e-4, "100µs", id="the Greek letter"),
        pytest.param("15ns", 1.5e-8, "15ns", id="nanoseconds"),
        pytest.param("1h1m1.001s", 3661.001, "1h1m1.001s", id="everything"),
        pytest.param("30s1m", 90.0, "1m30s", id="any order"),
    ],
)
def test_durations(text, seconds, printed):
    assert parse_duration(text) == pytest.approx(seconds, rel=1e-12)
    assert format_duration(parse_duration(text)) == printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", 'time: invalid duration ""', id="nothing"),
        pytest.param("-", 'time: invalid duration "-"', id="a sign"),
        pytest.param("s", 'time: invalid duration "s"', id="no number"),
        pytest.param(".s", 'time: invalid duration ".s"', id="a point"),
        pytest.param("5", 'time: missing unit in duration "5"', id="no unit"),
        pytest.param("1s5", 'time: missing unit in duration "1s5"', id="no unit at the end"),
        pytest.param("1d", 'time: unknown unit "d" in duration "1d"', id="days"),
        pytest.param("1 s", 'time: unknown unit " s" in duration "1 s"', id="a space"),
        pytest.param("3000000h", 'time: invalid duration "3000000h"', id="past 292 years"),
        pytest.param(
            "9" * 5000 + "s", f'time: invalid duration "{"9" * 5000}s"', id="absurdly long"
        ),
    ],
)
def test_bad_durations_are_refused_in_gos_words(text, message):
    with pytest.raises(TimeError) as caught:
        parse_duration(text)
    assert str(caught.value) == message


@given(st.integers(-(10**15), 10**15))
def test_printed_durations_are_read_back(nanos):
    assert parse_duration_nanos(format_duration(nanos / 1e9)) == nanos
