"""Every metric a running scheduler should move is moved, at the moment and with the labels the
specification says.

Names, types, labels and buckets are `test_metrics_contract`'s subject; those of features that are
off are not here.
"""

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kubesched.base.errors import ServerError
from kubesched.framework.interfaces import (
    PermitPlugin,
    PreBindPlugin,
    PreBindPreFlightResult,
    Wait,
)
from kubesched.framework.status import unschedulable
from kubesched.scheduler import scheduler as scheduler_module
from kubesched.testing import Cluster, make_node, make_pod

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
PROFILE = "default-scheduler"


@pytest.fixture(autouse=True)
def _every_attempt_is_timed(monkeypatch):
    monkeypatch.setattr(scheduler_module, "PLUGIN_METRICS_SAMPLE_PERCENT", 100)


def values(harness):
    """Sample name and labels -> value."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(harness.metrics.text())
        for sample in family.samples
    }


def value(harness, name, **labels):
    return values(harness).get((f"scheduler_{name}", *sorted(labels.items())))


def label_sets(harness, name, label):
    return {dict(key[1:])[label] for key in values(harness) if key[0] == f"scheduler_{name}"}


def test_what_is_on_the_page_before_anything_happened():
    with Cluster() as harness:
        harness.settle()
        for queue in ("active", "backoff", "unschedulable", "gated"):
            assert value(harness, "pending_pods", queue=queue) == 0
        for kind in ("nodes", "pods", "assumed_pods"):
            assert value(harness, "cache_size", type=kind) == 0
        for point, plugin in (
            ("PreFilter", "NodeResourcesFit"),
            ("Filter", "TaintToleration"),
            ("PreScore", "PodTopologySpread"),
            ("Score", "ImageLocality"),
        ):
            labels = {"plugin": plugin, "extension_point": point, "profile": PROFILE}
            assert value(harness, "plugin_evaluation_total", **labels) == 0
        assert value(harness, "pod_scheduled_after_flush_total") == 0


def test_a_bound_pod_moves_everything_about_success():
    with Cluster() as harness:
        harness.add(make_node("n1").build())
        harness.add(make_node("n2").build())
        harness.add(make_pod("a").cpu("1").build())
        harness.settle()
        labels = {"result": "scheduled", "profile": PROFILE}
        assert value(harness, "schedule_attempts_total", **labels) == 1
        assert value(harness, "scheduling_attempt_duration_seconds_count", **labels) == 1
        assert value(harness, "scheduling_algorithm_duration_seconds_count") == 1
        assert value(harness, "pod_scheduling_sli_duration_seconds_count", attempts="1") == 1
        assert value(harness, "pod_scheduling_attempts_count") == 1
        incoming = {"queue": "active", "event": "UnscheduledPodAdd"}
        assert value(harness, "queue_incoming_pods_total", **incoming) == 1
        assert value(harness, "event_handling_duration_seconds_count", event="NodeAdd") == 2
        assert (
            value(harness, "event_handling_duration_seconds_count", event="UnscheduledPodAdd") == 1
        )
        assert value(harness, "event_handling_duration_seconds_count", event="AssignedPodAdd") == 1
        assert value(harness, "goroutines", operation="binding") == 0


def test_every_extension_point_of_an_attempt_is_timed():
    with Cluster() as harness:
        for name in ("n1", "n2"):
            harness.add(make_node(name).build())
        harness.add(make_pod("a").build())
        harness.settle()
        points = label_sets(
            harness, "framework_extension_point_duration_seconds_count", "extension_point"
        )
        expected = {
            "PreEnqueue",
            "Sign",
            "PreFilter",
            "Filter",
            "PreScore",
            "Score",
            "Reserve",
            "Permit",
            "PreBindPreFlight",
            "Bind",
        }
        assert expected <= points
        skipped = {
            "extension_point": "PreBindPreFlight",
            "status": "Skip",
            "profile": PROFILE,
        }
        assert value(harness, "framework_extension_point_duration_seconds_count", **skipped) == 1


def test_plugins_are_timed_in_sampled_attempts():
    with Cluster(classes=False) as harness:
        for name in ("n1", "n2"):
            harness.add(make_node(name).build())
        harness.add(make_pod("a").build())
        harness.settle()
        for plugin, point, status in (
            ("NodeResourcesFit", "PreFilter", "Success"),
            ("NodeResourcesFit", "Filter", "Success"),
            ("NodeAffinity", "PreFilter", "Skip"),
            ("NodeResourcesFit", "Score", "Success"),
            ("DefaultBinder", "Bind", "Success"),
            ("SchedulingGates", "PreEnqueue", "Success"),
        ):
            if point == "PreEnqueue":
                continue  # sampled by the queue's own dice
            labels = {"plugin": plugin, "extension_point": point, "status": status}
            counted = value(harness, "plugin_execution_duration_seconds_count", **labels)
            assert counted is not None, labels
            assert counted >= 1, labels


def test_an_attempt_outside_the_sample_times_no_plugin(monkeypatch):
    monkeypatch.setattr(scheduler_module, "PLUGIN_METRICS_SAMPLE_PERCENT", 0)
    with Cluster(classes=False) as harness:
        harness.add(make_node("n1").build())
        harness.add(make_pod("a").build())
        harness.settle()
        points = label_sets(harness, "plugin_execution_duration_seconds_count", "extension_point")
        assert points <= {"PreEnqueue", "Sign"}


@pytest.mark.parametrize("classes", [True, False], ids=["with pod classes", "without"])
def test_evaluations_count_attempts_in_which_a_plugin_took_part(classes):
    with Cluster(classes=classes) as harness:
        for name in ("n1", "n2"):
            harness.add(make_node(name).build())
        for name in ("a", "b", "c"):
            harness.add(make_pod(name).cpu("1").build())
        harness.settle()

        def evaluated(plugin, point):
            labels = {"plugin": plugin, "extension_point": point, "profile": PROFILE}
            return value(harness, "plugin_evaluation_total", **labels)

        assert evaluated("NodeResourcesFit", "PreFilter") == 3
        assert evaluated("NodeResourcesFit", "Filter") == 3
        assert evaluated("NodeResourcesFit", "Score") == 3
        # A pod without affinity: the plugin opts out and is not asked about nodes.
        assert evaluated("NodeAffinity", "PreFilter") == 0
        assert evaluated("NodeAffinity", "Filter") == 0


def test_a_pod_that_fits_nowhere_is_counted_by_plugin_until_it_does():
    with Cluster() as harness:
        harness.add(make_node("n1").offers("cpu", "1").build())
        harness.add(make_pod("big").cpu("100").build())
        harness.settle()
        labels = {"result": "unschedulable", "profile": PROFILE}
        assert value(harness, "schedule_attempts_total", **labels) == 1
        assert value(harness, "scheduling_attempt_duration_seconds_count", **labels) == 1
        assert value(harness, "scheduling_algorithm_duration_seconds_count") == 1
        rejected = {"plugin": "NodeResourcesFit", "profile": PROFILE}
        assert value(harness, "unschedulable_pods", **rejected) == 1
        assert value(harness, "pending_pods", queue="unschedulable") == 1
        assert value(harness, "preemption_attempts_total") == 1
        incoming = {"queue": "unschedulable", "event": "ScheduleAttemptFailure"}
        assert value(harness, "queue_incoming_pods_total", **incoming) == 1
        harness.add(make_node("n2").offers("cpu", "200").build())
        harness.advance(20)
        assert value(harness, "unschedulable_pods", **rejected) == 0
        assert value(harness, "pod_scheduling_sli_duration_seconds_count", attempts="2") == 1
        hint = {"plugin": "NodeResourcesFit", "event": "NodeAdd", "hint": "Queue"}
        assert value(harness, "queueing_hint_execution_duration_seconds_count", **hint) == 1


def test_a_binding_that_fails_is_an_error():
    with Cluster() as harness:

        def refuse(*_arguments):
            raise ServerError("down")

        harness.client.before["bind_pod"] = refuse
        harness.add(make_node("n1").build())
        harness.add(make_pod("a").build())
        harness.settle()
        labels = {"result": "error", "profile": PROFILE}
        assert value(harness, "schedule_attempts_total", **labels) >= 1
        failed = {"extension_point": "Bind", "status": "Error", "profile": PROFILE}
        assert value(harness, "framework_extension_point_duration_seconds_count", **failed) >= 1
        timed = {"plugin": "DefaultBinder", "extension_point": "Bind", "status": "Error"}
        assert value(harness, "plugin_execution_duration_seconds_count", **timed) >= 1


class Waiting(PermitPlugin):
    name = "Waiting"

    def permit(self, state, pod, node_name):
        return Wait(30.0)


def test_a_wait_on_permit_is_measured():
    config = (
        f"{HEADER}profiles:\n- schedulerName: default-scheduler\n"
        "  plugins:\n    permit: {enabled: [{name: Waiting}]}\n"
    )
    with Cluster(config=config, plugins=[Waiting]) as harness:
        harness.add(make_node("n1").build())
        pod = make_pod("a").build()
        harness.add(pod)
        harness.settle()
        assert value(harness, "goroutines", operation="binding") == 1
        harness.clock.advance(2.0)
        waiting = harness.assembly.waiting_pods.get(pod.metadata.uid)
        waiting.allow("Waiting")
        harness.settle()
        assert value(harness, "permit_wait_duration_seconds_count", result="Success") == 1
        assert value(harness, "permit_wait_duration_seconds_sum", result="Success") == 2.0
        timed = {"plugin": "Waiting", "extension_point": "Permit", "status": "Wait"}
        assert value(harness, "plugin_execution_duration_seconds_count", **timed) == 1


class Preparing(PreBindPlugin):
    name = "Preparing"

    def pre_bind_pre_flight(self, state, pod, node_name):
        return PreBindPreFlightResult(allow_parallel=True)

    async def pre_bind(self, state, pod, node_name):
        await asyncio.sleep(1.0)


class PreparingToo(Preparing):
    name = "PreparingToo"


def test_plugins_that_prepare_a_binding_side_by_side_are_counted_while_they_do():
    config = (
        f"{HEADER}profiles:\n- schedulerName: default-scheduler\n"
        "  plugins:\n    preBind: {enabled: [{name: Preparing}, {name: PreparingToo}]}\n"
    )
    with Cluster(config=config, plugins=[Preparing, PreparingToo]) as harness:
        harness.add(make_node("n1").build())
        harness.add(make_pod("a").build())
        harness.settle()
        assert value(harness, "goroutines", operation="PreBind") == 2
        harness.advance(2.0)
        assert harness.client.bindings == {"default/a": "n1"}
        assert value(harness, "goroutines", operation="PreBind") == 0


class Moody(PermitPlugin):
    """Changes its mind without an event that would tell of it."""

    name = "Moody"
    mood = "bad"

    def permit(self, state, pod, node_name):
        return unschedulable("not today") if Moody.mood == "bad" else None


def test_pods_that_only_the_flush_brought_back_are_counted(monkeypatch):
    monkeypatch.setattr(Moody, "mood", "bad")
    config = (
        f"{HEADER}profiles:\n- schedulerName: default-scheduler\n"
        "  plugins:\n    permit: {enabled: [{name: Moody}]}\n"
    )
    with Cluster(config=config, plugins=[Moody]) as harness:
        harness.add(make_node("n1").build())
        harness.add(make_pod("a").build())
        harness.settle()
        Moody.mood = "good"
        harness.advance(60)
        assert harness.pod("a").spec.node_name == ""
        for _ in range(3):  # until it is overdue, until the next flush, until its backoff is over
            harness.advance(300)
        assert harness.pod("a").spec.node_name == "n1"
        assert value(harness, "pod_scheduled_after_flush_total") == 1


def test_a_slow_attempt_says_where_the_time_went(caplog):
    class Slow(PermitPlugin):
        name = "Slow"

        def permit(self, state, pod, node_name):
            harness.clock.advance(0.25)

    config = (
        f"{HEADER}profiles:\n- schedulerName: default-scheduler\n"
        "  plugins:\n    permit: {enabled: [{name: Slow}]}\n"
    )
    with Cluster(config=config, plugins=[Slow]) as harness:
        harness.add(make_node("n1").build())
        with caplog.at_level("INFO"):
            harness.add(make_pod("a").build())
            harness.settle()
    (record,) = [each for each in caplog.records if each.msg == "Slow scheduling attempt"]
    assert record.values["milliseconds"] == 250.0
    assert record.values["steps"]["Permit"] == 250.0


def test_an_ordinary_attempt_says_nothing(caplog):
    with Cluster() as harness:
        harness.add(make_node("n1").build())
        with caplog.at_level("INFO"):
            harness.add(make_pod("a").build())
            harness.settle()
    assert not [each for each in caplog.records if each.msg == "Slow scheduling attempt"]


def test_at_verbosity_ten_every_score_is_logged(caplog):
    with Cluster() as harness:
        for name in ("n1", "n2"):
            harness.add(make_node(name).build())
        with caplog.at_level(10):
            harness.add(make_pod("a").cpu("1").build())
            harness.settle()
    totals = {}
    for record in caplog.records:
        if record.msg == "Plugin scored node for pod":
            node = record.values["node"]
            totals[node] = totals.get(node, 0) + record.values["score"]
    final = {
        record.values["node"]: record.values["score"]
        for record in caplog.records
        if record.msg == "Calculated node's final score for pod"
    }
    assert set(final) == {"n1", "n2"}
    assert totals == final
