"""Proves that instruments count correctly and that prometheus_client's parser reads back what was
observed.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kubesched.base.metrics import MetricsRegistry, SchedulerMetrics, exponential_buckets
from kubesched.base.metrics.instruments import format_number
from kubesched.base.metrics.process import register_process_metrics


def parsed(registry: MetricsRegistry) -> dict[str, dict[tuple, float]]:
    """Sample name -> {sorted label pairs: value}, as the foreign parser sees it."""
    samples: dict[str, dict[tuple, float]] = {}
    for family in text_string_to_metric_families(registry.text()):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return samples


def test_page_of_a_fresh_scheduler_shows_unlabelled_metrics_at_zero_and_no_labelled_ones():
    registry = MetricsRegistry()
    SchedulerMetrics(registry)
    samples = parsed(registry)
    assert samples["scheduler_preemption_attempts_total"] == {(): 0}
    assert samples["scheduler_pod_scheduling_attempts_count"] == {(): 0}
    assert "scheduler_schedule_attempts_total" not in registry.text()
    assert "scheduler_pending_pods" not in registry.text()


def test_a_value_on_the_bound_belongs_to_that_bucket():
    registry = MetricsRegistry()
    histogram = registry.histogram("t_seconds", "t", buckets=(1, 2, 4)).labels()
    for value in (0.5, 1, 1.5, 2, 4, 5):
        histogram.observe(value)
    buckets = {
        dict(labels)["le"]: value for labels, value in parsed(registry)["t_seconds_bucket"].items()
    }
    assert buckets == {"1": 2, "2": 4, "4": 5, "+Inf": 6}
    assert parsed(registry)["t_seconds_count"] == {(): 6}
    assert parsed(registry)["t_seconds_sum"] == {(): 14}


@given(st.lists(st.floats(min_value=0, max_value=100, allow_nan=False), max_size=60))
def test_buckets_are_cumulative_and_complete(values):
    registry = MetricsRegistry()
    bounds = exponential_buckets(0.001, 2, 15)
    histogram = registry.histogram("t_seconds", "t", buckets=bounds, labels=("who",)).labels("me")
    for value in values:
        histogram.observe(value)
    samples = parsed(registry)
    for labels, count in samples["t_seconds_bucket"].items():
        bound = float(dict(labels)["le"])
        assert count == sum(value <= bound for value in values)
    assert samples["t_seconds_sum"][(("who", "me"),)] == pytest.approx(sum(values))
    assert samples["t_seconds_count"][(("who", "me"),)] == len(values)


@given(st.text(alphabet=st.characters(blacklist_categories=("Cs",)), max_size=30))
def test_any_label_value_survives_the_page(value):
    registry = MetricsRegistry()
    registry.counter("t_total", "t", labels=("v",)).labels(value).inc(3)
    assert parsed(registry)["t_total"] == {(("v", value),): 3}


def test_help_text_is_escaped():
    registry = MetricsRegistry()
    registry.counter("t_total", "one\ntwo \\ three")
    assert registry.text().splitlines()[0] == "# HELP t_total one\\ntwo \\\\ three"


def test_families_come_by_name_and_series_by_label_values():
    registry = MetricsRegistry()
    zebra = registry.counter("zebra_total", "z", labels=("x",))
    registry.counter("ant_total", "a")
    for value in ("c", "a", "b"):
        zebra.labels(value).inc()
    registry.text()
    zebra.labels("aa")
    names = [line for line in registry.text().splitlines() if not line.startswith("#")]
    assert names == [
        "ant_total 0",
        'zebra_total{x="a"} 1',
        'zebra_total{x="aa"} 0',
        'zebra_total{x="b"} 1',
        'zebra_total{x="c"} 1',
    ]


def test_the_same_label_values_give_the_same_series():
    family = MetricsRegistry().counter("t_total", "t", labels=("a", "b"))
    assert family.labels("1", "2") is family.labels("1", "2")
    assert family.labels("1", "2") is not family.labels("2", "1")


def test_gauge_can_read_its_subject_when_the_page_is_written():
    registry = MetricsRegistry()
    queue: list[int] = []
    registry.gauge("t", "t").labels().read_from(lambda: len(queue))
    queue.extend([1, 2, 3])
    assert parsed(registry)["t"] == {(): 3}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(0.0, "0", id="zero is a whole number"),
        pytest.param(16.384, "16.384", id="fractions keep their shortest form"),
        pytest.param(1e-05, "1e-05", id="small numbers use an exponent"),
        pytest.param(3, "3", id="integers stay integers"),
        pytest.param(-2.0, "-2", id="gauges may be negative"),
        pytest.param(1e300, "1e+300", id="huge numbers do not become hundreds of digits"),
        pytest.param(math.inf, "+Inf", id="infinity has the format's spelling"),
        pytest.param(-math.inf, "-Inf", id="so has negative infinity"),
        pytest.param(math.nan, "NaN", id="and what is not a number"),
    ],
)
def test_numbers_are_written_as_the_format_wants(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize(
    "misuse",
    [
        pytest.param(
            lambda r: r.counter("t_total", "t").labels().inc(-1), id="a counter cannot decrease"
        ),
        pytest.param(
            lambda r: r.counter("t_total", "t", labels=("a",)).labels(),
            id="a label value is missing",
        ),
        pytest.param(
            lambda r: r.counter("t_total", "t", labels=("a",)).labels("x", "y"),
            id="a label value too many",
        ),
        pytest.param(
            lambda r: r.counter("t_total", "t", labels=("a",)).labels(1), id="label values are text"
        ),
        pytest.param(lambda r: r.counter("9lives", "t"), id="the name starts with a digit"),
        pytest.param(
            lambda r: r.counter("t_total", "t", labels=("a-b",)), id="the label name has a dash"
        ),
        pytest.param(
            lambda r: r.histogram("t", "t", buckets=(1,), labels=("le",)),
            id="le belongs to the histogram",
        ),
        pytest.param(lambda r: r.histogram("t", "t", buckets=()), id="a histogram needs buckets"),
        pytest.param(lambda r: r.histogram("t", "t", buckets=(1, 1)), id="bounds must grow"),
        pytest.param(
            lambda r: (r.counter("t_total", "t"), r.gauge("t_total", "t")), id="a name is taken"
        ),
    ],
)
def test_misuse_is_refused(misuse):
    with pytest.raises(ValueError, match=r"\w"):
        misuse(MetricsRegistry())


def test_process_metrics_are_on_the_page_and_plausible():
    registry = MetricsRegistry()
    register_process_metrics(registry)
    samples = parsed(registry)
    assert samples["process_cpu_seconds_total"][()] > 0
    assert samples["process_resident_memory_bytes"][()] > 1_000_000
    assert (
        samples["process_virtual_memory_bytes"][()] >= samples["process_resident_memory_bytes"][()]
    )
    assert 0 < samples["process_open_fds"][()] < samples["process_max_fds"][()]
    assert samples["process_start_time_seconds"][()] > 1_000_000_000
    (info,) = samples["python_info"]
    assert dict(info)["major"] == "3"
    assert set(samples["python_gc_collections_total"]) == {(("generation", g),) for g in "012"}
    assert set(samples["python_gc_objects_collected_total"]) == set(
        samples["python_gc_collections_total"]
    )
    assert set(samples["python_gc_objects_uncollectable_total"]) == set(
        samples["python_gc_collections_total"]
    )
