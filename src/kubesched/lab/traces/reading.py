"""Selects the reader of a trace from the content of its files.

A folder is a recording if it contains one, and otherwise stands for its files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from kubesched.insight.recording.segments import RecordingError
from kubesched.lab.traces import borg, openb, recorded
from kubesched.lab.traces.rows import columns_of, read_text
from kubesched.lab.traces.sample import sample_trace
from kubesched.lab.traces.trace import Trace, TraceError

SAMPLE = "sample"

_SUFFIXES = (".csv", ".json", ".jsonl", ".log")


def read_trace(paths: Sequence[str]) -> Trace:
    """Read a trace from its files, or a recording from its folder; `sample` is a made one.

    Raises:
        TraceError, RecordingError: it cannot be read; with file, line and reason.
    """
    if list(paths) == [SAMPLE] and not Path(SAMPLE).exists():
        return sample_trace()
    if len(paths) == 1 and Path(paths[0]).is_dir():
        try:
            return recorded.read(paths[0])
        except RecordingError as error:
            if "no recording there" not in str(error):
                raise
    files = [file for path in paths for file in _files(path)]
    kinds = {path: _kind(path) for path in files}
    formats = {kind.partition(" ")[0] for kind in kinds.values()}
    if len(formats) > 1:
        listed = ", ".join(f"{path} ({kind})" for path, kind in kinds.items())
        raise TraceError(f"these files are not of one trace: {listed}")
    if formats == {"openb"}:
        return openb.read(_one(kinds, "openb nodes"), _one(kinds, "openb pods"))
    machines = _all(kinds, "borg machines")
    if not machines:
        raise TraceError(f"{files[0]}: the machine events are missing")
    return borg.read(machines, _all(kinds, "borg instances"))


def load_trace(*paths: str | PathLike[str]) -> Trace:
    """A trace from files, or a recording from its folder; the format is found by the content.

    Raises:
        TraceError, RecordingError: it cannot be read; with file, line and reason.
    """
    if not paths:
        raise TraceError("a trace has at least one file")
    return read_trace([str(path) for path in paths])


def _files(path: str) -> list[str]:
    if not Path(path).is_dir():
        return [path]
    files = sorted(
        str(file)
        for file in Path(path).iterdir()
        if file.is_file() and file.name.removesuffix(".gz").endswith(_SUFFIXES)
    )
    if not files:
        raise TraceError(f"{path}: neither a recording nor {', '.join(_SUFFIXES)} files in it")
    return files


def _kind(path: str) -> str:
    """The format and table of a file."""
    text = read_text(path)
    first = text.lstrip().partition("\n")[0]
    if first.startswith("{"):
        return _kind_of_json(path, first)
    columns = columns_of(text)
    if set(openb.NODE_COLUMNS) <= set(columns):
        return "openb nodes"
    if set(openb.POD_COLUMNS) <= set(columns):
        return "openb pods"
    if borg.is_instance_table(columns):
        return "borg instances"
    if borg.is_machine_table(columns):
        return "borg machines"
    raise TraceError(
        f"{path}:1: not a trace that is known (openb, borg); its first line is {first[:80]!r}"
    )


def _kind_of_json(path: str, line: str) -> str:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise TraceError(f"{path}:1: not valid JSON: {error}") from None
    if borg.is_instance_table(list(value)):
        return "borg instances"
    if borg.is_machine_table(list(value)):
        return "borg machines"
    raise TraceError(
        f"{path}:1: not a row of the Borg trace; its fields are {', '.join(value)[:80]}"
    )


def _all(kinds: dict[str, str], wanted: str) -> list[str]:
    return [path for path, kind in kinds.items() if kind == wanted]


def _one(kinds: dict[str, str], wanted: str) -> str:
    matching = _all(kinds, wanted)
    if len(matching) != 1:
        listed = ", ".join(kinds)
        raise TraceError(f"{listed}: the trace needs one file of {wanted}, not {len(matching)}")
    return matching[0]
