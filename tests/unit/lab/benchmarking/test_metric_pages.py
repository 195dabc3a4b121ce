"""Metrics pages read from outside: the numbers agree with what was observed, and with Prometheus'
idea of a quantile.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.base.errors import KubeschedError
from kubesched.base.metrics import MetricsRegistry
from kubesched.lab.benchmarking.end_to_end.measuring import milliseconds
from kubesched.lab.benchmarking.end_to_end.metric_pages import (
    HistogramView,
    MetricPage,
)

PAGE = """\
# HELP pods_total pods
# TYPE pods_total counter
pods_total{queue="active",note="a \\"b\\", {c} 1"} 3
pods_total{queue="backoff"} 4 1700000000000
plain 1.5e+03
wait_seconds_bucket{profile="a",le="0.1"} 6
wait_seconds_bucket{profile="a",le="1"} 8
wait_seconds_bucket{profile="a",le="+Inf"} 8
wait_seconds_sum{profile="a"} 2.5
wait_seconds_count{profile="a"} 8
wait_seconds_bucket{profile="b",le="0.1"} 0
wait_seconds_bucket{profile="b",le="1"} 1
wait_seconds_bucket{profile="b",le="+Inf"} 2
wait_seconds_sum{profile="b"} 9.5
wait_seconds_count{profile="b"} 2
"""


def test_sums_go_over_the_label_sets_that_fit():
    page = MetricPage(PAGE)
    assert page.total("pods_total") == 7
    assert page.total("pods_total", {"queue": "active"}) == 3
    assert page.total("pods_total", {"note": 'a \\"b\\", {c} 1'}) == 3
    assert page.total("plain") == 1500
    assert page.total("absent") == 0


def test_histograms_of_several_label_sets_are_added():
    page = MetricPage(PAGE)
    assert page.histogram("wait_seconds") == HistogramView({0.1: 6, 1.0: 9, math.inf: 10}, 10, 12)
    assert page.histogram("wait_seconds", {"profile": "b"}).mean == 4.75
    assert page.histogram("absent") == HistogramView()


def test_only_what_came_later_counts():
    page = MetricPage(PAGE)
    later = MetricPage(PAGE.replace('"a",le="1"} 8', '"a",le="1"} 11').replace('"a"} 8', '"a"} 11'))
    since = later.histogram("wait_seconds").since(page.histogram("wait_seconds"))
    assert since.buckets[1.0] == 3
    assert since.count == 3


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        pytest.param(0.3, 0.05, id="inside the first bucket, which begins at zero"),
        pytest.param(0.6, 0.1, id="at a bound"),
        pytest.param(0.75, 0.55, id="inside a bucket"),
        pytest.param(0.99, 1.0, id="above the last bound: that bound"),
    ],
)
def test_quantiles_are_interpolated_inside_a_bucket(q, expected):
    view = HistogramView({0.1: 6, 1.0: 9, math.inf: 10}, 10, 12)
    assert view.quantile(q) == pytest.approx(expected)


def test_quantiles_of_nothing_are_none():
    assert HistogramView().quantile(0.5) == 0
    assert milliseconds(HistogramView()) is None


def test_a_line_that_is_no_metric_is_refused():
    with pytest.raises(KubeschedError, match="<html>"):
        MetricPage("<html>\n")


@given(st.lists(st.floats(0.0001, 50.0), min_size=1, max_size=60), st.floats(0.01, 1.0))
def test_an_estimated_quantile_lies_in_the_bucket_of_the_true_one(values, q):
    bounds = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
    registry = MetricsRegistry()
    histogram = registry.histogram("t_seconds", "t", labels=("a",), buckets=bounds).labels("x")
    for value in values:
        histogram.observe(value)
    view = MetricPage(registry.text()).histogram("t_seconds", {"a": "x"})
    assert view.count == len(values)
    true = sorted(values)[math.ceil(q * len(values) - 1e-9) - 1]
    upper = min(bound for bound in bounds if true <= bound)
    lower = max((bound for bound in bounds if bound < upper), default=0.0)
    assert lower <= view.quantile(q) <= upper + 1e-9
