"""Authentication and authorization of the serving port are counted by result."""

from __future__ import annotations

import pytest

from kubesched.app.server.access_metrics import AccessMetrics
from kubesched.base.clock import ManualClock
from kubesched.base.metrics.registry import MetricsRegistry


@pytest.mark.parametrize(
    ("method", "counter", "durations"),
    [
        ("authenticated", "authentication_attempts", "authentication_duration_seconds"),
        ("authorized", "authorization_attempts_total", "authorization_duration_seconds"),
    ],
)
def test_results_are_counted_and_timed(method, counter, durations):
    registry, clock = MetricsRegistry(), ManualClock()
    metrics = AccessMetrics(registry, clock)
    started = metrics.now()
    clock.advance(0.25)
    getattr(metrics, method)("failure", started)
    page = registry.text()
    assert f'{counter}{{result="failure"}} 1' in page
    assert f'{durations}_sum{{result="failure"}} 0.25' in page
