"""`rest_client_*`: requests to the API server, their results, and the time they wait for the client-side rate limit.

Measured around the transport, so that every client of the process is counted.
"""

from __future__ import annotations

from kubesched.client.rate_limit import TokenBucket
from kubesched.client.transport import Request, Response, Transport
from kubesched.clock import Clock
from kubesched.errors import TransportError
from kubesched.metrics.instruments import Counter, Histogram
from kubesched.metrics.registry import MetricsRegistry, Stability

REQUEST_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
NO_ANSWER = "<error>"


class ClientMetrics:
    """The instruments, shared by all clients."""

    def __init__(self, registry: MetricsRegistry, clock: Clock) -> None:
        self.clock = clock
        self._requests = registry.counter(
            "rest_client_requests_total",
            "Requests to the API server, by status code, method and host.",
            labels=("code", "host", "method"),
            stability=Stability.ALPHA,
        )
        self._durations = registry.histogram(
            "rest_client_request_duration_seconds",
            "Seconds until a request was answered, by verb and host; for watches until the first byte.",
            labels=("host", "verb"),
            buckets=REQUEST_SECONDS,
            stability=Stability.ALPHA,
        )
        self._waits = registry.histogram(
            "rest_client_rate_limiter_duration_seconds",
            "Seconds a request waited for the client-side rate limit, by verb and host.",
            labels=("host", "verb"),
            buckets=REQUEST_SECONDS,
            stability=Stability.ALPHA,
        )
        self._counted: dict[tuple[int, str], Counter] = {}
        self._timed: dict[str, Histogram] = {}

    def answered(self, host: str, method: str, status: int, seconds: float) -> None:
        """`status` 0: there was no answer."""
        counter = self._counted.get((status, method))
        if counter is None:
            code = str(status) if status else NO_ANSWER
            counter = self._counted[status, method] = self._requests.labels(code, host, method)
        counter.inc()
        duration = self._timed.get(method)
        if duration is None:
            duration = self._timed[method] = self._durations.labels(host, method)
        duration.observe(seconds)

    def waits(self, host: str) -> Histogram:
        # Our clients share a limit between verbs, so there is one series.
        return self._waits.labels(host, "any")


class MeasuredTransport:
    """A transport that counts."""

    def __init__(self, transport: Transport, host: str, metrics: ClientMetrics) -> None:
        self._transport = transport
        self._host = host
        self._metrics = metrics
        self._now = metrics.clock.monotonic

    async def request(self, request: Request) -> Response:
        started = self._now()
        try:
            response = await self._transport.request(request)
        except TransportError:
            self._metrics.answered(self._host, request.method, 0, self._now() - started)
            raise
        seconds = self._now() - started
        self._metrics.answered(self._host, request.method, response.status, seconds)
        return response

    async def aclose(self) -> None:
        await self._transport.aclose()


class MeasuredBucket(TokenBucket):
    """A token bucket that observes how long requests waited."""

    def __init__(self, qps: float, burst: int, *, clock: Clock, waits: Histogram) -> None:
        super().__init__(qps, burst, clock=clock)
        self._waits = waits

    def take(self) -> bool:
        is_taken = super().take()
        if is_taken:
            self._waits.observe(0.0)
        return is_taken

    async def acquire(self, max_wait_s: float) -> float:
        waited = await super().acquire(max_wait_s)
        self._waits.observe(waited)
        return waited
