"""`kubesched replay --verify`: compare every decision of a recording with the logged one."""

from __future__ import annotations

import sys
import time

from kubesched.api.times import format_time
from kubesched.insight.recording.reader import RecordingReader, Run
from kubesched.lab.traces.log_player import play


def verify(recording: str) -> int:
    """Replay every run as far as possible; 1 if a decision differs or nothing can be replayed."""
    reader = RecordingReader.of_folder(recording)
    for note in reader.notes:
        print(f"note: {note}", file=sys.stderr)
    same: list[bool] = []
    for run in reader.runs():
        part = run.playable()
        if part is None or len(part.segments) < len(run.segments):
            print(f"note: {_name(run)}: {_not_playable(run, part)}", file=sys.stderr)
        if part is not None:
            same.append(_verify(part))
    return 0 if same and all(same) else 1


def _not_playable(run: Run, part: Run | None) -> str:
    first = run.segments[0].header.attempts + 1
    which = f"attempts from {first} on are" if part is None else _attempts(first, part)
    return (
        f"{which} not playable: what was before was deleted to stay within the limit, and the "
        "state of the scheduler is not in the checkpoint, because something was under way then"
    )


def _attempts(first: int, part: Run) -> str:
    last = part.segments[0].header.attempts
    if last < first:
        return f"the log before attempt {first} is"
    return f"attempts {first} to {last} are"


def _verify(run: Run) -> bool:
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
    first, last = run.segments[0].header, run.segments[-1].header
    numbers = f"segment {first.number}"
    if last.number != first.number:
        numbers = f"segments {first.number} to {last.number}"
    return f"run of {format_time(first.wall_time)} ({numbers})"
