"""Proves that the scheduler's metrics are the ones dashboards for kube-scheduler expect.

The table below is the contract: name, type, labels, buckets, stability and the feature a metric belongs to. It is
compared with a live registry in both directions, so neither a missing nor an extra metric passes.
"""

from __future__ import annotations

import pytest

from kubesched.base.metrics import MetricGates, MetricsRegistry, SchedulerMetrics
from kubesched.base.metrics.scheduler import attempts_label

# Bucket families: (start, factor, count, last bound rounded).
BUCKETS = {
    "A": (0.001, 2, 15, 16.384),
    "B": (0.0001, 2, 12, 0.2048),
    "C": (0.01, 2, 20, 5242.88),
    "D": (0.00001, 1.5, 20, 0.0222),
    "E": (0.00001, 2, 12, 0.02048),
    "F": (1, 2, 7, 64),
    "G": (1, 2, 5, 16),
    "H": (0.1, 2, 14, 819.2),
}

ALWAYS = ""
CONTRACT = [
    # name, type, labels, buckets, stability, gate
    ("schedule_attempts_total", "counter", "result,profile", "", "STABLE", ALWAYS),
    ("scheduling_attempt_duration_seconds", "histogram", "result,profile", "A", "STABLE", ALWAYS),
    ("scheduling_algorithm_duration_seconds", "histogram", "", "A", "ALPHA", ALWAYS),
    ("event_handling_duration_seconds", "histogram", "event", "B", "ALPHA", ALWAYS),
    ("preemption_victims", "histogram", "", "F", "STABLE", ALWAYS),
    ("preemption_attempts_total", "counter", "", "", "STABLE", ALWAYS),
    ("pending_pods", "gauge", "queue", "", "STABLE", ALWAYS),
    ("pod_scheduling_sli_duration_seconds", "histogram", "attempts", "C", "BETA", ALWAYS),
    ("pod_scheduling_attempts", "histogram", "", "G", "STABLE", ALWAYS),
    ("pod_scheduled_after_flush_total", "counter", "", "", "ALPHA", ALWAYS),
    (
        "framework_extension_point_duration_seconds",
        "histogram",
        "extension_point,status,profile",
        "B",
        "STABLE",
        ALWAYS,
    ),
    (
        "plugin_execution_duration_seconds",
        "histogram",
        "plugin,extension_point,status",
        "D",
        "ALPHA",
        ALWAYS,
    ),
    ("queue_incoming_pods_total", "counter", "queue,event", "", "STABLE", ALWAYS),
    ("goroutines", "gauge", "operation", "", "BETA", ALWAYS),
    ("permit_wait_duration_seconds", "histogram", "result", "A", "BETA", ALWAYS),
    ("cache_size", "gauge", "type", "", "ALPHA", ALWAYS),
    ("unschedulable_pods", "gauge", "plugin,profile", "", "BETA", ALWAYS),
    ("plugin_evaluation_total", "counter", "plugin,extension_point,profile", "", "BETA", ALWAYS),
    ("batch_attempts_total", "counter", "profile,result", "", "ALPHA", ALWAYS),
    ("batch_cache_flushed_total", "counter", "profile,reason", "", "ALPHA", ALWAYS),
    ("get_node_hint_duration_seconds", "histogram", "hinted,profile", "E", "ALPHA", ALWAYS),
    ("store_schedule_results_duration_seconds", "histogram", "profile", "E", "ALPHA", ALWAYS),
    (
        "queueing_hint_execution_duration_seconds",
        "histogram",
        "plugin,event,hint",
        "D",
        "ALPHA",
        "queueing_hints",
    ),
    ("inflight_events", "gauge", "event", "", "ALPHA", "queueing_hints"),
    (
        "preemption_goroutines_duration_seconds",
        "histogram",
        "result",
        "C",
        "ALPHA",
        "async_preemption",
    ),
    ("preemption_goroutines_execution_total", "counter", "result", "", "ALPHA", "async_preemption"),
    (
        "async_api_call_execution_total",
        "counter",
        "call_type,result",
        "",
        "ALPHA",
        "async_api_calls",
    ),
    (
        "async_api_call_execution_duration_seconds",
        "histogram",
        "call_type,result",
        "A",
        "ALPHA",
        "async_api_calls",
    ),
    ("pending_async_api_calls", "gauge", "call_type", "", "ALPHA", "async_api_calls"),
    ("resourceclaim_creates_total", "counter", "status", "", "ALPHA", "dra_extended_resource"),
    (
        "dra_bindingconditions_allocations_total",
        "counter",
        "profile,driver,status",
        "",
        "ALPHA",
        "dra_device_binding_conditions",
    ),
    (
        "dra_bindingconditions_wait_duration_seconds",
        "histogram",
        "profile,driver,status",
        "H",
        "ALPHA",
        "dra_device_binding_conditions",
    ),
    (
        "podgroup_schedule_attempts_total",
        "counter",
        "result,profile",
        "",
        "ALPHA",
        "generic_workload",
    ),
    (
        "podgroup_scheduling_attempt_duration_seconds",
        "histogram",
        "result,profile",
        "A",
        "ALPHA",
        "generic_workload",
    ),
    (
        "podgroup_scheduling_algorithm_duration_seconds",
        "histogram",
        "",
        "A",
        "ALPHA",
        "generic_workload",
    ),
    ("volume_binder_cache_requests_total", "counter", "operation", "", "ALPHA", ALWAYS),
    ("volume_scheduling_stage_error_total", "counter", "operation", "", "ALPHA", ALWAYS),
]
GATES = sorted({row[5] for row in CONTRACT} - {ALWAYS})
ALL_ON = MetricGates(**dict.fromkeys(GATES, True))


def registered(gates: MetricGates) -> dict[str, object]:
    registry = MetricsRegistry()
    SchedulerMetrics(registry, gates)
    return {family.name: family for family in registry.families()}


def test_the_registry_holds_the_contract_and_nothing_else():
    assert set(registered(ALL_ON)) == {"scheduler_" + row[0] for row in CONTRACT}


@pytest.mark.parametrize(
    ("name", "kind", "labels", "buckets", "stability", "gate"),
    CONTRACT,
    ids=[row[0] for row in CONTRACT],
)
def test_metric_matches_its_contract(name, kind, labels, buckets, stability, gate):
    family = registered(ALL_ON)["scheduler_" + name]
    assert family.type == kind
    assert family.label_names == tuple(filter(None, labels.split(",")))
    assert family.help.startswith(f"[{stability}] ")
    assert len(family.help) > len(f"[{stability}] ") + 10
    if buckets:
        start, factor, count, last = BUCKETS[buckets]
        assert len(family.bounds) == count
        assert family.bounds == pytest.approx([start * factor**i for i in range(count)], rel=1e-12)
        assert family.bounds[-1] == pytest.approx(last, rel=2e-3)
    else:
        assert family.bounds == ()


@pytest.mark.parametrize("gate", GATES)
def test_metrics_of_a_feature_are_listed_only_when_it_is_on(gate):
    own = {"scheduler_" + row[0] for row in CONTRACT if row[5] == gate}
    off = registered(MetricGates(**{**dict.fromkeys(GATES, True), gate: False}))
    assert own.isdisjoint(off)
    assert set(off) | own == set(registered(ALL_ON))


def test_default_gates_are_those_of_this_version():
    listed = {row[5] for row in CONTRACT if "scheduler_" + row[0] in registered(MetricGates())}
    assert listed == {
        ALWAYS,
        "queueing_hints",
        "async_preemption",
        "dra_extended_resource",
        "dra_device_binding_conditions",
    }


def test_instruments_of_a_feature_that_is_off_can_be_used_and_stay_off_the_page():
    registry = MetricsRegistry()
    metrics = SchedulerMetrics(registry, MetricGates(generic_workload=False))
    metrics.podgroup_schedule_attempts_total.labels("scheduled", "default-scheduler").inc()
    assert "podgroup" not in registry.text()


def test_every_metric_is_an_attribute_named_like_it():
    metrics = SchedulerMetrics(MetricsRegistry(), ALL_ON)
    assert {row[0] for row in CONTRACT} == set(vars(metrics))


@pytest.mark.parametrize(
    ("attempts", "label"),
    [
        pytest.param(1, "1", id="the first attempt is counted exactly"),
        pytest.param(14, "14", id="fourteen is the last exact number"),
        pytest.param(15, "15+", id="from fifteen on all share one label"),
        pytest.param(400, "15+", id="hundreds of attempts share it too"),
    ],
)
def test_attempts_label(attempts, label):
    assert attempts_label(attempts) == label
