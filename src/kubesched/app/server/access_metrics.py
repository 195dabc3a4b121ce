"""`authentication_*` and `authorization_*`: requests to the serving port, by result."""

from __future__ import annotations

from kubesched.base.clock import Clock
from kubesched.base.metrics.registry import MetricsRegistry

SECONDS = tuple(0.001 * 2**exponent for exponent in range(15))


class AccessMetrics:
    """The metrics; result labels are upstream's."""

    def __init__(self, registry: MetricsRegistry, clock: Clock) -> None:
        self.now = clock.monotonic
        self._authentications = registry.counter(
            "authentication_attempts",
            "[ALPHA] Requests to the serving port, by the result of authentication: success or "
            "failure.",
            labels=("result",),
        )
        self._authentication_seconds = registry.histogram(
            "authentication_duration_seconds",
            "[ALPHA] Seconds that authentication took, by result.",
            labels=("result",),
            buckets=SECONDS,
        )
        self._authorizations = registry.counter(
            "authorization_attempts_total",
            "[ALPHA] Requests to the serving port, by the result of authorization: allowed, denied "
            "or error.",
            labels=("result",),
        )
        self._authorization_seconds = registry.histogram(
            "authorization_duration_seconds",
            "[ALPHA] Seconds that authorization took, by result.",
            labels=("result",),
            buckets=SECONDS,
        )

    def authenticated(self, result: str, started: float) -> None:
        self._authentications.labels(result).inc()
        self._authentication_seconds.labels(result).observe(self.now() - started)

    def authorized(self, result: str, started: float) -> None:
        self._authorizations.labels(result).inc()
        self._authorization_seconds.labels(result).observe(self.now() - started)
