"""How our argparse parsers look: shared by all commands."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction["Parser"]
else:
    Subparsers = argparse._SubParsersAction


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Descriptions and epilogs as written, options in a wide column."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)


class Parser(argparse.ArgumentParser):
    """Exact option names, short error messages."""

    def __init__(self, **settings: object) -> None:
        settings.setdefault("allow_abbrev", False)
        settings.setdefault("formatter_class", HelpFormatter)
        super().__init__(**settings)  # type: ignore[arg-type]  # passed through as given

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"error: {message}\nsee '{self.prog} --help'\n")
        raise SystemExit(2)


def add_output(parser: argparse.ArgumentParser, *choices: str) -> None:
    """The `-o` option; the first choice is the default."""
    parser.add_argument(
        "-o",
        "--output",
        choices=choices,
        default=choices[0],
        metavar="FORMAT",
        help=f"{', '.join(choices[:-1])} or {choices[-1]} (default: {choices[0]})",
    )


def add_feature_gates(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--feature-gates",
        default="",
        metavar="A=true,...",
        help="feature gates to assume; they change defaults and what is allowed",
    )
