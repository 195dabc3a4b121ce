"""`rest_client_*`: API requests, their results, and their wait for the client-side rate limit.

Measured around the transport, so every client of the process is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kubesched.base.clock import Clock
from kubesched.base.errors import TransportError
from kubesched.base.metrics.instruments import Counter, Histogram
from kubesched.base.metrics.registry import MetricsRegistry
from kubesched.base.rate_limit import TokenBucket
from kubesched.client.exchange import BufferedResponse
from kubesched.client.transport import (
    DirectTransport,
    Request,
    Response,
    StartedRequest,
    Transport,
)

NO_ANSWER = "<error>"


@dataclass(frozen=True, slots=True)
class _Series:
    """The series of one host, method and status."""

    requests: Counter
    durations: Histogram
    request_sizes: Histogram
    response_sizes: Histogram


class ClientMetrics:
    """The metrics, shared by all clients."""

    def __init__(self, registry: MetricsRegistry, clock: Clock) -> None:
        self.clock = clock
        self._requests = registry.counter("rest_client_requests_total")
        self._durations = registry.histogram("rest_client_request_duration_seconds")
        self._waits = registry.histogram("rest_client_rate_limiter_duration_seconds")
        self._request_sizes = registry.histogram("rest_client_request_size_bytes")
        self._response_sizes = registry.histogram("rest_client_response_size_bytes")
        self._series: dict[tuple[int, str], _Series] = {}

    def answered(
        self, host: str, request: Request, status: int, seconds: float, body_bytes: int | None
    ) -> None:
        """`status` is 0 without a response; `body_bytes` is None then and for endless bodies."""
        method = request.method
        series = self._series.get((status, method))
        if series is None:
            series = self._series[status, method] = _Series(
                self._requests.labels(str(status) if status else NO_ANSWER, host, method),
                self._durations.labels(host, method),
                self._request_sizes.labels(host, method),
                self._response_sizes.labels(host, method),
            )
        series.requests.value += 1
        series.durations.observe(seconds)
        series.request_sizes.observe(len(request.body))
        if body_bytes is not None:
            series.response_sizes.observe(body_bytes)

    def waits(self, host: str) -> Histogram:
        # Our clients share one limit across verbs, so there is one series.
        return self._waits.labels(host, "any")


class MeasuredTransport:
    """A transport that records metrics."""

    def __init__(self, transport: Transport, host: str, metrics: ClientMetrics) -> None:
        self._transport = transport
        self._direct = transport if isinstance(transport, DirectTransport) else None
        self._now = metrics.clock.monotonic
        self._host = host
        self._metrics = metrics

    async def request(self, request: Request) -> Response:
        started = self._now()
        try:
            response = await self._transport.request(request)
        except TransportError:
            self._observe(request, started, 0, None)
            raise
        # A body that is not a stream has arrived completely.
        size = None if request.stream else len(await response.read(request.max_body_bytes))
        self._observe(request, started, response.status, size)
        return response

    def start(
        self, request: Request, done: Callable[[Response | TransportError | None], None]
    ) -> StartedRequest | None:
        if self._direct is None:
            return None
        started = self._now()

        def answered(outcome: Response | TransportError | None) -> None:
            if type(outcome) is BufferedResponse:
                self._observe(request, started, outcome.status, len(outcome.body))
            elif isinstance(outcome, TransportError):
                self._observe(request, started, 0, None)
            done(outcome)  # None: nothing was sent, and the caller awaits `request`

        return self._direct.start(request, answered)

    async def aclose(self) -> None:
        await self._transport.aclose()

    def _observe(
        self, request: Request, started: float, status: int, body_bytes: int | None
    ) -> None:
        """`status` is 0 without a response; the size is None then and for endless bodies."""
        self._metrics.answered(self._host, request, status, self._now() - started, body_bytes)


class MeasuredBucket(TokenBucket):
    """A token bucket that observes the wait of each request."""

    def __init__(self, qps: float, burst: int, *, clock: Clock, waits: Histogram) -> None:
        super().__init__(qps, burst, clock=clock)
        self._waits = waits

    def take(self) -> bool:
        is_taken = TokenBucket.take(self)
        if is_taken:
            self._waits.counts[0] += 1  # inlined `observe(0.0)`: runs for every request
        return is_taken

    async def acquire(self, max_wait_s: float) -> float:
        waited = await super().acquire(max_wait_s)
        self._waits.observe(waited)
        return waited
