"""The entry point: finds the command, loads its module, and reports every error.

`kubesched --help` must stay fast, so this module imports no heavy module but argparse, and has only
the name, group and summary of each command.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TextIO, cast

from kubesched.app.cli.parsing import EXIT_USAGE, Parser, did_you_mean, usage_error
from kubesched.base.errors import ConfigError, KubeschedError, without_groups
from kubesched.base.visible import VisibleStream

EXIT_FAILURE = 1
EXIT_BUG = 70  # EX_SOFTWARE
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


@dataclass(frozen=True, slots=True)
class Command:
    """A row of the command table; the module is `kubesched.app.cli.<name>`."""

    name: str
    group: str
    summary: str

    @property
    def module(self) -> str:
        return f"kubesched.app.cli.{self.name}"


_RUN = "Schedule"
_INSPECT = "Understand"
_PROVE = "Measure and prove"
_OTHER = "Other"

COMMANDS = (
    Command("run", _RUN, "run the scheduler against a cluster; takes kube-scheduler's flags"),
    Command("up", _RUN, "start a playground: API server, nodes and scheduler in one process"),
    Command("config", _INSPECT, "show and check scheduler configurations"),
    Command("explain", _INSPECT, "say why a pod is pending, or why it is where it is"),
    Command("plan", _INSPECT, "show what would happen if: apply, drain, add nodes, reconfigure"),
    Command("capacity", _INSPECT, "count how many more replicas fit, and say what stops the next"),
    Command("replay", _INSPECT, "compare configurations on a recording or a trace"),
    Command("page", _INSPECT, "look at a cluster, a dump or a recording in the browser"),
    Command("snapshot", _INSPECT, "save what scheduling reads of a cluster, to look at elsewhere"),
    Command("shadow", _PROVE, "compare decisions with a candidate's, without acting on them"),
    Command("plugin", _PROVE, "make, list and check plugins of your own"),
    Command("conformance", _PROVE, "compare decisions with those of kube-scheduler"),
    Command("simulate", _PROVE, "look for defects: virtual time, with faults from a seed"),
    Command("bench", _PROVE, "measure throughput and latency"),
    Command("version", _OTHER, "print versions"),
    Command("completion", _OTHER, "print a completion script for bash, zsh or fish"),
)

_OVERVIEW = """\
usage: kubesched [--debug] COMMAND ...

A Kubernetes scheduler: kube-scheduler's decisions, your own plugins, and a playground cluster.

{commands}
Options:
  -h, --help     show this help; after a command, show that command's
  --version      print versions
  --debug        show where in the program an error arose

'kubesched COMMAND --help' tells more about a command.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line and returns the exit code; no exception escapes."""
    return run_process(sys.argv[1:]) if argv is None else _run(list(argv))


def run_process(words: list[str]) -> int:
    """Run the words as this process's command line, with signal handling."""
    from kubesched.app.cli.interruption import EXIT_TERMINATED, INTERRUPTION

    INTERRUPTION.install()
    code = _run(words)
    is_terminated = code == EXIT_INTERRUPTED and INTERRUPTION.is_terminated
    return EXIT_TERMINATED if is_terminated else code


def _run(words: list[str]) -> int:
    debug = "--debug" in words[: _command_position(words)]
    streams = sys.stdout, sys.stderr
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names may exceed the locale's encoding
    sys.stdout, sys.stderr = (cast("TextIO", VisibleStream(stream)) for stream in streams)
    try:
        return _run_visibly(words, debug=debug)
    finally:
        sys.stdout, sys.stderr = streams


def _run_visibly(words: list[str], *, debug: bool) -> int:
    try:
        code = _dispatch(words)
        sys.stdout.flush()
    except SystemExit as stop:  # argparse: help was printed, or the usage was wrong
        return stop.code if isinstance(stop.code, int) else EXIT_USAGE
    except KeyboardInterrupt:
        return _interrupted()
    except Exception as error:
        if _is_interrupt(error):
            return _interrupted()
        alone = without_groups(error)
        if isinstance(alone, BrokenPipeError):
            # Buffered output cannot be written either; without this the interpreter reports it at
            # shutdown.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_BROKEN_PIPE
        return _report(alone, debug=debug)
    return code


def _dispatch(words: list[str]) -> int:
    position = _command_position(words)
    options, rest = words[:position], words[position:]
    for option in options:
        if option not in ("--debug", "--version", "-h", "--help"):
            hint = did_you_mean(option, ("--debug", "--version", "--help"))
            return usage_error(f"unknown option {option}{hint}")
    if "--version" in options:
        rest = ["version"]
    if not rest or rest == ["help"] or {"-h", "--help"} & set(options):
        sys.stdout.write(overview())
        return 0
    if rest[0] == "help":
        rest = [*rest[1:], "--help"]
    command = next((command for command in COMMANDS if command.name == rest[0]), None)
    if command is None:
        names = [command.name for command in COMMANDS]
        return usage_error(f'unknown command "{rest[0]}"{did_you_mean(rest[0], names)}')
    module = importlib.import_module(command.module)
    if hasattr(module, "run_words"):  # a command with its own syntax
        exit_code: int = module.run_words(rest[1:])
        return exit_code
    return parse_and_run(module, rest)


def parse_and_run(module: ModuleType, words: list[str]) -> int:
    """Parse the words, starting with the command's name, and run its module."""
    code: int = module.main(parser_of([words[0]]).parse_args(words))
    return code


def _command_position(words: Sequence[str]) -> int:
    """Index of the first word that is not an option of `kubesched` itself."""
    return next((i for i, word in enumerate(words) if not word.startswith("-")), len(words))


def parser_of(names: Iterable[str] | None = None) -> Parser:
    """The parser of these commands; that of all is slow to build, for documentation and tests."""
    parser = Parser(prog="kubesched", add_help=False)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        if names is None or command.name in names:
            module = importlib.import_module(command.module)
            own = subparsers.add_parser(
                command.name,
                help=command.summary,
                description=module.DESCRIPTION,
                add_help=command.name != "run",  # its flags include --help
            )
            module.add_arguments(own)
    return parser


def overview() -> str:
    """The text of `kubesched --help`."""
    lines: list[str] = []
    for group in (_RUN, _INSPECT, _PROVE, _OTHER):
        members = [command for command in COMMANDS if command.group == group]
        if members:
            lines += [
                f"{group}:",
                *(f"  {command.name:<13}{command.summary}" for command in members),
                "",
            ]
    return _OVERVIEW.format(commands="\n".join(lines))


def _report(error: Exception, *, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, ConfigError) and len(error.problems) > 1:
        from kubesched.app.cli.terminal import problem_line

        lines = "\n".join(f"  {problem_line(problem, error.source)}" for problem in error.problems)
        sys.stderr.write(f"error: {len(error.problems)} problems\n{lines}\n")
        return EXIT_FAILURE
    if isinstance(error, KubeschedError):
        sys.stderr.write(f"error: {error}\n")
        return EXIT_FAILURE
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"error: {where}{error.strerror or error}\n")
        return EXIT_FAILURE
    hint = "" if debug else "; 'kubesched --debug ...' shows where"
    sys.stderr.write(f"error: internal error: {type(error).__name__}: {error}{hint}\n")
    return EXIT_BUG


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused another exception, as when it interrupts the creation of a class."""
    return error is not None and (
        isinstance(error, KeyboardInterrupt) or _is_interrupt(error.__cause__)
    )


def _interrupted() -> int:
    sys.stderr.write("interrupted\n")
    return EXIT_INTERRUPTED
