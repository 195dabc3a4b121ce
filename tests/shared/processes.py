"""Other processes, which come and go in their own time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 300.0


def is_running(pid: int) -> bool:
    """Whether the process does anything; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.01)
