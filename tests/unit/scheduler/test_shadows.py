"""Shadow profiles: what they say about decisions, and that they change none."""

from __future__ import annotations

import pytest

from kubesched.base.errors import ConfigError
from kubesched.config.load import load
from kubesched.framework import FilterPlugin, ScorePlugin, unschedulable
from kubesched.testing import Cluster, make_node, make_pod

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: candidate
{more}
  shadow:
    of: default-scheduler
"""
PACKING = """\
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: MostAllocated
        resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}]
  plugins:
    score:
      disabled: [{name: NodeResourcesBalancedAllocation}]
"""


class OnlyOdd(FilterPlugin):
    """Rejects n0, n2, ..."""

    name = "OnlyOdd"

    def filter(self, state, pod, node):
        return None if int(node.node.metadata.name[1:]) % 2 else unschedulable("node(s) were even")


class OnlyEven(FilterPlugin):
    """Rejects n1, n3, ..."""

    name = "OnlyEven"

    def filter(self, state, pod, node):
        return unschedulable("node(s) were odd") if int(node.node.metadata.name[1:]) % 2 else None


class Raises(ScorePlugin):
    """Fails for every pod, and would fail an attempt."""

    name = "Raises"

    def score(self, state, pod, node):
        raise RuntimeError("broken candidate")


def enabled(plugin):
    return f"  plugins: {{multiPoint: {{enabled: [{{name: {plugin}}}]}}}}"


def nodes(count, cpu="8"):
    return [
        make_node(f"n{i}").capacity(cpu=cpu, memory="16Gi", pods=110).build() for i in range(count)
    ]


def played(config, objects, pods, **options):
    with Cluster(objects, config, **options) as cluster:
        for pod in pods:
            cluster.add(pod)
            cluster.settle()
        return cluster


def shadow_of(cluster):
    (shadow,) = cluster.assembly.shadows.all
    return shadow


def pods(count, cpu="500m"):
    return [make_pod(f"p{i}").cpu(cpu).memory("512Mi").build() for i in range(count)]


def test_an_equal_candidate_agrees_always_and_ties_count_as_ties():
    cluster = played(CONFIG.format(more=""), nodes(4), pods(10))
    shadow = shadow_of(cluster)
    assert set(shadow.counts) == {"same", "tie"}
    assert sum(shadow.counts.values()) == 10
    assert not shadow.differences


@pytest.mark.parametrize("classes", [True, False])
def test_a_difference_names_the_nodes_and_the_score_plugin(classes):
    cluster = played(CONFIG.format(more=PACKING), nodes(2), pods(4), classes=classes)
    shadow = shadow_of(cluster)
    assert shadow.counts["different"] >= 1
    made = shadow.differences[0]
    assert (made.pod, made.plugin) == ("p1", "NodeResourcesFit")
    assert {made.live, made.shadow} == {"n0", "n1"}
    assert made.reason.startswith("+")
    report = shadow.report()
    live, candidate = report["placed"]["live"], report["placed"]["shadow"]
    assert (live["pods"], live["nodes"]) == (4, 2)
    # The model: where the candidate would have put each pod, as things stood.
    assert candidate["pods"] == 4


def test_a_filter_that_differs_is_named_whichever_side_rejects():
    cluster = played(CONFIG.format(more=enabled("OnlyOdd")), nodes(1), pods(1), plugins=[OnlyOdd])
    (made,) = shadow_of(cluster).differences
    assert (made.result, made.live, made.shadow) == ("only_live", "n0", "")
    assert (made.plugin, made.reason) == ("OnlyOdd", "node(s) were even")


def test_a_node_that_only_the_candidate_finds_is_explained_by_the_live_filter():
    config = CONFIG.format(more="").replace(
        "- schedulerName: default-scheduler",
        f"- schedulerName: default-scheduler\n{enabled('OnlyOdd')}",
    )
    with Cluster(nodes(1), config, plugins=[OnlyOdd]) as cluster:
        cluster.add(make_pod("a").cpu("1").build())
        cluster.settle()
        shadow = shadow_of(cluster)
        (made,) = shadow.differences
        assert (made.result, made.live, made.shadow) == ("only_shadow", "", "n0")
        assert (made.plugin, made.reason) == ("OnlyOdd", "node(s) were even")
        # The pod waits for a node that suits the live profile: the wait is what the candidate
        # saves.
        cluster.advance(30)
        cluster.add(make_node("n1").capacity(cpu="8", memory="16Gi", pods=110).build())
        cluster.run()
        assert cluster.node_of("a") == "n1"
        assert shadow.waited_pods == 1
        assert shadow.waited_s >= 30


def test_each_of_two_filters_rejects_the_other_ones_node():
    config = CONFIG.format(more=enabled("OnlyOdd")).replace(
        "- schedulerName: default-scheduler",
        f"- schedulerName: default-scheduler\n{enabled('OnlyEven')}",
    )
    cluster = played(config, nodes(2), pods(1), plugins=[OnlyOdd, OnlyEven])
    (made,) = shadow_of(cluster).differences
    assert (made.result, made.live, made.shadow) == ("different", "n0", "n1")
    assert made.plugin == "OnlyEven"


def test_pods_that_fit_nowhere_agree():
    cluster = played(CONFIG.format(more=""), nodes(2, cpu="1"), pods(1, cpu="4"))
    assert dict(shadow_of(cluster).counts) == {"neither": 1}


def test_a_broken_candidate_is_counted_and_harms_nothing():
    cluster = played(CONFIG.format(more=enabled("Raises")), nodes(3), pods(5), plugins=[Raises])
    shadow = shadow_of(cluster)
    assert dict(shadow.counts) == {"error": 5}
    assert "broken candidate" in shadow.last_error
    assert len(cluster.placements()) == 5


@pytest.mark.parametrize("sampled", ["", "percentageOfNodesToScore: 20\n"])
def test_live_decisions_metrics_and_calls_are_the_same_with_and_without_a_shadow(sampled):
    def outcome(config):
        cluster = played(config, nodes(150), pods(120, cpu="3"))
        lines = cluster.metrics.text().splitlines()
        counted = [
            line for line in lines if "scheduler_shadow" not in line
        ]  # virtual time: durations, too
        return cluster.placements(), cluster.client.bindings, cluster.events, counted

    alone = CONFIG.format(more=PACKING).partition("- schedulerName: candidate")[0]
    assert outcome(sampled + CONFIG.format(more=PACKING)) == outcome(sampled + alone)


def test_pods_of_the_candidates_name_are_nobodys():
    with Cluster(nodes(1), CONFIG.format(more="")) as cluster:
        cluster.add(make_pod("a").cpu("1").scheduler("candidate").build())
        cluster.settle()
        assert not cluster.node_of("a")


def test_agreement_is_on_the_metrics_page_only_with_a_shadow():
    with Cluster(nodes(1), CONFIG.format(more="")) as cluster:
        cluster.add(make_pod("a").cpu("1").build())
        cluster.settle()
        family = cluster.assembly.scheduler.metrics.shadow_decisions_total
        assert family.labels("candidate", "default-scheduler", "same").value == 1
        assert "scheduler_shadow_decisions_total" in cluster.metrics.text()
    with Cluster(nodes(1)) as cluster:
        assert "scheduler_shadow_decisions_total" not in cluster.metrics.text()


@pytest.mark.parametrize(
    ("shadow", "problem"),
    [
        ("shadow: {}", "profiles[1].shadow.of: Required value"),
        (
            "shadow: {of: candidate}",
            'profiles[1].shadow.of: Invalid value: "candidate": must name a profile without',
        ),
        ("shadow: {of: nobody}", "must name a profile without shadow: default-scheduler"),
        ("shadow: {for: x}", 'unknown field "for"'),
    ],
)
def test_bad_shadows_are_refused_with_their_place(shadow, problem):
    text = CONFIG.format(more="").partition("  shadow:")[0] + f"  {shadow}\n"
    with pytest.raises(ConfigError) as refused:
        load(text.encode(), "f.yaml")
    assert problem in str(refused.value)
    assert all(found.line for found in refused.value.problems)


def test_extenders_beside_a_shadow_are_refused():
    text = CONFIG.format(more="") + "extenders:\n- urlPrefix: http://127.0.0.1:1\n  filterVerb: f\n"
    with pytest.raises(ConfigError, match="does not ask extenders"):
        load(text.encode())
