"""Stillness: while an attempt waits for somebody outside, nothing moves under it.

The scheduling cycle reads the live tables. Usually it never awaits, so nothing can happen meanwhile; when it must (an
HTTP extender), what the watches bring is parked and played back in order afterwards, and failed bindings wait to be
undone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar


class Stillness:
    """Held by at most one attempt at a time."""

    def __init__(self) -> None:
        self.is_held = False
        self._parked: deque[Callable[[], None]] = deque()
        self._released = asyncio.Event()
        self._released.set()

    @contextmanager
    def hold(self) -> Iterator[None]:
        assert not self.is_held, "two attempts at once"
        self.is_held = True
        self._released.clear()
        try:
            yield
        finally:
            self.is_held = False
            while self._parked:
                self._parked.popleft()()
            self._released.set()

    def park(self, change: Callable[[], None]) -> None:
        self._parked.append(change)

    async def wait(self) -> None:
        """Return when nobody holds still."""
        while self.is_held:
            await self._released.wait()

    def __len__(self) -> int:
        return len(self._parked)


class _Parkable(Protocol):
    @property
    def stillness(self) -> Stillness: ...


S = TypeVar("S", bound=_Parkable)
P = ParamSpec("P")


def parkable(method: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """A handler that is put off while an attempt holds still."""

    @wraps(method)
    def handle(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if self.stillness.is_held:
            self.stillness.park(lambda: method(self, *args, **kwargs))
        else:
            method(self, *args, **kwargs)

    return handle
