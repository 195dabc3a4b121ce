"""`kubesched completion`: scripts that complete commands, options, values and pod names.

The scripts call `kubesched completion words WORD...` for candidates. These come from the argparse
tree, so they are always current; pod names come from the cluster. kubectl calls the executables
`kubectl_complete-kubesched` and `kubectl_complete-why`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from kubesched.base.errors import KubeschedError

DESCRIPTION = """\
Print a completion script.

  bash   source <(kubesched completion bash)
  zsh    source <(kubesched completion zsh)
  fish   kubesched completion fish | source

Put the line into your shell's start-up file to have it always.
"""

SCRIPTS = {
    "bash": """\
# bash completion for kubesched
_kubesched() {
    local IFS=$'\\n' current="${COMP_WORDS[COMP_CWORD]}"
    local words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    COMPREPLY=($(kubesched completion words "${words[@]}" 2>/dev/null | cut -f1))
    if [[ ${#COMPREPLY[@]} -eq 0 && "$current" != -* ]]; then
        COMPREPLY=($(compgen -f -- "$current"))
    fi
}
complete -o filenames -F _kubesched kubesched
""",
    "zsh": """\
#compdef kubesched
# zsh completion for kubesched
_kubesched() {
    local -a lines candidates
    lines=(${(f)"$(kubesched completion words "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    candidates=("${(@)${(@)lines//:/\\:}/$'\\t'/:}")
    (( $#lines )) && _describe 'kubesched' candidates || _files
}
compdef _kubesched kubesched
""",
    "fish": """\
# fish completion for kubesched
function __kubesched
    set -l current (commandline -ct)
    set -l found (kubesched completion words (commandline -opc)[2..-1] "$current" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path "$current"
    end
end
complete -c kubesched -f -a '(__kubesched)'
""",
}

TAKES_POD = ["explain", "pod"]
"""The command whose argument is a pod name."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(SCRIPTS), metavar="bash|zsh|fish")


def run_words(words: list[str]) -> int:
    """Runs the command, and the scripts' `completion words WORD...`."""
    if words[:1] == ["words"]:
        for word, text in candidates(words[1:]):
            print(f"{word}\t{text}")
        return 0
    from kubesched.app.cli.main import parse_and_run

    return parse_and_run(sys.modules[__name__], ["completion", *words])


def main(args: argparse.Namespace) -> int:
    sys.stdout.write(SCRIPTS[args.shell])
    return 0


def complete_for_kubectl() -> int:
    """Entry point of `kubectl_complete-kubesched`; completes the last argument."""
    return _tell_kubectl(sys.argv[1:])


def complete_why() -> int:
    """Entry point of `kubectl_complete-why`."""
    return _tell_kubectl(["explain", "pod", *sys.argv[1:]])


def _tell_kubectl(words: Sequence[str]) -> int:
    for word, _text in candidates(words):
        print(word)
    print(":4")  # kubectl's directive not to complete files
    return 0


def candidates(words: Sequence[str]) -> list[tuple[str, str]]:
    """Candidates for the last word, each with a description; none where a file is expected."""
    *before, current = words or [""]
    found = [(word, text) for word, text in _following(before, current) if word.startswith(current)]
    return found if current.startswith("-") else [pair for pair in found if pair[0][0] != "-"]


def _following(words: Sequence[str], current: str) -> Iterator[tuple[str, str]]:
    from kubesched.app.cli.main import COMMANDS, parser_of

    summaries = {command.name: command.summary for command in COMMANDS}
    command = next((word for word in words if word in summaries), None)
    if command is None:
        yield from summaries.items()
        return
    parser: argparse.ArgumentParser = parser_of([command])
    path: list[str] = []
    for word in words:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:
                parser = action.choices[word]
                path.append(word)
                break
    for action in parser._actions:
        if words[-1] in action.option_strings and action.nargs != 0:
            yield from ((str(choice), "") for choice in action.choices or ())
            return
    if path == TAKES_POD and not current.startswith("-"):
        yield from ((name, "") for name in pod_names(words))
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from ((choice.dest, choice.help or "") for choice in action._choices_actions)
        elif not action.option_strings:
            yield from ((str(choice), "") for choice in action.choices or ())
        elif action.help != argparse.SUPPRESS:
            text = parser._get_formatter()._expand_help(action) if action.help else ""
            yield from ((flag, " ".join(text.split())) for flag in action.option_strings)


# -- pods ------------------------------------------------------------------------------------------

DEADLINE_S = 2.0
MOST_NAMES = 500


def pod_names(words: Sequence[str]) -> list[str]:
    """Pod names that may follow words such as `explain pod -n web`; none if unavailable."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("-n", "--namespace", default="")
    parser.add_argument("--kubeconfig", default="")
    parser.add_argument("--context", default="")
    try:
        args, rest = parser.parse_known_args(list(words))
    except argparse.ArgumentError:
        return []  # an option without its value
    if any(word == "--from" or word.startswith("--from=") for word in rest):
        return []
    from kubesched.app.event_loop import run

    try:
        return run(_list(args.kubeconfig, args.context, args.namespace))
    except (KubeschedError, OSError, TimeoutError):
        return []


async def _list(kubeconfig: str, context: str, namespace: str) -> list[str]:
    import asyncio

    from kubesched.api.core_v1 import Pod
    from kubesched.insight.state.live import live_client

    async with (
        asyncio.timeout(DEADLINE_S),
        live_client("completion", kubeconfig, context) as (client, config),
    ):
        page = await client.list_page(
            Pod,
            namespace or config.namespace,
            field_selector="status.phase!=Succeeded,status.phase!=Failed",
            limit=MOST_NAMES,
        )
    return sorted(pod.metadata.name for pod in page.items)
