"""CPU time and memory of processes, from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kubesched.base.errors import KubeschedError

PROC = Path("/proc")

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

# Positions in /proc/<pid>/stat, counted from the field after the program name (3 in proc(5)).
_USER_TICKS, _SYSTEM_TICKS, _RESIDENT_PAGES = 11, 12, 21


class ProcessGone(KubeschedError):
    """The process has ended."""


@dataclass(frozen=True, slots=True)
class Usage:
    """A process's usage at one moment."""

    cpu_s: float
    """User and system time since the start, over all threads."""
    resident_bytes: int


def parse_stat(text: str) -> Usage:
    """Parse the line of /proc/<pid>/stat.

    The program name is in parentheses and may itself contain parentheses and spaces.

    Raises:
        KubeschedError: the line is malformed.
    """
    fields = text[text.rfind(")") + 1 :].split()
    try:
        ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
        pages = int(fields[_RESIDENT_PAGES])
    except (IndexError, ValueError):
        raise KubeschedError(f"not a process's account: {text[:80]!r}") from None
    return Usage(ticks / _TICKS_PER_S, pages * _PAGE_BYTES)


def read_usage(pid: int, proc: Path = PROC) -> Usage:
    """Raises `ProcessGone` if the process does not exist, `KubeschedError` if it cannot be read."""
    try:
        text = (proc / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessGone(f"process {pid} has ended") from None
    except OSError as error:
        raise KubeschedError(f"cannot read the account of process {pid}: {error}") from None
    return parse_stat(text)


def read_machine(proc: Path = PROC) -> Usage:
    """Total busy CPU time of the machine, over all cores. Raises `KubeschedError`."""
    try:
        line = (proc / "stat").read_text().partition("\n")[0]
    except OSError as error:
        raise KubeschedError(f"cannot read the account of the machine: {error}") from None
    return parse_machine(line)


def parse_machine(line: str) -> Usage:
    """Parse the first line of /proc/stat. User time includes guests; stolen time is excluded."""
    try:
        label, user, nice, system, _idle, _io_wait, irq, soft_irq, *_ = line.split()
        ticks = sum(map(int, (user, nice, system, irq, soft_irq)))
    except ValueError:
        raise KubeschedError(f"not the machine's account: {line[:80]!r}") from None
    if label != "cpu":
        raise KubeschedError(f"not the machine's account: {line[:80]!r}")
    return Usage(ticks / _TICKS_PER_S, 0)
