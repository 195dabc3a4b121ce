"""`authentication_*` and `authorization_*`: requests to the serving port, by result."""

from __future__ import annotations

from kubesched.base.clock import Clock
from kubesched.base.metrics.registry import MetricsRegistry


class AccessMetrics:
    """The metrics; result labels are upstream's."""

    def __init__(self, registry: MetricsRegistry, clock: Clock) -> None:
        self.now = clock.monotonic
        self._authentications = registry.counter("authentication_attempts")
        self._authentication_seconds = registry.histogram("authentication_duration_seconds")
        self._authorizations = registry.counter("authorization_attempts_total")
        self._authorization_seconds = registry.histogram("authorization_duration_seconds")

    def authenticated(self, result: str, started: float) -> None:
        self._authentications.labels(result).inc()
        self._authentication_seconds.labels(result).observe(self.now() - started)

    def authorized(self, result: str, started: float) -> None:
        self._authorizations.labels(result).inc()
        self._authorization_seconds.labels(result).observe(self.now() - started)
