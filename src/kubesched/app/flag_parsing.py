"""Go-style flags: `--flag=value`, `--flag value`, `--switch`, `--switch=false`, `-v=4`, `-v4`.

Underscores may replace hyphens. A flag may be repeated: the last value wins, lists grow. `--` ends
the flags; positional arguments are rejected. Unlike in argparse, a switch never consumes the next
word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kubesched.app.flags import Flag, RunOptions, all_flags, attribute
from kubesched.base.errors import KubeschedError


class FlagError(KubeschedError):
    """The command line cannot be parsed."""


class UnexpectedWords(FlagError):
    """The command line has positional arguments."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Options, and which were given; a flag given with its default value counts as given."""

    options: RunOptions
    given: frozenset[str]


def parse(words: Sequence[str]) -> CommandLine:
    """Parse the words after the command.

    Raises:
        FlagError: with Go's wording.
    """
    reader = _Reader(list(words))
    reader.read()
    if reader.rest and not reader.values.get("help"):
        listed = " ".join(f'"{word}"' for word in reader.rest)
        raise UnexpectedWords(f'"kubesched run" does not take any arguments, got [{listed}]')
    values = {attribute(name): value for name, value in reader.values.items()}
    return CommandLine(RunOptions(**values), frozenset(reader.values))


class _Reader:
    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._flags = all_flags()
        self._by_letter = {flag.shorthand: flag for flag in self._flags.values() if flag.shorthand}
        self.values: dict[str, Any] = {}
        self.rest: list[str] = []

    def read(self) -> None:
        while self._words:
            word = self._words.pop(0)
            if word == "--":
                self.rest += self._words
                return
            if word.startswith("--"):
                self._long(word)
            elif word.startswith("-") and word != "-":
                self._short(word)
            else:
                self.rest.append(word)

    def _long(self, word: str) -> None:
        given, equals, value = word[2:].partition("=")
        if not given or given[0] in "-=":
            raise FlagError(f"bad flag syntax: {word}")
        flag = self._flags.get(given.replace("_", "-"))
        if flag is None:
            raise FlagError(f"unknown flag: --{given}")
        if equals:
            self._set(flag, value)
        elif flag.type.bare is not None:
            self._set(flag, flag.type.bare)
        elif self._words:
            self._set(flag, self._words.pop(0))
        else:
            raise FlagError(f"flag needs an argument: --{given}")

    def _short(self, word: str) -> None:
        """Letters may be bundled; the first that takes a value consumes the rest of the word."""
        letters = word[1:]
        while letters:
            flag = self._by_letter.get(letters[0])
            if flag is None:
                raise FlagError(f"unknown shorthand flag: '{letters[0]}' in {word}")
            letter, letters = letters[0], letters[1:]
            if letters.startswith("="):
                self._set(flag, letters[1:])
                return
            if flag.type.bare is not None:
                self._set(flag, flag.type.bare)
                continue
            if not letters and not self._words:
                raise FlagError(f"flag needs an argument: '{letter}' in {word}")
            self._set(flag, letters or self._words.pop(0))
            return

    def _set(self, flag: Flag, text: str) -> None:
        try:
            self.values[flag.name] = flag.type.parse(text, self.values.get(flag.name))
        except ValueError as error:
            shown = f"-{flag.shorthand}, --{flag.name}" if flag.shorthand else f"--{flag.name}"
            raise FlagError(f'invalid argument "{text}" for "{shown}" flag: {error}') from None
