"""`kubesched completion`: scripts that complete commands, options and their values.

The scripts are generated from the argparse tree, so they cannot fall behind it. Where a pod's name comes next they ask
`kubesched completion pods WORD...`, which asks the cluster. kubectl completes `kubectl kubesched ...` through the
executable `kubectl_complete-kubesched` (`complete_for_kubectl`).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from kubesched.cli.parsing import Subparsers

_DESCRIPTION = """\
Print a completion script.

  bash   source <(kubesched completion bash)
  zsh    source <(kubesched completion zsh)
  fish   kubesched completion fish | source

Put the line into your shell's start-up file to have it always.
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "completion", help="print a completion script", description=_DESCRIPTION
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="bash|zsh|fish")


def run_words(words: list[str]) -> int:
    """The command, and what the scripts call: `completion pods WORD...`."""
    if words[:1] == ["pods"]:
        from kubesched.cli.pod_names import pod_names

        sys.stdout.write("".join(f"{name}\n" for name in pod_names(words[1:])))
        return 0
    from kubesched.cli.main import new_parser

    parser, subparsers = new_parser()
    add_parser(subparsers)
    return main(parser.parse_args(["completion", *words]))


def complete_for_kubectl() -> int:
    """Entry point of `kubectl_complete-kubesched`: the words so far are arguments, the last one is to be completed."""
    from kubesched.cli.main import full_parser

    *words, current = sys.argv[1:] or [""]
    for candidate in candidates(list(walk(full_parser())), words):
        if candidate.startswith(current):
            print(candidate)
    print(":4")  # kubectl's directive not to complete files
    return 0


def candidates(nodes: list[CommandNode], words: list[str]) -> list[str]:
    """What may follow the words."""
    by_words = {node.words: node for node in nodes}
    path: tuple[str, ...] = ()
    for word in words:
        if (*path, word) in by_words:
            path = (*path, word)
    node = by_words[path]
    for option in node.options:
        if words and words[-1] in option.flags and option.takes_value:
            return list(option.choices)
    if node.path in TAKES_POD:
        from kubesched.cli.pod_names import pod_names

        return [*pod_names(words), *_words(node)]
    return _words(node)


def main(args: argparse.Namespace) -> int:
    from kubesched.cli.main import full_parser

    nodes = list(walk(full_parser()))
    write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell]
    sys.stdout.write(write(nodes))
    return 0


TAKES_POD = frozenset({"explain pod"})
"""Commands whose argument is a pod's name."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option: its spellings, what it is for, and what may follow it."""

    flags: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CommandNode:
    """A command, by the words that lead to it, and what may come next."""

    words: tuple[str, ...]
    subcommands: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]
    choices: tuple[str, ...]  # of its positional argument

    @property
    def path(self) -> str:
        return " ".join(self.words)


def walk(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[CommandNode]:
    """Every command below a parser, itself first."""
    subcommands: list[tuple[str, str]] = []
    parsers: dict[str, argparse.ArgumentParser] = {}
    options: list[Option] = []
    positional: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            parsers |= action.choices
            subcommands += [(choice.dest, choice.help or "") for choice in action._choices_actions]
        elif action.option_strings:
            if action.help != argparse.SUPPRESS:
                options.append(_option(parser, action))
        else:
            positional += [str(choice) for choice in action.choices or ()]
    yield CommandNode(words, tuple(subcommands), tuple(options), tuple(positional))
    for name, sub in parsers.items():
        yield from walk(sub, (*words, name))


def _option(parser: argparse.ArgumentParser, action: argparse.Action) -> Option:
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    return Option(
        tuple(action.option_strings),
        " ".join(text.split()),
        action.nargs != 0,
        tuple(str(choice) for choice in action.choices or ()),
    )


# -- bash -----------------------------------------------------------------------------------------

_BASH = """\
# bash completion for kubesched
_kubesched() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
    local path="" words="" values="" word i
    for ((i = 1; i < COMP_CWORD; i++)); do
        word="${{COMP_WORDS[i]}}"
        case "${{path:+$path }}$word" in
{paths}
        esac
    done
    case "$path $previous" in
{values}
    esac
    if [[ -n "$values" ]]; then
        COMPREPLY=($(compgen -W "$values" -- "$current"))
        return
    fi
    case "$path" in
{words}
    esac
    case "$path $current" in
{pods}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    if [[ ${{#COMPREPLY[@]}} -eq 0 && "$current" != -* ]]; then
        COMPREPLY=($(compgen -f -- "$current"))
    fi
}}
complete -o filenames -F _kubesched kubesched
"""


def _bash(nodes: list[CommandNode]) -> str:
    paths = [f'            "{node.path}") path="{node.path}" ;;' for node in nodes if node.words]
    values = []
    for node in nodes:
        for option in node.options:
            for flag in option.flags if option.choices else ():
                choices = " ".join(option.choices)
                values.append(f'        "{node.path} {flag}") values="{choices}" ;;')
    words = [f'        "{node.path}") words="{" ".join(_words(node))}" ;;' for node in nodes]
    pods = [
        f"""        "{path} -"*) ;;
        "{path} "*) words+=" $(kubesched completion pods "${{COMP_WORDS[@]:1:COMP_CWORD-1}}" 2>/dev/null)" ;;"""
        for path in sorted(TAKES_POD)
    ]
    return _BASH.format(
        paths="\n".join(paths),
        values="\n".join(values) or "        *) ;;",
        words="\n".join(words),
        pods="\n".join(pods),
    )


def _words(node: CommandNode) -> list[str]:
    options = [flag for option in node.options for flag in option.flags]
    return [*(name for name, _ in node.subcommands), *node.choices, *options]


# -- zsh ------------------------------------------------------------------------------------------

_ZSH = """\
#compdef kubesched
# zsh completion for kubesched
_kubesched() {{
    local word command_path="" i
    local -a candidates
    for ((i = 2; i < CURRENT; i++)); do
        word="${{words[i]}}"
        case "${{command_path:+$command_path }}$word" in
{paths}
        esac
    done
    case "$command_path ${{words[CURRENT-1]}}" in
{values}
    esac
    case "$command_path" in
{words}
    esac
    case "$command_path" in
{pods}
    esac
    _describe 'kubesched' candidates
    _files
}}
compdef _kubesched kubesched
"""


def _zsh(nodes: list[CommandNode]) -> str:
    paths = [
        f'            "{node.path}") command_path="{node.path}" ;;' for node in nodes if node.words
    ]
    values = []
    for node in nodes:
        for option in node.options:
            for flag in option.flags if option.choices else ():
                choices = " ".join(option.choices)
                values.append(f'        "{node.path} {flag}") compadd -- {choices}; return ;;')
    words = []
    for node in nodes:
        listed = " ".join(_quoted(f"{name}:{text}") for name, text in _described(node))
        words.append(f'        "{node.path}") candidates=({listed}) ;;')
    pods = [
        f"""        "{path}") candidates+=(${{(f)"$(kubesched completion pods ${{words[2,CURRENT-1]}} 2>/dev/null)"}}) ;;"""
        for path in sorted(TAKES_POD)
    ]
    return _ZSH.format(
        paths="\n".join(paths),
        values="\n".join(values) or "        *) ;;",
        words="\n".join(words),
        pods="\n".join(pods),
    )


def _described(node: CommandNode) -> Iterator[tuple[str, str]]:
    yield from node.subcommands
    yield from ((choice, choice) for choice in node.choices)
    for option in node.options:
        yield from ((flag, option.help.replace(":", r"\:")) for flag in option.flags)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# -- fish -----------------------------------------------------------------------------------------

_FISH = """\
# fish completion for kubesched
function __kubesched_at
    set -l words (commandline -opc)
    set -l path
    for word in $words[2..-1]
        switch "$path $word"
            case {paths}
                set path (string trim -- "$path $word")
        end
    end
    test "$path" = "$argv[1]"
end
complete -c kubesched -f
{lines}
"""


def _fish(nodes: list[CommandNode]) -> str:
    paths = " ".join(_quoted(f"{' '.join(n.words[:-1])} {n.words[-1]}") for n in nodes if n.words)
    lines = []
    for node in nodes:
        at = f"complete -c kubesched -n {_quoted(f'__kubesched_at {_quoted_path(node)}')}"
        lines += [f"{at} -a {name} -d {_quoted(text)}" for name, text in node.subcommands]
        lines += [f"{at} -a {choice}" for choice in node.choices]
        lines += [f"{at} {_fish_option(option)}" for option in node.options]
        if node.path in TAKES_POD:
            ask = "(kubesched completion pods (commandline -opc)[2..-1] 2>/dev/null)"
            lines.append(f"{at} -a {_quoted(ask)}")
        elif not node.subcommands and not node.choices:
            lines.append(f"{at} -F")
    return _FISH.format(paths=paths, lines="\n".join(lines))


def _quoted_path(node: CommandNode) -> str:
    return f'"{node.path}"'


def _fish_option(option: Option) -> str:
    parts = []
    for flag in option.flags:
        name = re.sub("^-+", "", flag)
        parts.append(f"-l {name}" if flag.startswith("--") else f"-s {name}")
    if option.choices:
        parts.append(f"-x -a {_quoted(' '.join(option.choices))}")
    elif option.takes_value:
        parts.append("-r")
    return f"{' '.join(parts)} -d {_quoted(option.help)}"
