"""One call shared by all who want its result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Shares one call among concurrent callers (single flight)."""

    def __init__(self) -> None:
        self._flight: asyncio.Future[T] | None = None

    @property
    def is_under_way(self) -> bool:
        return self._flight is not None

    async def run(self, call: Callable[[], Awaitable[T]]) -> T:
        while self._flight is not None:
            flight = self._flight
            await asyncio.wait([flight])
            if not flight.cancelled():
                return flight.result()
            # Only its caller was cancelled: one of the waiters takes over.
        self._flight = flight = asyncio.get_running_loop().create_future()
        try:
            result = await call()
        except asyncio.CancelledError:
            flight.cancel()
            raise
        except Exception as error:
            flight.set_exception(error)
            flight.exception()  # marks it as retrieved, even without a waiter
            raise
        else:
            flight.set_result(result)
            return result
        finally:
            self._flight = None
