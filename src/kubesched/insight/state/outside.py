"""Requests from a virtual loop to the real network, while virtual time stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from kubesched.client.pool import HttpTransport
from kubesched.client.transport import ConnectionConfig, Request, Response
from kubesched.insight.state.virtual_loop import entered

T = TypeVar("T")


class OutsideTransport:
    """HTTP on its own event loop, which runs only during a request."""

    def __init__(self, config: ConnectionConfig) -> None:
        self._transport = HttpTransport(config)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def request(self, request: Request) -> Response:
        return self._run(self._request(request))

    async def _request(self, request: Request) -> Response:
        await asyncio.sleep(
            0
        )  # connections that were closed since the last request are noticed first
        return await self._transport.request(request)

    async def aclose(self) -> None:
        if self._loop is not None:
            self._run(self._transport.aclose())
            self._loop.close()
            self._loop = None

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        with entered(None):
            return self._loop.run_until_complete(work)
