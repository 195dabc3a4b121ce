"""Proves that the scheduler's metrics are the ones dashboards for kube-scheduler expect.

The table below is the contract: name, type, labels, buckets, stability and the feature a metric
belongs to. It is compared with a live registry in both directions, so neither a missing nor an
extra metric passes.
"""

from __future__ import annotations

from collections.abc import Collection

import pytest

from kubesched.base.metrics import MetricsRegistry, SchedulerMetrics
from kubesched.base.metrics.scheduler import ENTITIES, ON_BY_DEFAULT, attempts_label

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
    "I": (0.001, 2, 16, 32.768),
    "J": (1, 2, 11, 1024),
}

ALWAYS = ""
"""1.37: without it the metrics are 1.36's."""
CONTRACT = [
    # name, type, labels, buckets, stability, gate
    ("schedule_attempts_total", "counter", "result,profile", "", "STABLE", ALWAYS),
    ("scheduling_attempt_duration_seconds", "histogram", "result,profile", "A", "STABLE", ALWAYS),
    ("scheduling_algorithm_duration_seconds", "histogram", "", "A", "BETA", ALWAYS),
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
        "BETA",
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
        ALWAYS,
    ),
    ("inflight_events", "gauge", "event", "", "ALPHA", ALWAYS),
    ("queued_entities", "gauge", "queue,type", "", "ALPHA", ENTITIES),
    ("queue_incoming_entities_total", "counter", "queue,event,type", "", "ALPHA", ENTITIES),
    ("pre_queueing_hint_evaluations_total", "counter", "plugin,result", "", "ALPHA", ENTITIES),
    ("batch_rescore_attempts_total", "counter", "profile", "", "ALPHA", ENTITIES),
    ("batch_rescore_duration_seconds", "histogram", "profile", "E", "ALPHA", ENTITIES),
    (
        "preemption_goroutines_execution_total",
        "counter",
        "result",
        "",
        "ALPHA",
        "SchedulerAsyncPreemption",
    ),
    (
        "async_api_call_execution_total",
        "counter",
        "call_type,result",
        "",
        "ALPHA",
        "SchedulerAsyncAPICalls",
    ),
    (
        "async_api_call_execution_duration_seconds",
        "histogram",
        "call_type,result",
        "A",
        "ALPHA",
        "SchedulerAsyncAPICalls",
    ),
    ("pending_async_api_calls", "gauge", "call_type", "", "ALPHA", "SchedulerAsyncAPICalls"),
    (
        "dynamic_resource_allocation_resourceclaim_creates_total",
        "counter",
        "status,admin_access,owner_api_group,owner_api_kind",
        "",
        "ALPHA",
        "DRAExtendedResource",
    ),
    (
        "dra_bindingconditions_allocations_total",
        "counter",
        "profile,driver,status",
        "",
        "ALPHA",
        "DRADeviceBindingConditions",
    ),
    (
        "dra_bindingconditions_wait_duration_seconds",
        "histogram",
        "profile,driver,status",
        "H",
        "ALPHA",
        "DRADeviceBindingConditions",
    ),
    (
        "podgroup_schedule_attempts_total",
        "counter",
        "result,profile",
        "",
        "ALPHA",
        "GenericWorkload",
    ),
    (
        "podgroup_scheduling_attempt_duration_seconds",
        "histogram",
        "result,profile",
        "A",
        "ALPHA",
        "GenericWorkload",
    ),
    (
        "podgroup_scheduling_algorithm_duration_seconds",
        "histogram",
        "",
        "A",
        "ALPHA",
        "GenericWorkload",
    ),
    ("workload_preemption_attempts_total", "counter", "result", "", "ALPHA", "GenericWorkload"),
    ("workload_preemption_victims", "histogram", "", "J", "ALPHA", "GenericWorkload"),
    (
        "preemption_workload_disruptions",
        "histogram",
        "preemptor",
        "J",
        "ALPHA",
        "GenericWorkload",
    ),
    (
        "preemption_evaluation_duration_seconds",
        "histogram",
        "preemptor,result",
        "I",
        "ALPHA",
        "GenericWorkload",
    ),
    (
        "preemption_execution_duration_seconds",
        "histogram",
        "preemptor,result",
        "I",
        "ALPHA",
        "GenericWorkload",
    ),
    ("preemption_pdb_violations_total", "counter", "preemptor", "", "ALPHA", "GenericWorkload"),
    ("shadow_decisions_total", "counter", "profile,of,result", "", "ALPHA", "shadows"),
    (
        "generated_placements_total",
        "counter",
        "profile",
        "",
        "ALPHA",
        "TopologyAwareWorkloadScheduling",
    ),
    (
        "placement_evaluations_total",
        "counter",
        "result,profile",
        "",
        "ALPHA",
        "TopologyAwareWorkloadScheduling",
    ),
    (
        "placement_evaluation_duration_seconds",
        "histogram",
        "result,profile",
        "A",
        "ALPHA",
        "TopologyAwareWorkloadScheduling",
    ),
    ("volume_binder_cache_requests_total", "counter", "operation", "", "ALPHA", ALWAYS),
    ("volume_scheduling_stage_error_total", "counter", "operation", "", "ALPHA", ALWAYS),
]
OF_1_36 = {
    "scheduling_algorithm_duration_seconds": ("histogram", "", "A", "ALPHA"),
    "plugin_execution_duration_seconds": (
        "histogram",
        "plugin,extension_point,status",
        "D",
        "ALPHA",
    ),
    "preemption_goroutines_duration_seconds": ("histogram", "result", "C", "ALPHA"),
    "resourceclaim_creates_total": ("counter", "status", "", "ALPHA"),
}
"""What 1.36 has instead: type, labels, buckets, stability."""
GATES = sorted({row[5] for row in CONTRACT} - {ALWAYS})
ALL_ON = frozenset(GATES)


def registered(conditions: Collection[str]) -> dict[str, object]:
    registry = MetricsRegistry()
    SchedulerMetrics(registry, conditions)
    return {family.name: family for family in registry.families()}


def full_name(name: str) -> str:
    return name if name.startswith("dynamic_") else "scheduler_" + name


def test_the_registry_holds_the_contract_and_nothing_else():
    assert set(registered(ALL_ON)) == {full_name(row[0]) for row in CONTRACT}


def test_the_metrics_of_1_36():
    families = registered(ALL_ON - {ENTITIES})
    kept = {
        full_name(row[0])
        for row in CONTRACT
        if row[5] != ENTITIES and not row[0].startswith("dynamic_")
    }
    assert set(families) == kept | {"scheduler_" + name for name in OF_1_36}
    for name, (kind, labels, buckets, stability) in OF_1_36.items():
        check(families["scheduler_" + name], kind, labels, buckets, stability)


def test_a_deprecated_metric_is_hidden_until_asked_for():
    """T51 of 1.37."""
    name = "scheduler_preemption_goroutines_duration_seconds"
    assert name not in registered(ALL_ON)
    registry = MetricsRegistry(shows_hidden=True)
    SchedulerMetrics(registry, ALL_ON)
    (shown,) = [family for family in registry.families() if family.name == name]
    assert shown.help.startswith("[ALPHA] (Deprecated since 1.37.0) ")
    check(shown, "histogram", "result", "C", "ALPHA")


def test_claims_are_counted_with_their_owner():
    """T39."""
    lines = {}
    for conditions in (ON_BY_DEFAULT, ON_BY_DEFAULT - {ENTITIES}):
        registry = MetricsRegistry()
        SchedulerMetrics(registry, conditions).count_created_claim("success")
        lines[ENTITIES in conditions] = [
            line for line in registry.text().splitlines() if "_creates_total{" in line
        ]
    labels = 'status="success",admin_access="false",owner_api_group="",owner_api_kind="Pod"'
    assert lines == {
        True: [f"dynamic_resource_allocation_resourceclaim_creates_total{{{labels}}} 1"],
        False: ['scheduler_resourceclaim_creates_total{status="success"} 1'],
    }


@pytest.mark.parametrize(
    ("name", "kind", "labels", "buckets", "stability", "gate"),
    CONTRACT,
    ids=[row[0] for row in CONTRACT],
)
def test_metric_matches_its_contract(name, kind, labels, buckets, stability, gate):
    check(registered(ALL_ON)[full_name(name)], kind, labels, buckets, stability)


def check(family, kind, labels, buckets, stability):
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


@pytest.mark.parametrize("gate", [gate for gate in GATES if gate != ENTITIES])
def test_metrics_of_a_feature_are_listed_only_when_it_is_on(gate):
    own = {full_name(row[0]) for row in CONTRACT if row[5] == gate}
    off = registered(ALL_ON - {gate})
    assert own.isdisjoint(off)
    assert set(off) | own == set(registered(ALL_ON))


def test_default_gates_are_those_of_this_version():
    listed = {row[5] for row in CONTRACT if full_name(row[0]) in registered(ON_BY_DEFAULT)}
    assert listed == {
        ALWAYS,
        ENTITIES,
        "SchedulerAsyncPreemption",
        "DRAExtendedResource",
        "DRADeviceBindingConditions",
    }


def test_instruments_of_a_feature_that_is_off_can_be_used_and_stay_off_the_page():
    registry = MetricsRegistry()
    metrics = SchedulerMetrics(registry)
    metrics.podgroup_schedule_attempts_total.labels("scheduled", "default-scheduler").inc()
    assert "podgroup" not in registry.text()


def test_every_metric_is_an_attribute_named_like_it():
    attributes = {
        name for name in vars(SchedulerMetrics(MetricsRegistry(), ALL_ON)) if name[0] != "_"
    }
    hidden = {"preemption_goroutines_duration_seconds"}
    named = {row[0] for row in CONTRACT if not row[0].startswith("dynamic_")}
    assert named | hidden == attributes


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
