"""The options that say which state a command looks at, and loading it.

Every command that takes a state calls `add_state_source` on its parser and `load_state` on the parsed arguments.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING

_NEGATIVE = re.compile(r"^-\d")

if TYPE_CHECKING:
    from kubesched.recording.reader import RecordingReader
    from kubesched.state.cluster_state import ClusterState
    from kubesched.state.live import Progress


def add_state_source(parser: argparse.ArgumentParser, *, files: bool = True) -> None:
    """Add the group of source options; without `files` only a live cluster can be chosen."""
    group = parser.add_argument_group(
        "state",
        "where the objects come from; without any of these, the cluster that kubectl would talk to",
    )
    group.add_argument("--kubeconfig", default="", metavar="FILE", help="a live cluster: its file")
    group.add_argument(
        "--context", default="", metavar="NAME", help="a live cluster: the context to use"
    )
    if files:
        group.add_argument(
            "--from",
            dest="from_",
            action="append",
            default=[],
            metavar="FILE",
            help="a dump of 'kubectl get ... -o json|yaml' or of 'kubesched snapshot', a directory of them, "
            "or - for standard input; may be repeated",
        )
        parser._negative_number_matcher = _NEGATIVE  # else argparse takes -5m for an option
        group.add_argument(
            "--recording", metavar="DIR", help="a recording of 'kubesched run --record DIR'"
        )
        group.add_argument(
            "--at",
            metavar="T",
            help="with --recording: a time (2026-01-31T12:00:00Z), a time before its end (-5m), or the number of "
            "an attempt of its last run (default: its end)",
        )


def load_state(args: argparse.Namespace) -> ClusterState:
    """The state that the options name. Notes about it go to stderr.

    Raises:
        StateError, CredentialsError, ApiError, TransportError: it cannot be had, and why.
    """
    check_state_source(args)
    dumps: list[str] = getattr(args, "from_", [])
    recording: str | None = getattr(args, "recording", None)
    at: str | None = getattr(args, "at", None)
    if recording is not None:
        state = _recorded(recording, at)
    else:
        state = _dumped(dumps) if dumps else _live(args.kubeconfig, args.context)
    for note in state.notes:
        print(f"note: {note}", file=sys.stderr)
    return state


def check_state_source(args: argparse.Namespace) -> None:
    """End the program if the options name no source, or several."""
    dumps: list[str] = getattr(args, "from_", [])
    recording: str | None = getattr(args, "recording", None)
    if getattr(args, "at", None) is not None and recording is None:
        raise SystemExit(_wrong_usage("--at needs --recording"))
    if bool(dumps) + (recording is not None) + bool(args.kubeconfig or args.context) > 1:
        text = (
            "--from, --recording and --kubeconfig or --context name different sources; choose one"
        )
        raise SystemExit(_wrong_usage(text))


def _dumped(paths: list[str]) -> ClusterState:
    from kubesched.state.dumps import load_dumps

    return load_dumps(paths)


def _recorded(folder: str, at: str | None) -> ClusterState:
    from kubesched.recording.reader import RecordingReader

    reader = RecordingReader.of_folder(folder)
    attempt, wall_time = recorded_time(reader, at)
    return reader.state_at(wall_time=wall_time, attempt=attempt)


def recorded_time(reader: RecordingReader, at: str | None) -> tuple[int | None, float | None]:
    """(number of an attempt, time of day) that --at means; neither is the end of the recording."""
    from kubesched.api.times import parse_duration, parse_time

    if at is None:
        return None, None
    if at.isdecimal():
        return int(at), None
    try:
        if at.startswith("-"):
            return None, reader.end() - parse_duration(at[1:])
        return None, parse_time(at)
    except ValueError as error:
        raise SystemExit(_wrong_usage(f"--at: {error}")) from None


def _live(kubeconfig: str, context: str) -> ClusterState:
    from kubesched.app.event_loop import run
    from kubesched.state.live import load_live

    shown = _ProgressLine()
    try:
        return run(load_live(kubeconfig, context, shown.update))
    finally:
        shown.clear()


class _ProgressLine:
    """One line on a terminal that is rewritten; nothing elsewhere."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()

    def update(self, progress: Progress) -> None:
        if self._is_terminal:
            of = f" of {progress.listed + progress.remaining}" if progress.remaining else ""
            self._write(f"listing {progress.resource}: {progress.listed}{of}")

    def clear(self) -> None:
        if self._is_terminal:
            self._write("")

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def _wrong_usage(message: str) -> int:
    from kubesched.cli.main import usage_error

    return usage_error(message)
