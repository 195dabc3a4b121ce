"""What processes cost: processor time and memory, as the kernel accounts for them in /proc."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kubesched.errors import KubeschedError

PROC = Path("/proc")

# Positions in /proc/<pid>/stat, counted from the field behind the program's name (proc(5) calls that one 3).
_USER_TICKS, _SYSTEM_TICKS, _RESIDENT_PAGES = 11, 12, 21


class UsageError(KubeschedError):
    """A process is not there to be measured, or the kernel's account of it cannot be read."""


@dataclass(frozen=True, slots=True)
class Usage:
    """A process's account at one moment."""

    cpu_s: float
    """User and system time since it started, all threads included."""
    resident_bytes: int


def parse_stat(text: str, *, ticks_per_s: int, page_bytes: int) -> Usage:
    """The line of /proc/<pid>/stat. The program's name stands in brackets and may itself contain brackets and spaces.

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
    """Raises `UsageError` if there is no such process, or no /proc."""
    try:
        text = (proc / str(pid) / "stat").read_text()
    except OSError as error:
        raise UsageError(f"cannot read the account of process {pid}: {error}") from None
    return parse_stat(
        text, ticks_per_s=os.sysconf("SC_CLK_TCK"), page_bytes=os.sysconf("SC_PAGE_SIZE")
    )


class UsageMeter:
    """Several processes, by role, measured from one moment to another."""

    def __init__(self, pids: Mapping[str, int], proc: Path = PROC) -> None:
        self._pids = dict(pids)
        self._proc = proc
        self._began = self.read()
        self.peak_bytes = {role: each.resident_bytes for role, each in self._began.items()}

    def read(self) -> dict[str, Usage]:
        return {role: read_usage(pid, self._proc) for role, pid in self._pids.items()}

    def sample(self) -> None:
        """Note the memory of the moment, so that its peak is known in the end."""
        for role, usage in self.read().items():
            self.peak_bytes[role] = max(self.peak_bytes[role], usage.resident_bytes)

    def cpu_s(self) -> dict[str, float]:
        """Processor time of each since the meter was made."""
        return {role: usage.cpu_s - self._began[role].cpu_s for role, usage in self.read().items()}
