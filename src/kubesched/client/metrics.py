"""`rest_client_*` (requests, results, waits for the client's rate limit), and leader election's."""

from __future__ import annotations

from dataclasses import dataclass

from kubesched.base.clock import Clock
from kubesched.base.metrics.instruments import Counter, Histogram
from kubesched.base.metrics.registry import MetricsRegistry
from kubesched.client.transport import Request

NO_ANSWER = "<error>"


@dataclass(frozen=True, slots=True)
class _Series:
    """The series of one method and status."""

    requests: Counter
    durations: Histogram
    request_sizes: Histogram
    response_sizes: Histogram


class ClientMetrics:
    """The metrics, shared by all clients."""

    def __init__(self, registry: MetricsRegistry, clock: Clock) -> None:
        self.clock = clock
        self.requests = registry.counter("rest_client_requests_total")
        self.durations = registry.histogram("rest_client_request_duration_seconds")
        self.waits = registry.histogram("rest_client_rate_limiter_duration_seconds")
        self.request_sizes = registry.histogram("rest_client_request_size_bytes")
        self.response_sizes = registry.histogram("rest_client_response_size_bytes")


class HostMetrics:
    """The metrics of one server, recorded by the transport, so every client is counted."""

    def __init__(self, host: str, metrics: ClientMetrics) -> None:
        self.now = metrics.clock.monotonic
        self.waits = metrics.waits.labels(host, "any")
        """Waits for the rate limit, which all verbs share."""
        self._host = host
        self._metrics = metrics
        self._series: dict[tuple[int, str], _Series] = {}

    def answered(
        self, request: Request, started: float, status: int, body_bytes: int | None
    ) -> None:
        """`status` is 0 without a response; `body_bytes` is None then and for endless bodies."""
        method = request.method
        series = self._series.get((status, method))
        if series is None:
            metrics, host = self._metrics, self._host
            series = self._series[status, method] = _Series(
                metrics.requests.labels(str(status) if status else NO_ANSWER, host, method),
                metrics.durations.labels(host, method),
                metrics.request_sizes.labels(host, method),
                metrics.response_sizes.labels(host, method),
            )
        series.requests.value += 1
        series.durations.observe(self.now() - started)
        series.request_sizes.observe(len(request.body))
        if body_bytes is not None:
            series.response_sizes.observe(body_bytes)


class LeaderMetrics:
    """Whether this process leads, and how often a leader had to read the lease again."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._status = registry.gauge("leader_election_master_status")
        self._slow = registry.counter("leader_election_slowpath_total")

    def leader_on(self, name: str) -> None:
        self._status.labels(name).set(1)

    def leader_off(self, name: str) -> None:
        self._status.labels(name).set(0)

    def slowpath_exercised(self, name: str) -> None:
        self._slow.labels(name).inc()
