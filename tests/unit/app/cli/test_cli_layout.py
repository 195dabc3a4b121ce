"""Tables at any width: nothing lost, no figure broken, words broken last."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.app.cli.layout import painted, table_lines, text_width, wrapped

HEADERS = ("REASON", "NODES", "ONLY REASON", "PLUGIN", "WHAT WOULD CHANGE IT")
ROWS = [
    (
        "Insufficient cpu: wants 14, largest free part is 4",
        "12345",
        "3",
        "NodeResourcesFit",
        "less",
    ),
    ("untolerated taint gpu=true:NoSchedule", "1", "1", "TaintToleration", "a toleration, or so"),
]


def test_without_a_width_a_row_is_a_line():
    assert table_lines(("POD", "COUNT", ""), [("a", "1", ""), ("bcde", "22", "x y")]) == [
        "POD    COUNT",
        "a      1",
        "bcde   22      x y",
    ]


def test_columns_to_the_right():
    assert table_lines(("W", "PODS", "S"), [("a", "1", "22")], right_from=1) == [
        "W   PODS    S",
        "a      1   22",
    ]


def test_the_widest_text_column_gives_way_first_and_wraps_at_words():
    assert table_lines(("POD", "PODS", "WHY"), [("web-1", "23", "no node has room")], width=20) == [
        "POD    PODS  WHY",
        "web-1  23    no node",
        "             has",
        "             room",
    ]


def test_five_columns_at_60():
    assert table_lines(HEADERS, ROWS, width=60) == [
        "REASON           NODES  ONLY    PLUGIN           WHAT WOULD",
        "                        REASON                   CHANGE IT",
        "Insufficient     12345  3       NodeResources    less",
        "cpu: wants 14,                  Fit",
        "largest free",
        "part is 4",
        "untolerated      1      1       TaintToleration  a",
        "taint                                            toleration,",
        "gpu=true:No                                      or so",
        "Schedule",
    ]


def test_too_many_figures_come_in_bands_with_the_first_column():
    headers = ("NODE", *(f"Plugin{n}" for n in range(8)))
    rows = [("node-0", *(f"{n}00/100/300" for n in range(8)))]
    lines = table_lines(headers, rows, width=60)
    assert lines == [
        "NODE    Plugin0      Plugin1      Plugin2      Plugin3",
        "node-0  000/100/300  100/100/300  200/100/300  300/100/300",
        "",
        "NODE    Plugin4      Plugin5      Plugin6      Plugin7",
        "node-0  400/100/300  500/100/300  600/100/300  700/100/300",
    ]


def test_headers_of_figures_break_between_capitals():
    headers = ("NODE", "NodeResourcesBalancedAllocation", "PodTopologySpread")
    assert table_lines(headers, [("n", "100", "200")], width=32) == [
        "NODE  Node          PodTopology",
        "      Resources     Spread",
        "      Balanced",
        "      Allocation",
        "n     100           200",
    ]


@pytest.mark.parametrize(
    "figure",
    ["12.5 %", "-3 to +4.5", "1,234,567", "100/100/300", "3.5 ± 0.1", "1.2x", "250 µs", "5 of 7"],
)
def test_figures_stay_in_one_piece(figure):
    rows = [("some text that is long enough to wrap", figure)]
    lines = table_lines(("TEXT", "FIGURE"), rows, width=24)
    assert sum(figure in line for line in lines) == 1


def test_numbers_in_text_are_not_broken():
    rows = [("x" * 40, "y" * 40, "has 10737418240 bytes", "z" * 40)]
    lines = table_lines(("A", "B", "C", "D"), rows, width=60)
    assert any("10737418240" in line for line in lines)
    assert max(map(len, lines)) <= 60


def test_names_break_at_their_dashes():
    assert wrapped("demo/web-74b8bb49fc-4sxxf", 16) == ["demo/web-", "74b8bb49fc-4sxxf"]
    assert wrapped("1,234,567.8", 11) == ["1,234,567.8"]


def test_wide_characters_take_two_columns():
    assert text_width("日本") == 4
    assert text_width("e\u0301") == 1
    assert table_lines(("NAME", "N"), [("日本", "1"), ("web", "2")]) == [
        "NAME   N",
        "日本   1",
        "web    2",
    ]


def test_a_cell_of_several_lines_stays_in_its_row():
    assert table_lines(("A", "B"), [("x\ny", "1")]) == ["A     B", "x y   1"]


def test_styles_take_no_room():
    lines = table_lines(HEADERS, ROWS, width=60, is_coloured=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines)).split() == [
        word for line in table_lines(HEADERS, ROWS, width=60) for word in line.split()
    ]
    assert painted("x", "36") + "   B" in table_lines(("A", "B"), [("x", "B")], is_coloured=True)


text = st.text(st.sampled_from("ab1 -/A.日é"), max_size=40)
tables = st.integers(1, 7).flatmap(
    lambda n: st.tuples(
        st.lists(text, min_size=n, max_size=n),
        st.lists(st.lists(text, min_size=n, max_size=n), max_size=4),
    )
)


@given(tables, st.integers(60, 200))
def test_every_table_fits_and_keeps_every_character(table, width):
    headers, rows = table
    lines = table_lines(headers, rows, width=width)
    assert all(text_width(line) <= width for line in lines)
    # The first column of a band after the first is a repetition.
    is_banded = "" in lines[:-1] and any(map(str.strip, lines))
    wanted = sorted("".join("".join(row) for row in [headers, *rows]).replace(" ", ""))
    printed = sorted("".join(lines).replace(" ", ""))
    if not is_banded:
        assert printed == wanted
    assert set(printed) == set(wanted)


@given(text, st.integers(8, 30))
def test_wrapped_text_is_the_text(given_text, width):
    lines = wrapped(given_text, width)
    assert all(text_width(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == given_text.replace(" ", "")
