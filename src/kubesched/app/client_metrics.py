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
SIZE_BYTES = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)
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
        self._request_sizes = registry.histogram(
            "rest_client_request_size_bytes",
            "Bytes in the bodies of requests, by verb and host.",
            labels=("host", "verb"),
            buckets=SIZE_BYTES,
            stability=Stability.ALPHA,
        )
        self._response_sizes = registry.histogram(
            "rest_client_response_size_bytes",
            "Bytes in the bodies of responses, by verb and host; watches are not counted.",
            labels=("host", "verb"),
            buckets=SIZE_BYTES,
            stability=Stability.ALPHA,
        )
        self._sizes: dict[str, tuple[Histogram, Histogram]] = {}
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

    def sized(self, host: str, method: str, request_bytes: int, response_bytes: int | None) -> None:
        """`response_bytes` is None if there was no answer, or one without an end."""
        sizes = self._sizes.get(method)
        if sizes is None:
            sizes = self._sizes[method] = (
                self._request_sizes.labels(host, method),
                self._response_sizes.labels(host, method),
            )
        sizes[0].observe(request_bytes)
        if response_bytes is not None:
            sizes[1].observe(response_bytes)

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
            self._metrics.sized(self._host, request.method, len(request.body), None)
            raise
        seconds = self._now() - started
        self._metrics.answered(self._host, request.method, response.status, seconds)
        # Bodies that are no streams have arrived as a whole.
        body_bytes = None if request.stream else len(await response.read(request.max_body_bytes))
        self._metrics.sized(self._host, request.method, len(request.body), body_bytes)
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
