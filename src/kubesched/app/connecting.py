"""The clients of a scheduler process: one transport, several rate limits, and the event recorder."""

from __future__ import annotations

from random import Random
from types import TracebackType
from typing import Self

from kubesched.client.pool import HttpTransport
from kubesched.client.rate_limit import TokenBucket
from kubesched.client.rest import RestClient, user_agent
from kubesched.client.transport import ConnectionConfig
from kubesched.clock import Clock, SystemClock
from kubesched.framework.handle import EventRecorder


class Connections:
    """Clients that share connections but not their limits: bindings never wait behind events."""

    def __init__(
        self,
        connection: ConnectionConfig,
        *,
        qps: float = 50.0,
        burst: int = 100,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._random = random or Random()
        self._qps, self._burst = qps, burst
        self._transport = HttpTransport(connection)
        self.main = self.client("scheduler")

    def client(self, component: str) -> RestClient:
        """A client with a limit of its own."""
        limiter = None if self._qps < 0 else TokenBucket(self._qps, self._burst, clock=self._clock)
        return RestClient(
            self._transport,
            user_agent=user_agent(component),
            limiter=limiter,
            clock=self._clock,
            random=self._random,
        )

    def recorder(self, scheduler_name: str) -> EventRecorder:
        return _Silent()

    async def write_events(self) -> None:
        import asyncio

        await asyncio.Event().wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._transport.aclose()


class _Silent:
    def event(
        self,
        regarding: object,
        related: object | None,
        type_: str,
        reason: str,
        action: str,
        note: str,
    ) -> None:
        pass
