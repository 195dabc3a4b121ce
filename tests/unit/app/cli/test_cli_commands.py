"""Every command is in the table, can be loaded and is documented: the checklist in
CONTRIBUTING.md.
"""

from __future__ import annotations

import importlib
import itertools
import re
from pathlib import Path

from command_tree import walk

from kubesched.app.cli import main as cli

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "cli.md"
WITHOUT_VERB = {"shadow"}
"""Commands that have subcommands and do something without one."""


def test_every_command_of_the_table_can_be_loaded():
    for command in cli.COMMANDS:
        module = importlib.import_module(command.module)
        assert callable(module.add_arguments)
        assert module.DESCRIPTION
        assert callable(getattr(module, "run_words", None) or module.main)


def test_every_module_of_a_command_is_in_the_table():
    modules = {
        path.stem
        for path in Path(cli.__file__).parent.glob("*.py")
        if re.search(r"^def (add_arguments|add_parser)\(", path.read_text(), re.MULTILINE)
    }
    # The module of a subcommand is named after its command: `bench_run`.
    commands = {name for name in modules if name.partition("_")[0] not in modules - {name}}
    assert commands == {command.name for command in cli.COMMANDS}


def test_every_command_and_subcommand_is_documented():
    nodes = list(walk(cli.parser_of()))
    commands = {" ".join(node.words) for node in nodes if not node.subcommands} | WITHOUT_VERB
    documented = {
        name
        for row in re.findall(r"^\| (`.*?`) \|", PAGE.read_text(), re.MULTILINE)
        for text in re.findall(r"`(.+?)`", row)
        if not text.startswith("-")
        for name in alternatives(text.removeprefix("kubesched "))
    }
    assert {
        name for name in commands if not any(covers(text, name) for text in documented)
    } == set()
    assert {
        text for text in documented if not any(covers(text, name) for name in commands)
    } == set()


def covers(text, command):
    return f"{text} ".startswith(f"{command} ")


def alternatives(text):
    """`bench list\\|run -o F` stands for `bench list` and `bench run`."""
    words = itertools.takewhile(re.compile(r"[a-z\\|]+$").match, text.split())
    return {
        " ".join(chosen) for chosen in itertools.product(*(word.split("\\|") for word in words))
    }
