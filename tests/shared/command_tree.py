"""The commands of a parser, with the words that lead to each and what may follow."""

import argparse
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    words: tuple[str, ...]
    subcommands: dict[str, argparse.ArgumentParser]
    flags: set[str]


def walk(parser, words=()):
    """Every command below a parser, itself first."""
    subcommands, flags = {}, set()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            subcommands |= action.choices
        elif action.help != argparse.SUPPRESS:
            flags |= set(action.option_strings)
    yield Command(words, subcommands, flags)
    for name, sub in subcommands.items():
        yield from walk(sub, (*words, name))
