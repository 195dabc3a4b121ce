"""A transport that reports every answer, for metrics and traces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from kubesched.base.clock import Clock
from kubesched.base.errors import TransportError
from kubesched.client.exchange import BufferedResponse
from kubesched.client.transport import (
    DirectTransport,
    Request,
    Response,
    StartedRequest,
    Transport,
)

Observe = Callable[[Request, float, int, int | None], None]
"""Takes the request, when it was sent, its status and its body's size.

The status is 0 without a response; the size is None then and for endless bodies.
"""


class ObservedTransport(ABC):
    """Passes requests on to another transport."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport = transport
        self._direct = transport if isinstance(transport, DirectTransport) else None
        self._now = clock.monotonic

    @abstractmethod
    def observer(self) -> Observe:
        """Called when a request begins; the result is called with its answer."""

    async def request(self, request: Request) -> Response:
        observe, started = self.observer(), self._now()
        try:
            response = await self._transport.request(request)
        except TransportError:
            observe(request, started, 0, None)
            raise
        # A body that is not a stream has arrived completely.
        size = None if request.stream else len(await response.read(request.max_body_bytes))
        observe(request, started, response.status, size)
        return response

    def start(
        self, request: Request, done: Callable[[Response | TransportError | None], None]
    ) -> StartedRequest | None:
        if self._direct is None:
            return None
        observe, started = self.observer(), self._now()

        def answered(outcome: Response | TransportError | None) -> None:
            if type(outcome) is BufferedResponse:
                observe(request, started, outcome.status, len(outcome.body))
            elif isinstance(outcome, TransportError):
                observe(request, started, 0, None)
            done(outcome)  # None: nothing was sent, and the caller awaits `request`

        return self._direct.start(request, answered)

    async def aclose(self) -> None:
        await self._transport.aclose()
