"""Proves that durations are read and written as Go does it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.config import durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("0", 0.0, id="zero needs no unit"),
        pytest.param("0s", 0.0, id="or has one"),
        pytest.param("15s", 15.0, id="seconds"),
        pytest.param("1m30s", 90.0, id="parts add up"),
        pytest.param("1.5h", 5400.0, id="fractions of any unit"),
        pytest.param(".5s", 0.5, id="a fraction alone"),
        pytest.param("1.s", 1.0, id="a dot without a fraction"),
        pytest.param("100ms", 0.1, id="milliseconds"),
        pytest.param("2us", 2e-6, id="microseconds in ASCII"),
        pytest.param("2µs", 2e-6, id="microseconds with a micro sign"),
        pytest.param("7ns", 7e-9, id="nanoseconds"),
        pytest.param("-2m", -120.0, id="negative"),
        pytest.param("+2m", 120.0, id="an explicit plus"),
    ],
)
def test_durations_are_read_as_seconds(text, seconds):
    assert durations.parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", 'time: invalid duration ""', id="nothing"),
        pytest.param("-", 'time: invalid duration "-"', id="only a sign"),
        pytest.param("5", 'time: missing unit in duration "5"', id="no unit"),
        pytest.param("5d", 'time: unknown unit "d" in duration "5d"', id="days are no unit"),
        pytest.param("s", 'time: invalid duration "s"', id="no number"),
        pytest.param("1s.", 'time: invalid duration "1s."', id="a stray dot"),
        pytest.param("ten", 'time: invalid duration "ten"', id="words"),
        pytest.param("9999999999h", 'time: invalid duration "9999999999h"', id="too long for Go"),
        pytest.param(
            "9" * 5000 + "s", 'time: invalid duration "' + "9" * 5000 + 's"', id="absurdly long"
        ),
    ],
)
def test_bad_durations_are_refused_in_go_words(text, message):
    with pytest.raises(ValueError, match="time: ") as caught:
        durations.parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        pytest.param(0.0, "0s", id="zero"),
        pytest.param(15.0, "15s", id="seconds"),
        pytest.param(60.0, "1m0s", id="minutes spell out their seconds"),
        pytest.param(3600.0, "1h0m0s", id="hours spell out everything"),
        pytest.param(5400.5, "1h30m0.5s", id="fractions of a second"),
        pytest.param(0.1, "100ms", id="less than a second in milliseconds"),
        pytest.param(0.0015, "1.5ms", id="with a fraction"),
        pytest.param(2e-6, "2µs", id="microseconds"),
        pytest.param(7e-9, "7ns", id="nanoseconds"),
        pytest.param(-90.0, "-1m30s", id="negative"),
    ],
)
def test_durations_are_written_in_gos_shortest_form(seconds, text):
    assert durations.to_text(seconds) == text


@given(st.integers(-(10**15), 10**15))
def test_what_is_written_is_read_back(microseconds):
    seconds = microseconds / 1e6
    assert durations.parse(durations.to_text(seconds)) == pytest.approx(
        seconds, rel=1e-12, abs=1e-9
    )
