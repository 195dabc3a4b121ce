"""Commands in the documentation's console blocks: ours are understood by the parser as they are written there.

Commands of other programs are not executed here; `NOT_EXECUTED` says why, program by program, and a program that it does
not name fails the test.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubesched.cli import main as cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *ROOT.glob("examples/**/*.md")]

NOT_EXECUTED = {
    "kubectl": "is not ours, and needs a cluster that is up",
    "helm": "is not ours; tests/unit/deploy renders the chart",
    "podman": "builds an image from a registry",
    "pip": "installs from an index",
    "curl": "talks to a running scheduler",
    "python": "starts an example server, which tests/unit/examples imports",
    "cat": "shows a file that the page prints",
    "export": "sets a variable for what follows",
    "scripts/test": "is what runs this test",
    "scripts/playground": "sets up an environment of its own and starts a cluster",
}
"""Programs of console blocks that no test of this module runs, and why."""


def _commands() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL):
            joined = re.sub(r"\\\n(?:> )?\s*", " ", block)
            for line in re.findall(r"^\s*\$ (.+)$", joined, re.MULTILINE):
                yield str(page.relative_to(ROOT)), line


def _words(line: str) -> list[str]:
    """The words of the first command of a line, without variables before it and redirections after it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if word[0] in "|;&<>":
            break
        words.append(word)
    if words[-1].isdigit() and re.search(rf"\s{words[-1]}[<>]", line):
        words.pop()  # of a redirection
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words.pop(0)
    return words


OURS = [(page, line) for page, line in _commands() if _words(line)[0] == "kubesched"]


def test_there_are_console_blocks() -> None:
    assert len(OURS) > 10


def test_no_program_escapes() -> None:
    programs = {_words(line)[0] for _page, line in _commands()} - {"kubesched"}
    assert programs == set(NOT_EXECUTED)


@pytest.mark.parametrize(("page", "line"), OURS)
def test_a_command_of_ours_is_understood(page: str, line: str) -> None:
    exits: list[object] = []
    try:
        cli.full_parser().parse_args(_words(line)[1:])
    except SystemExit as stop:
        exits.append(stop.code)
    assert exits in ([], [0]), f"{page}: {line}"
