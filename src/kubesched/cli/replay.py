"""`kubesched replay`: play a recording and compare its decisions with the logged ones."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from kubesched.cli.parsing import Subparsers

if TYPE_CHECKING:
    from kubesched.recording.reader import Run

_DESCRIPTION = """\
Play what 'kubesched run --record DIR' has recorded: the scheduler gets the same inputs in the same
order, in virtual time, and every decision is compared with the logged one.

A decision that comes out differently is a defect of kubesched, or of a plugin that reads something
outside of the scheduler. The first one is explained, and the exit code is 1.
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "replay", help="play a recording and compare its decisions", description=_DESCRIPTION
    )
    parser.add_argument("recording", metavar="DIR", help="the folder of the recording")
    parser.add_argument(
        "--verify", action="store_true", required=True, help="compare every decision"
    )


def main(args: argparse.Namespace) -> int:
    from kubesched.recording.reader import RecordingReader

    reader = RecordingReader.of_folder(args.recording)
    for name in reader.unreadable:
        print(f"note: {name} broke off before anything was recorded in it", file=sys.stderr)
    complete = [run for run in reader.runs() if run.is_complete]
    for run in reader.runs():
        if not run.is_complete:
            print(
                f"note: {_name(run)}: its beginning was deleted to stay within the limit, it cannot be played",
                file=sys.stderr,
            )
    same = [_verify(run) for run in complete]
    return 0 if same and all(same) else 1


def _verify(run: Run) -> bool:
    from kubesched.app.replaying import play

    began = time.monotonic()
    played = play(run)
    took_s = time.monotonic() - began
    counted = f"{played.decisions} decisions of {played.attempts} attempts"
    if played.difference:
        print(f"{_name(run)}: {counted} played, then a difference:\n  {played.difference}")
        return False
    print(f"{_name(run)}: {counted} played in {took_s:.1f} s, all as logged")
    torn_at = run.segments[-1].torn_at
    if torn_at is not None:
        print(f"note: {run.segments[-1].name} breaks off at byte {torn_at}", file=sys.stderr)
    return True


def _name(run: Run) -> str:
    from kubesched.api.times import format_time

    first, last = run.segments[0].header, run.segments[-1].header
    numbers = f"segment {first.number}"
    if last.number != first.number:
        numbers = f"segments {first.number} to {last.number}"
    return f"run of {format_time(first.wall_time)} ({numbers})"
