"""`rest_client_*` count every request of every client, answered or not, and the time spent waiting
for our own limit. `http/test_request_metrics.py` proves that the transport records them.
"""

import pytest

from kubesched.base.clock import ManualClock
from kubesched.base.metrics import MetricsRegistry
from kubesched.base.rate_limit import TokenBucket
from kubesched.client.metrics import ClientMetrics, HostMetrics
from kubesched.client.transport import Request


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def registry():
    return MetricsRegistry()


@pytest.fixture
def metrics(registry, clock):
    return HostMetrics("host:443", ClientMetrics(registry, clock))


def test_answers_are_counted_by_code_and_method(metrics, clock, registry):
    for _ in range(2):
        began = metrics.now()
        clock.advance(0.25)
        metrics.answered(Request(method="POST", target="/x", body=b"0123456789"), began, 201, 300)
    metrics.answered(Request(method="GET", target="/x", stream=True), metrics.now(), 200, None)
    page = registry.text()
    assert 'rest_client_request_size_bytes_sum{host="host:443",verb="POST"} 20' in page
    assert 'rest_client_response_size_bytes_bucket{host="host:443",verb="POST",le="256"} 0' in page
    assert 'rest_client_response_size_bytes_sum{host="host:443",verb="POST"} 600' in page
    assert 'rest_client_response_size_bytes_count{host="host:443",verb="GET"} 0' in page
    assert 'rest_client_requests_total{code="201",host="host:443",method="POST"} 2' in page
    assert 'rest_client_request_duration_seconds_sum{host="host:443",verb="POST"} 0.5' in page


def test_a_request_without_an_answer_counts_too(metrics, registry):
    metrics.answered(Request(method="GET", target="/x"), metrics.now(), 0, None)
    assert 'code="<error>",host="host:443",method="GET"} 1' in registry.text()


async def test_waiting_for_the_rate_limit_is_measured(metrics, clock):
    bucket = TokenBucket(1000.0, 1, clock=clock, waits=metrics.waits)
    for _ in range(2):
        await bucket.acquire(10.0)
    assert metrics.waits.count == 2
    assert metrics.waits.sum == pytest.approx(0.001)


def test_a_token_that_is_taken_at_once_waited_for_nothing(metrics, clock):
    bucket = TokenBucket(1000.0, 1, clock=clock, waits=metrics.waits)
    assert bucket.take()
    assert not bucket.take()
    assert metrics.waits.counts[0] == metrics.waits.count == 1
