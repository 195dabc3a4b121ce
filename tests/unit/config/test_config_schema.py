"""Proves that records are read strictly, with every problem at once, and written as Go writes
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.meta import Record
from kubesched.api.yaml_nodes import is_json, parse
from kubesched.base.errors import ConfigError
from kubesched.config.schema import (
    OMIT_EMPTY,
    Decoder,
    Int32,
    Int64,
    RawArgs,
    Seconds,
    decode_args,
    encode,
)


class Point(Record):
    x: Int32 = 0
    label: Annotated[str, OMIT_EMPTY] = ""


class Everything(Record):
    text: str = "default"
    flag: bool = False
    maybe: bool | None = None
    small: Int32 = 1
    big: Int64 | None = None
    ratio: float = 0.5
    wait: Seconds = 2.0
    blob: bytes = b""
    point: Point = Point(x=7)
    points: tuple[Point, ...] = ()
    words: list[str] | None = None
    labels: dict[str, str] | None = None
    raw: RawArgs | None = None


def read(text: str) -> tuple[Everything, Decoder]:
    data = text.encode()
    decoder = Decoder(json=is_json(data))
    return decoder.read(parse(data), Everything, ""), decoder


def problems(text: str) -> list[str]:
    return [str(problem) for problem in read(text)[1].problems]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", Everything(), id="nothing gives the defaults"),
        pytest.param("text: hello", Everything(text="hello"), id="text"),
        pytest.param("text: null", Everything(), id="null counts as absent"),
        pytest.param("text: ''", Everything(text=""), id="empty text is said"),
        pytest.param("flag: yes", Everything(flag=True), id="yes is a boolean"),
        pytest.param("maybe: off", Everything(maybe=False), id="an optional one can be false"),
        pytest.param("small: 1e3", Everything(small=1000), id="1e3 is an integer"),
        pytest.param("small: 5.0", Everything(small=5), id="so is 5.0"),
        pytest.param("small: 0", Everything(small=0), id="zero is said"),
        pytest.param("big: 9223372036854775807", Everything(big=2**63 - 1), id="64 bits"),
        pytest.param("ratio: 3", Everything(ratio=3.0), id="an integer is a number"),
        pytest.param("wait: 1m", Everything(wait=60.0), id="a duration"),
        pytest.param("blob: aGk=", Everything(blob=b"hi"), id="base64"),
        pytest.param("point: {x: 1}", Everything(point=Point(x=1)), id="a record"),
        pytest.param("point: {}", Everything(point=Point()), id="an empty record is said"),
        pytest.param(
            "points: [{x: 1}, {}, ~]",
            Everything(points=(Point(x=1), Point(), Point())),
            id="a list of records, where null is an empty one",
        ),
        pytest.param("words: [a, b]", Everything(words=["a", "b"]), id="a list of text"),
        pytest.param("words: []", Everything(words=[]), id="an empty list is said"),
        pytest.param("labels: {a: b}", Everything(labels={"a": "b"}), id="a map"),
        pytest.param("raw: {a: [1]}", Everything(raw=RawArgs({"a": [1]})), id="raw data"),
        pytest.param('{"text": "x", "small": 2}', Everything(text="x", small=2), id="JSON"),
    ],
)
def test_values_are_read(text, expected):
    value, decoder = read(text)
    assert decoder.problems == []
    assert value == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(
            "txet: a",
            'txet: strict decoding error: unknown field "txet"; did you mean "text"? '
            "(line 1, column 1)",
            id="an unknown field, with what was probably meant",
        ),
        pytest.param(
            "zzz: a",
            'zzz: strict decoding error: unknown field "zzz" (line 1, column 1)',
            id="an unknown field",
        ),
        pytest.param(
            "Text: a",
            'Text: strict decoding error: unknown field "Text"; did you mean "text"? '
            "(line 1, column 1)",
            id="names are case-sensitive",
        ),
        pytest.param(
            "text: yes",
            "text: Invalid value: true: expected a string, found a boolean; quote it to make it "
            'text: "yes" (line 1, column 7)',
            id="a boolean is no text",
        ),
        pytest.param(
            "text: 12",
            "text: Invalid value: 12: expected a string, found an integer; quote it to make it "
            'text: "12" (line 1, column 7)',
            id="a number is no text",
        ),
        pytest.param(
            "flag: 'true'",
            'flag: Invalid value: "true": expected a boolean, found a string (line 1, column 7)',
            id="text is no boolean",
        ),
        pytest.param(
            "small: '1'",
            'small: Invalid value: "1": expected an integer, found a string (line 1, column 8)',
            id="text is no number",
        ),
        pytest.param(
            "small: 1.5",
            "small: Invalid value: 1.5: expected an integer, found a number (line 1, column 8)",
            id="a fraction is no integer",
        ),
        pytest.param(
            "small: true",
            "small: Invalid value: true: expected an integer, found a boolean (line 1, column 8)",
            id="a boolean is no integer",
        ),
        pytest.param(
            "small: .inf",
            "small: Invalid value: .inf: expected an integer, found a number (line 1, column 8)",
            id="infinity is no integer",
        ),
        pytest.param(
            "small: 2147483648",
            "small: Invalid value: 2147483648: does not fit into 32 bits (line 1, column 8)",
            id="too large for 32 bits",
        ),
        pytest.param(
            "big: 9223372036854775808",
            "big: Invalid value: 9223372036854775808: does not fit into 64 bits (line 1, column 6)",
            id="too large for 64 bits",
        ),
        pytest.param(
            "ratio: .nan",
            "ratio: Invalid value: .nan: expected a finite number, found a number (line 1, column "
            "8)",
            id="not a number",
        ),
        pytest.param(
            "wait: 5",
            'wait: Invalid value: 5: expected a duration such as "15s", found an integer '
            "(line 1, column 7)",
            id="a duration needs a unit",
        ),
        pytest.param(
            "wait: 5d",
            'wait: Invalid value: "5d": time: unknown unit "d" in duration "5d" (line 1, column 7)',
            id="a duration with an unknown unit",
        ),
        pytest.param(
            "point: []",
            "point: Invalid value: expected a map, found a list (line 1, column 8)",
            id="a list is no map",
        ),
        pytest.param(
            "points: {}",
            "points: Invalid value: expected a list, found a map (line 1, column 9)",
            id="a map is no list",
        ),
        pytest.param(
            "labels: []",
            "labels: Invalid value: expected a map, found a list (line 1, column 9)",
            id="a list is no map of text",
        ),
        pytest.param(
            "labels: {a: 1}",
            "labels[a]: Invalid value: 1: expected a string, found an integer; quote it to make "
            'it text: "1" (line 1, column 13)',
            id="a map's values have a type",
        ),
        pytest.param(
            "words: [a, ~]",
            "words[1]: Invalid value: null: expected a string, found null (line 1, column 12)",
            id="null is no text in a list",
        ),
        pytest.param(
            "points:\n- x: 1\n- x: a\n",
            'points[1].x: Invalid value: "a": expected an integer, found a string '
            "(line 3, column 6)",
            id="the path counts list items",
        ),
        pytest.param(
            "point: {x: 1, x: 2}",
            'point.x: strict decoding error: line 1: key "x" already set in map '
            "(line 1, column 15)",
            id="a duplicate key",
        ),
        pytest.param(
            "raw: {a: 1, a: 2}",
            'raw.a: strict decoding error: line 1: key "a" already set in map (line 1, column 13)',
            id="a duplicate key in raw data",
        ),
    ],
)
def test_what_does_not_fit_is_a_problem_with_path_and_position(text, problem):
    assert problems(text) == [problem]


def test_secret_bytes_are_not_repeated_in_the_message():
    (problem,) = problems("blob: 'geheim!'")
    assert "geheim" not in problem
    assert problem.startswith("blob: Invalid value: not base64")


def test_all_problems_are_found_and_other_fields_are_still_read():
    value, decoder = read("text: 1\nnope: 2\nsmall: x\nflag: true\npoint: {y: 1, x: 3}\n")
    assert [problem.path for problem in decoder.problems] == ["text", "nope", "small", "point.true"]
    assert (value.text, value.small, value.flag, value.point.x) == ("default", 1, True, 3)


def test_a_problem_found_later_is_placed_at_its_field_or_the_nearest_around_it():
    _, decoder = read("text: a\npoint:\n  x: 1\npoints:\n- {x: 2}\n")
    at = {
        path: (located.line, located.column)
        for path in ("text", "point.x", "point.label", "points[0].x", "points[0].label", "gone")
        for located in [decoder.located(_problem(path))]
    }
    assert at == {
        "text": (1, 7),
        "point.x": (3, 6),
        "point.label": (2, 1),
        "points[0].x": (5, 7),
        "points[0].label": (5, 3),
        "gone": (None, None),
    }


def _problem(path):
    from kubesched.base.errors import FieldProblem

    return FieldProblem(path, "wrong")


# -- writing --------------------------------------------------------------------------------------


def test_absent_and_empty_values_are_left_out_and_plain_ones_are_not():
    assert encode(Everything(text="")) == {
        "text": "",
        "flag": False,
        "small": 1,
        "ratio": 0.5,
        "wait": "2s",
        "point": {"x": 7},
    }


def test_values_are_written_as_they_are_read():
    value = Everything(
        maybe=False,
        big=3,
        ratio=2.0,
        blob=b"hi",
        points=(Point(x=1, label="a"),),
        words=["a"],
        labels={"a": "b"},
        raw=RawArgs({"a": [1]}),
    )
    assert encode(value) == {
        "text": "default",
        "flag": False,
        "maybe": False,
        "small": 1,
        "big": 3,
        "ratio": 2,
        "wait": "2s",
        "blob": "aGk=",
        "point": {"x": 7},
        "points": [{"x": 1, "label": "a"}],
        "words": ["a"],
        "labels": {"a": "b"},
        "raw": {"a": [1]},
    }


_INT32 = st.integers(-(2**31), 2**31 - 1)
_TEXT = st.text(max_size=8)
_POINTS = st.builds(Point, x=_INT32, label=_TEXT)


@given(
    st.builds(
        Everything,
        text=_TEXT,
        flag=st.booleans(),
        maybe=st.none() | st.booleans(),
        small=_INT32,
        big=st.none() | st.integers(-(2**63), 2**63 - 1),
        ratio=st.floats(-1e6, 1e6, allow_nan=False),
        wait=st.integers(-(10**9), 10**9).map(lambda milliseconds: milliseconds / 1000),
        blob=st.binary(max_size=8),
        point=_POINTS,
        points=st.lists(_POINTS, max_size=3).map(tuple),
        words=st.none() | st.lists(_TEXT, min_size=1, max_size=3),
        labels=st.none() | st.dictionaries(_TEXT, _TEXT, min_size=1, max_size=3),
    )
)
def test_reading_what_was_written_gives_the_same_record(value):
    from kubesched.api.yaml_nodes import from_plain

    decoder = Decoder(json=True)
    assert decoder.read(from_plain(encode(value)), Everything, "") == value
    assert decoder.problems == []


# -- arguments of third-party plugins -------------------------------------------------------------


ORIGIN = Point()


@dataclass(frozen=True)
class TheirArgs:
    max_size: int = 10
    zones: tuple[str, ...] = ()
    point: Point = ORIGIN


def test_a_dataclass_can_be_read_from_raw_arguments():
    raw = read("raw: {maxSize: 3, zones: [a], point: {x: 1}}")[0].raw
    assert decode_args(raw, TheirArgs) == TheirArgs(3, ("a",), Point(x=1))


def test_without_arguments_the_record_has_its_defaults():
    assert decode_args(None, TheirArgs) == TheirArgs()


def test_arguments_built_in_a_program_can_be_read_too():
    assert decode_args(RawArgs({"maxSize": 4}), TheirArgs) == TheirArgs(max_size=4)


def test_wrong_arguments_are_reported_with_their_place_in_the_file():
    raw = read("text: a\nraw:\n  maxsize: 3\n  zones: a\n")[0].raw
    with pytest.raises(ConfigError) as caught:
        decode_args(raw, TheirArgs, "profiles[0].pluginConfig[0].args")
    assert [str(problem) for problem in caught.value.problems] == [
        "profiles[0].pluginConfig[0].args.maxsize: strict decoding error: unknown field "
        '"maxsize"; did you mean "maxSize"? (line 3, column 3)',
        'profiles[0].pluginConfig[0].args.zones: Invalid value: "a": expected a list, found a '
        "string (line 4, column 10)",
    ]


class Mode(Enum):
    FAST = "fast"


@dataclass(frozen=True)
class StrictArgs:
    size: int
    mode: Mode = Mode.FAST
    port: int | str = 1

    def __post_init__(self):
        if self.size < 0:
            raise ValueError("size must not be negative")


def strict_problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        decode_args(read(f"raw: {text}")[0].raw, StrictArgs)
    return [str(problem) for problem in caught.value.problems]


def test_any_annotation_msgspec_knows_can_be_read():
    args = decode_args(read("raw: {size: 3, mode: fast, port: http}")[0].raw, StrictArgs)
    assert args == StrictArgs(size=3, mode=Mode.FAST, port="http")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("{}", ["args.size: Required value (line 1, column 6)"], id="a missing field"),
        pytest.param(
            "{size: x}",
            [
                'args.size: Invalid value: "x": expected an integer, found a string '
                "(line 1, column 13)"
            ],
            id="a required field that cannot be read is said once",
        ),
        pytest.param(
            "{size: -1}",
            ["args: size must not be negative (line 1, column 6)"],
            id="the record's own check",
        ),
        pytest.param(
            "{size: 1, mode: slow}",
            ["args.mode: Invalid value: \"slow\": Invalid enum value 'slow' (line 1, column 22)"],
            id="a value that is no member",
        ),
    ],
)
def test_a_plugins_own_rules_are_kept(text, expected):
    assert strict_problems(text) == expected


def test_required_arguments_are_missed_when_there_are_none():
    with pytest.raises(ConfigError, match=r"args\.size: Required value$"):
        decode_args(None, StrictArgs)


def test_wrong_arguments_from_a_program_have_no_position():
    with pytest.raises(ConfigError) as caught:
        decode_args(RawArgs({"maxSize": "x"}), TheirArgs)
    (problem,) = caught.value.problems
    assert (problem.path, problem.line) == ("args.maxSize", None)
