"""Options of commands as tables: one row each, as `--help` shows them.

    add_options(parser, '''
    --drain NODE|SELECTOR {*}  cordon these nodes and evict their pods, as kubectl drain does
    --seed N {number=0}        seed of the choice among nodes with equal scores
    --force                    evict pods without a controller, too: they are lost
    name NAME {?}              a word without dashes is an argument; its attribute comes first
    ''')

A row has the names, the value's placeholder, its rules in braces, two spaces, and the help;
indented lines continue the help. Without a placeholder it is a switch. The rules: a type's name, or
choices `a|b|c` with the first as the default (`|b|c`: no default); `*` for a repeatable option;
`*`, `+` or `?` for the number of arguments; `!` for a required option; `=default`. Default and
repetition are added to the help.
"""

from __future__ import annotations

import argparse
import keyword
import re
from collections.abc import Callable, Iterator
from typing import Any

from kubesched.app.cli.parsing import ip_address, number, port_number, positive

_ROW = re.compile(
    r"(?P<names>(?:-[\w-]+(?:, )?)+|\w+)(?: (?P<value>[^\s{]\S*))?(?: \{(?P<rules>.*)\})?"
)
_RULES = re.compile(r"(?P<kind>[\w|.-]*)(?P<flags>[*+?!]*)(?:=(?P<default>.*))?")
_PLAIN: dict[str, type] = {"": str, "int": int, "float": float}
_TYPES: dict[str, Callable[[str], object]] = {
    "number": number,
    "positive": positive,
    "port": port_number,
    "ip": ip_address,
}


def add_options(
    parser: argparse._ActionsContainer, table: str, **types: Callable[[str], object]
) -> None:
    """Add the options of a table; `types` extends the common types for its rules."""
    for left, text in _rows(table):
        row = _ROW.fullmatch(left)
        assert row is not None, f"not a row of options: {left}"
        names = row["names"].split(", ")
        if row["value"] is None:
            parser.add_argument(*names, action="store_true", help=text)
            continue
        is_option = names[0].startswith("-")
        settings = _settings(row["rules"] or "", text, {**_TYPES, **types}, is_option=is_option)
        longest = max(names, key=len).lstrip("-").replace("-", "_")
        if is_option and keyword.iskeyword(longest):
            settings["dest"] = f"{longest}_"
        parser.add_argument(*names, metavar=row["value"], **settings)


def _rows(table: str) -> Iterator[tuple[str, str]]:
    """Names with rules, and the help."""
    for line in re.sub(r"\n +", " ", table).splitlines():
        if line:
            left, _, text = line.partition("  ")
            yield left, text.strip()


def _settings(
    rules: str, text: str, types: dict[str, Callable[[str], object]], *, is_option: bool
) -> dict[str, Any]:
    parts = _RULES.fullmatch(rules)
    assert parts is not None, f"not the rules of an option: {rules}"
    kind, flags, default = parts["kind"], parts["flags"], parts["default"]
    settings: dict[str, Any] = {}
    if "|" in kind:
        first, *others = kind.split("|")
        settings |= {"choices": [first, *others] if first else others, "default": first or None}
    else:
        settings["type"] = _PLAIN.get(kind) or _telling(types[kind])
    if default is not None:
        settings["default"] = settings["type"](default)
    if "!" in flags:
        settings["required"] = True
    if "*" in flags and is_option:
        settings |= {"action": "append", "default": []}
        text += "; may be repeated"
    elif flags.strip("!"):
        settings["nargs"] = flags.strip("!")
    shown = default or ("*" not in flags and settings.get("default"))
    if shown and "(default" not in text:
        text += f" (default: {shown})"
    return {**settings, "help": text}


def _telling(convert: Callable[[str], object]) -> Callable[[str], object]:
    """The same function, except that argparse shows the text of a ValueError."""

    def converted(text: str) -> object:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return converted


def add_output(parser: argparse.ArgumentParser, *choices: str) -> None:
    """The `-o` option; the first choice is the default."""
    text = f"{', '.join(choices[:-1])} or {choices[-1]}"
    add_options(parser, f"-o, --output FORMAT {{{'|'.join(choices)}}}  {text}")


def add_page_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the page's address."""
    add_options(parser, _PAGE)


_PAGE = """
--page-port PORT {port=0}        port of the page (default: any free one)
--page-address IP {ip=127.0.0.1}  address the page listens on (default: 127.0.0.1); others can then
    reach it, without TLS
"""
