"""Control characters from objects: shown, never sent to the terminal, in every command and log
line.
"""

from __future__ import annotations

import io
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.app.cli.main import main
from kubesched.app.cli.terminal import table
from kubesched.base.logs import Format, LineWriter, get_logger
from kubesched.base.visible import VisibleStream, visible, visible_lines
from kubesched.testing import make_node, make_pod

EVIL = "\x1b]0;owned\x07\x9b2J\r\x1b[1A\u202egnp.exe\x7f"
RAW = set(EVIL) - set("]0;owned2J[1Agnp.exe")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_control_characters_are_written_as_escapes():
    assert visible("a\tb\nc\x1b[0m é…") == "a\\tb\\nc\\x1b[0m é…"
    assert visible_lines("a\tb\nc\x1b\x9b") == "a\tb\nc\\x1b\\u009b"
    assert not RAW & set(visible(EVIL))


@given(st.text())
def test_whatever_is_written_cannot_steer_a_terminal(text):
    out = Terminal()
    VisibleStream(out).write(f"x{text}")
    shown = out.getvalue()
    assert visible_lines(shown.replace("\x1b[", "")) == shown.replace("\x1b[", "")


def test_what_commands_themselves_do_to_a_terminal_still_works():
    out = Terminal()
    stream = VisibleStream(out)
    stream.write("\r\x1b[Kprogress")
    stream.write("\x1b[1mbold\x1b[0m")
    assert out.getvalue() == "\r\x1b[Kprogress\x1b[1mbold\x1b[0m"
    piped = io.StringIO()
    VisibleStream(piped).write("\r\x1b[K\x1b[1m")
    assert piped.getvalue() == "\\r\\x1b[K\x1b[1m"


def test_json_stays_json():
    out = io.StringIO()
    VisibleStream(out).write(json.dumps({"a": EVIL}, ensure_ascii=False))
    assert json.loads(out.getvalue()) == {"a": EVIL}
    assert not RAW & set(out.getvalue())


def test_a_cell_is_one_line(capsys):
    table(["A", "B"], [[f"x\ny{EVIL}", "z"]])
    shown = capsys.readouterr().out
    assert shown.count("\n") == 2
    assert not RAW & set(shown)


@pytest.fixture
def hostile_dump(tmp_path):
    node = make_node("n").capacity(cpu="1").taint(f"t{EVIL}", EVIL).label("zone", EVIL)
    pods = [
        make_pod(f"p{EVIL}").scheduler(f"s{EVIL}"),
        make_pod("q").cpu("64").label("app", EVIL).node_selector(**{f"k{EVIL}": EVIL}),
        make_pod("r").request(f"example.com/{EVIL}", "1").image(EVIL),
    ]
    items = [{"apiVersion": "v1", "kind": "Node", **node.json}]
    items += [{"apiVersion": "v1", "kind": "Pod", **pod.json} for pod in pods]
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(path)


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "pods", "-A"],
        ["explain", "pods", "-A", "-o", "wide", "--fix"],
        ["explain", "pod", "q"],
        ["explain", "pod", "q", "--node", "n"],
        ["explain", "pod", f"p{EVIL}"],
        ["explain", "pod", f"nope{EVIL}"],
        ["explain", "pod", "q", "-o", "json"],
        ["explain", "pod", "q", "-o", "yaml"],
        ["capacity", "--cpu", "1"],
        ["plan", "--drain", f"n{EVIL}"],
        ["plan", "--drain", "n"],
    ],
)
def test_commands_show_hostile_names_as_text(words, hostile_dump, capsys):
    main([*words, "--from", hostile_dump])
    shown = capsys.readouterr()
    printed = shown.out + shown.err
    assert printed
    assert not RAW & set(printed)


@pytest.mark.parametrize("form", Format)
def test_log_lines_show_hostile_names_as_text(form):
    out = io.StringIO()
    logger = logging.getLogger("test_visible")
    logger.propagate = False
    writer = LineWriter(form, errors=out)
    logger.addHandler(writer)
    try:
        log = get_logger("test_visible")
        pod = make_pod(f"p\n{EVIL}").build()
        log.error(EVIL, f"error\n{EVIL}", pod=pod, many=[EVIL], text=EVIL)
        log.warningf("plain %s", EVIL)
        try:
            raise ValueError(EVIL)
        except ValueError:
            log.exception("failed")
    finally:
        logger.removeHandler(writer)
    assert not RAW & set(out.getvalue())
    if form is Format.JSON:
        assert [json.loads(line)["msg"] for line in out.getvalue().splitlines()]
