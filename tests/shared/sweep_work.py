"""Cells of sweeps for tests: functions that worker processes import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from kubesched.base.errors import KubeschedError


def squared(shared, cell):
    if cell == "bad":
        raise KubeschedError("cell is bad")
    if cell == "broken":
        raise ValueError("defect")
    return f"{shared}:{cell * cell}".encode()


def killing_once(folder, cell):
    """Kills its own worker the first time that cell 3 runs."""
    mark = Path(folder) / "killed"
    if cell == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{cell}".encode()


def killing_always(folder, cell):
    os.kill(os.getpid(), signal.SIGKILL)


def slow(folder, cell):
    """Tells which process runs it, and takes long enough for that process to be killed."""
    (Path(folder) / f"{os.getpid()}").touch()
    time.sleep(0.05)
    return f"{cell * 7}".encode()


def first_feasible(observation, mask):
    """A policy for environments."""
    return int(mask.argmax())
