"""Verbs in steps: generators that yield pure functions and are sent what these return.

Run `at_once`, a verb is one synchronous call. Run `apart`, it computes in a thread while other
requests go on, and starts again if the object changes meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from kubesched.base.errors import Conflict

T = TypeVar("T")
Steps: TypeAlias = Generator[Callable[[], Any], Any, T]


class Overtaken(Conflict):
    """The object has changed between two steps."""


def at_once(steps: Steps[T]) -> T:
    result = None
    while True:
        try:
            work = steps.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the generator returns
        result = work()


async def apart(begin: Callable[[], Steps[T]], lock: asyncio.Lock, attempts: int = 5) -> T:
    """Makes as many attempts as upstream's patches."""
    steps, result = begin(), None
    while True:
        try:
            work = steps.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except Overtaken:
            if not (attempts := attempts - 1):
                raise
            steps, result = begin(), None
        else:
            async with lock:
                result = await asyncio.to_thread(work)
