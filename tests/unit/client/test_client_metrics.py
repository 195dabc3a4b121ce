"""`rest_client_*` count every request of every client, answered or not, and the time spent waiting
for our own limit.
"""

import pytest

from kubesched.base.clock import ManualClock
from kubesched.base.errors import ConnectFailed
from kubesched.base.metrics import MetricsRegistry
from kubesched.client.metrics import ClientMetrics, MeasuredBucket, MeasuredTransport
from kubesched.client.transport import Request


class Answering:
    def __init__(self, clock, status=200, error=None):
        self.clock, self.status, self.error, self.closed = clock, status, error, False

    async def request(self, request):
        self.clock.advance(0.25)
        if self.error is not None:
            raise self.error
        return self

    async def read(self, max_bytes):
        return b"x" * 300

    async def aclose(self):
        self.closed = True


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def registry():
    return MetricsRegistry()


async def test_answers_are_counted_by_code_and_method(clock, registry):
    metrics = ClientMetrics(registry, clock)
    transport = MeasuredTransport(Answering(clock, 201), "host:443", metrics)
    for _ in range(2):
        await transport.request(Request(method="POST", target="/x", body=b"0123456789"))
    await transport.request(Request(method="GET", target="/x", stream=True))
    page = registry.text()
    assert 'rest_client_request_size_bytes_sum{host="host:443",verb="POST"} 20' in page
    assert 'rest_client_response_size_bytes_bucket{host="host:443",verb="POST",le="256"} 0' in page
    assert 'rest_client_response_size_bytes_sum{host="host:443",verb="POST"} 600' in page
    assert 'rest_client_response_size_bytes_count{host="host:443",verb="GET"} 0' in page
    assert 'rest_client_requests_total{code="201",host="host:443",method="POST"} 2' in page
    assert 'rest_client_request_duration_seconds_sum{host="host:443",verb="POST"} 0.5' in page


async def test_a_request_without_an_answer_counts_too(clock, registry):
    metrics = ClientMetrics(registry, clock)
    inner = Answering(clock, error=ConnectFailed("refused"))
    transport = MeasuredTransport(inner, "host:443", metrics)
    with pytest.raises(ConnectFailed):
        await transport.request(Request(method="GET", target="/x"))
    assert 'code="<error>",host="host:443",method="GET"} 1' in registry.text()
    await transport.aclose()
    assert inner.closed


async def test_waiting_for_the_rate_limit_is_measured(clock, registry):
    metrics = ClientMetrics(registry, clock)
    bucket = MeasuredBucket(1000.0, 1, clock=clock, waits=metrics.waits("host:443"))
    for _ in range(2):
        await bucket.acquire(10.0)
    histogram = metrics.waits("host:443")
    assert histogram.count == 2
    assert histogram.sum == pytest.approx(0.001)
