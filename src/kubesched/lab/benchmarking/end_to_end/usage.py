"""What processes cost: processor time and memory, as the kernel accounts for them in /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kubesched.base.errors import KubeschedError

PROC = Path("/proc")

# Positions in /proc/<pid>/stat, counted from the field behind the program's name (proc(5) calls
# that one 3).
_USER_TICKS, _SYSTEM_TICKS, _RESIDENT_PAGES = 11, 12, 21


class UsageError(KubeschedError):
    """A process is not there to be measured, or the kernel's account of it cannot be read."""


class ProcessGone(UsageError):
    """The process has ended."""


@dataclass(frozen=True, slots=True)
class Usage:
    """A process's account at one moment."""

    cpu_s: float
    """User and system time since it started, all threads included."""
    resident_bytes: int


def parse_stat(text: str, *, ticks_per_s: int, page_bytes: int) -> Usage:
    """The line of /proc/<pid>/stat.

    The program's name stands in brackets and may itself contain brackets and spaces.

    Raises:
        UsageError: the line is not one.
    """
    fields = text[text.rfind(")") + 1 :].split()
    try:
        ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
        pages = int(fields[_RESIDENT_PAGES])
    except (IndexError, ValueError):
        raise UsageError(f"not a process's account: {text[:80]!r}") from None
    return Usage(ticks / ticks_per_s, pages * page_bytes)


def read_usage(pid: int, proc: Path = PROC) -> Usage:
    """Raises `ProcessGone` if there is no such process, `UsageError` if it cannot be read."""
    try:
        text = (proc / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessGone(f"process {pid} has ended") from None
    except OSError as error:
        raise UsageError(f"cannot read the account of process {pid}: {error}") from None
    return parse_stat(
        text, ticks_per_s=os.sysconf("SC_CLK_TCK"), page_bytes=os.sysconf("SC_PAGE_SIZE")
    )


def read_machine(proc: Path = PROC) -> Usage:
    """Processor time that all cores together have been busy, with whatever. Raises `UsageError`."""
    try:
        line = (proc / "stat").read_text().partition("\n")[0]
    except OSError as error:
        raise UsageError(f"cannot read the account of the machine: {error}") from None
    return parse_machine(line, ticks_per_s=os.sysconf("SC_CLK_TCK"))


def parse_machine(line: str, *, ticks_per_s: int) -> Usage:
    """The first line of /proc/stat.

    Time given to guests is part of user time already; time stolen is not ours.
    """
    try:
        label, user, nice, system, _idle, _io_wait, irq, soft_irq, *_ = line.split()
        ticks = sum(map(int, (user, nice, system, irq, soft_irq)))
    except ValueError:
        raise UsageError(f"not the machine's account: {line[:80]!r}") from None
    if label != "cpu":
        raise UsageError(f"not the machine's account: {line[:80]!r}")
    return Usage(ticks / ticks_per_s, 0)
