"""Tables of options: what a row means to the parser."""

from __future__ import annotations

import re

import pytest

from kubesched.app.cli.options import add_options
from kubesched.app.cli.parsing import Parser

TABLE = """
files FILE {+}            what to read
-n, --name NAME {=web}    its name
--from FILE {*}           a dump,
    or several
--count N {positive}      how many
--mode MODE {fast|slow}   how
--kind KIND {|a|b}        of which kind
--with WHAT {|x|y*}       beside it
--shape W:H {shape=1:2}   its shape
--force                   without asking
--key FILE {!}            needed
"""


@pytest.fixture
def parser():
    parser = Parser(prog="p")
    add_options(parser, TABLE, shape=lambda text: tuple(map(int, text.split(":"))))
    return parser


def test_what_is_not_given(parser):
    args = vars(parser.parse_args(["a", "--key", "k"]))
    assert args == {
        "files": ["a"],
        "name": "web",
        "from_": [],
        "count": None,
        "mode": "fast",
        "kind": None,
        "with_": [],
        "shape": (1, 2),
        "force": False,
        "key": "k",
    }


def test_what_is_given(parser):
    words = "a b -n x --from f --from g --count 3 --mode slow --kind b --with x --with y"
    args = parser.parse_args([*words.split(), "--shape", "3:4", "--force", "--key", "k"])
    assert (args.files, args.name, args.from_, args.count) == (["a", "b"], "x", ["f", "g"], 3)
    assert (args.mode, args.kind, args.with_) == ("slow", "b", ["x", "y"])
    assert (args.shape, args.force) == ((3, 4), True)


@pytest.mark.parametrize(
    "words",
    [
        ["--key", "k"],
        ["a"],
        *(
            ["a", "--key", "k", *more]
            for more in (
                ["--count", "0"],
                ["--mode", "x"],
                ["--kind", ""],
                ["--with", "z"],
                ["--force=1"],
            )
        ),
    ],
)
def test_what_is_refused(words, parser, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args(words)
    assert capsys.readouterr().err.startswith("error: ")


def test_the_help_tells_defaults_and_repetition(parser):
    text = " ".join(parser.format_help().split())
    # Python 3.13 and later name the value once.
    assert re.search(r"-n(?: NAME)?, --name NAME its name \(default: web\)", text)
    assert "--from FILE a dump, or several; may be repeated" in text
    assert "--mode MODE how (default: fast)" in text
    assert "--shape W:H its shape (default: 1:2)" in text
    assert "--count N how many --mode" in text


def test_a_row_that_makes_no_sense_is_a_mistake_of_ours():
    with pytest.raises(AssertionError, match="not a row of options: --a B C"):
        add_options(Parser(prog="p"), "--a B C  text")
