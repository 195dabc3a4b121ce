"""Holds back watch events while a scheduling attempt awaits an HTTP extender.

The scheduling cycle reads the live tables. It usually does not await, so they cannot change during
the cycle. While an attempt does await, watch events are parked and replayed in order afterwards,
and failed bindings are undone only then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from kubesched.base.errors import KubeschedError, Unrecoverable
from kubesched.base.logs import get_logger

log = get_logger(__name__)


class EventGate:
    """Held by at most one attempt at a time."""

    def __init__(self) -> None:
        self._is_held = False
        self._parked: deque[Callable[[], None]] = deque()
        self._released = asyncio.Event()
        self._released.set()

    @property
    def is_held(self) -> bool:
        """True if a change must wait."""
        return self._is_held

    @contextmanager
    def hold(self) -> Iterator[None]:
        assert not self._is_held, "two attempts at once"
        self._is_held = True
        self._released.clear()
        try:
            yield
        finally:
            self._is_held = False
            while self._parked:
                _apply(self._parked.popleft())
            self._released.set()

    def park(self, change: Callable[[], None]) -> None:
        self._parked.append(change)

    async def wait(self) -> None:
        """Return once no attempt holds the gate.

        The next attempt may take it before this task runs: check again.
        """
        while self._is_held:
            await self._released.wait()

    def __len__(self) -> int:
        return len(self._parked)


def _apply(change: Callable[[], None]) -> None:
    """Run a parked handler.

    As in the informer, a failure affects only this change, unless it is unrecoverable.
    """
    try:
        change()
    except Unrecoverable:
        raise
    except KubeschedError as error:
        log.error("Handler failed for a parked change", error)
    except Exception:  # top level of a handler
        log.exception("Handler failed for a parked change")


class _Parkable(Protocol):
    @property
    def event_gate(self) -> EventGate: ...


S = TypeVar("S", bound=_Parkable)
P = ParamSpec("P")


def parkable(method: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """Decorates an event handler so that it is parked while the gate is held."""

    @wraps(method)
    def handle(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if self.event_gate.is_held:
            self.event_gate.park(lambda: method(self, *args, **kwargs))
        else:
            method(self, *args, **kwargs)

    return handle
