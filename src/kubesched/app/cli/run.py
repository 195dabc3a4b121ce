"""`kubesched run`: the scheduler, with kube-scheduler's flags.

The flags have Go's syntax (`kubesched.app.flag_parsing`), so this command reads its words itself;
argparse only renders the help and feeds the completion scripts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from kubesched.app.cli.interruption import signals_held
from kubesched.app.cli.parsing import HelpFormatter, did_you_mean

DESCRIPTION = """\
Run the scheduler against a cluster, in kube-scheduler's place or beside it.

Takes kube-scheduler's flags and its configuration file. Without --config, --kubeconfig or --master
it expects to run in a pod and uses the pod's service account.
"""

EXIT_FAILURE = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_flags(parser)


def run_words(words: Sequence[str]) -> int:
    """Run with the words after `kubesched run`."""
    from kubesched.app import flag_parsing

    try:
        line = flag_parsing.parse(words)
    except flag_parsing.UnexpectedWords as error:
        sys.stderr.write(f"Error: {error}\n")
        return EXIT_FAILURE
    except flag_parsing.FlagError as error:
        sys.stderr.write(f"{_help_text()}\nError: {error}{_suggestion(str(error))}\n")
        return EXIT_FAILURE
    if line.options.help:
        sys.stdout.write(_help_text())
        return 0
    if line.options.version != "false":
        return _print_version(line.options.reference_version)
    with signals_held():
        from kubesched.app.run import run

        return run(line)


def _suggestion(message: str) -> str:
    from kubesched.app.flags import all_flags

    _, is_unknown, name = message.partition("unknown flag: ")
    known = [f"--{flag}" for flag in all_flags()]
    return did_you_mean(name, known) if is_unknown else ""


def _help_text() -> str:
    parser = argparse.ArgumentParser(
        prog="kubesched run",
        usage="kubesched run [flags]",
        description=DESCRIPTION,
        formatter_class=HelpFormatter,
        add_help=False,
    )
    _add_flags(parser)
    return parser.format_help()


def _add_flags(parser: argparse.ArgumentParser) -> None:
    from kubesched.app.flags import all_flags

    groups: dict[str, argparse._ArgumentGroup] = {}
    for flag in all_flags().values():
        if flag.group not in groups:
            groups[flag.group] = parser.add_argument_group(f"{flag.group} flags")
        shown = flag.type.show(flag.default)
        is_plain = shown in ("", "false", "[]", "0") or flag.type.bare is not None
        default = "" if is_plain and shown != "true" else f" (default: {shown})"
        spellings = [f"-{flag.shorthand}"] if flag.shorthand else []
        names = dict.fromkeys([*spellings, f"--{flag.name}"])
        text = f"{flag.help}{default}".replace("%", "%%")
        if flag.type.bare is not None:
            groups[flag.group].add_argument(*names, action="store_true", help=text)
        else:
            groups[flag.group].add_argument(*names, metavar=flag.type.name, help=text)


def _print_version(reference_version: str) -> int:
    from kubesched.base.version import __version__
    from kubesched.config.references import DEFAULT_REFERENCE, REFERENCES

    # Scripts written for kube-scheduler parse the first word and the number.
    reference = REFERENCES.get(reference_version, DEFAULT_REFERENCE)
    print(f"Kubernetes v{reference.release} (kubesched {__version__})")
    return 0
