"""Parsers, argument types and options shared by all commands."""

from __future__ import annotations

import argparse
import ipaddress
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Subparsers = argparse._SubParsersAction


EXIT_USAGE = 2


def usage_error(message: str, program: str = "kubesched") -> int:
    """Prints a usage error; returns the exit code."""
    sys.stderr.write(f"error: {message}\nsee '{program} --help'\n")
    return EXIT_USAGE


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps descriptions and epilogs as written, with options in a wide column."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)


class Parser(argparse.ArgumentParser):
    """Exact option names, short error messages."""

    def __init__(self, **settings: object) -> None:
        settings.setdefault("allow_abbrev", False)
        settings.setdefault("formatter_class", HelpFormatter)
        super().__init__(**settings)  # type: ignore[arg-type]  # passed through as given

    def parse_known_args(  # type: ignore[override]  # one signature of several
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse, but reports leftover words as errors of this command, not the first."""
        parsed, extras = super().parse_known_args(args, namespace)
        if extras and extras[0].startswith("-"):
            known = [name for name in self._option_string_actions if name.startswith("--")]
            name = extras[0].partition("=")[0]
            self.error(f"unknown option {name}{did_you_mean(name, known)}")
        if extras:
            self.error(f"unrecognized arguments: {' '.join(extras)}")
        return parsed, extras

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            hint = did_you_mean(str(value), list(action.choices))
            listed = ", ".join(action.choices)
            raise argparse.ArgumentError(action, f"unknown: {value!r}{hint} (one of {listed})")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        raise SystemExit(usage_error(message, self.prog))


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown word: the nearest known one, if any."""
    from difflib import get_close_matches

    by_name = {name.lstrip("-"): name for name in known}
    close = get_close_matches(word.lstrip("-"), by_name, n=1, cutoff=0.55)  # --fiks for --fix
    return f'; did you mean "{by_name[close[0]]}"?' if close else ""


def number(text: str) -> int:
    """Argument type: a number of ASCII digits."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return int(text)


def positive(text: str) -> int:
    """Argument type: a number of at least 1."""
    value = number(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return value


def number_up_to(text: str, highest: int) -> int:
    """A whole number from 0 to `highest`, for argparse."""
    if not (text.isascii() and text.isdecimal() and int(text) <= highest):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {highest}")
    return int(text)


def port_number(text: str) -> int:
    return number_up_to(text, 65535)


def ip_address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an IP address") from None
