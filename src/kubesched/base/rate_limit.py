"""Client-side rate limiting: the token bucket behind `clientConnection.qps` and `burst`.

Computes how long a request has to wait. Requests are served in order, because each reserves its
token when it arrives. The server's own limits (429) are handled in `rest`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kubesched.base.clock import Clock
from kubesched.base.errors import DeadlineExceeded
from kubesched.base.metrics.instruments import Histogram

Sleep = Callable[[float], Awaitable[None]]

DEFAULT_QPS = 5.0
DEFAULT_BURST = 10


class TokenBucket:
    """`qps` tokens per second, at most `burst` saved up.

    Upstream: as in client-go's `rest.Config`, zero means the default (5 and 10) and a negative
    `qps` means no limit.
    """

    def __init__(
        self,
        qps: float,
        burst: int,
        *,
        clock: Clock,
        sleep: Sleep = asyncio.sleep,
        waits: Histogram | None = None,
    ) -> None:
        """`waits` observes the wait of every token that was taken or acquired."""
        self._qps = qps or DEFAULT_QPS
        self._burst = float(burst or DEFAULT_BURST)
        self._monotonic = clock.monotonic
        self._sleep = sleep
        self._waits = waits
        self._tokens = self._burst
        self._updated_at = clock.monotonic()

    @property
    def is_unlimited(self) -> bool:
        return self._qps < 0

    def reserve(self, max_wait_s: float) -> float:
        """Reserves a token; returns the seconds to wait, or -1 if more than `max_wait_s`."""
        if self._qps < 0:
            return 0.0
        now = self._monotonic()
        tokens = min(self._burst, self._tokens + (now - self._updated_at) * self._qps) - 1.0
        wait_s = -tokens / self._qps if tokens < 0.0 else 0.0
        if wait_s > max_wait_s:
            return -1.0
        self._tokens = tokens
        self._updated_at = now
        return wait_s

    def take(self) -> bool:
        """Takes a token if one is available now."""
        if self.reserve(0.0) != 0.0:
            return False
        if self._waits is not None:
            self._waits.counts[0] += 1  # inlined `observe(0.0)`: runs for every request
        return True

    async def acquire(self, max_wait_s: float) -> float:
        """Waits for a token and returns the wait; `DeadlineExceeded` at once if too long."""
        wait_s = self.reserve(max_wait_s)
        if wait_s < 0:
            raise DeadlineExceeded(
                f"client-side rate limit of {self._qps:g} requests/s would delay the request by"
                f" more than {max_wait_s:g} s",
                sent=False,
            )
        if wait_s > 0:
            try:
                await self._sleep(wait_s)
            except asyncio.CancelledError:
                self._tokens += 1.0  # returned unused
                raise
        if self._waits is not None:
            self._waits.observe(wait_s)
        return wait_s
