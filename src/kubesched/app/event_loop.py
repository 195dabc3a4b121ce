"""Event loops: uvloop's if installed, otherwise asyncio's."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from kubesched.base.errors import KubeschedError

T = TypeVar("T")


def new() -> asyncio.AbstractEventLoop:
    """A new loop, for any thread."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(main: Coroutine[object, object, T]) -> T:
    """Run to the end; Ctrl-C cancels the coroutine and is then raised as KeyboardInterrupt.

    Raises:
        KubeschedError: a task called exit, which ends the loop.
    """
    try:
        with asyncio.Runner(loop_factory=new) as runner:
            return runner.run(main)
    except SystemExit as error:
        raise KubeschedError(f"ended because something called exit: {error}") from error
