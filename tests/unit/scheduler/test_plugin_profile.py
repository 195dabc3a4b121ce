"""The profile of plugins: calls, rows, and whether answers are kept."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from kubesched.app.cli import plugin_work
from kubesched.base.clock import SystemClock
from kubesched.base.metrics.registry import MetricsRegistry
from kubesched.framework import FilterPlugin, Rule, Scope, ScorePlugin
from kubesched.scheduler import scheduler as loop
from kubesched.scheduler.plugin_profile import Blocked, PluginProfile, as_text, plugin_costs
from kubesched.scheduler.watchdog import LoopWatchdog
from kubesched.testing import Cluster, make_node, make_pod

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {multiPoint: {enabled: [{name: Asked}, {name: Single}, {name: Brief}]}}}]
"""


class Asked(FilterPlugin, ScorePlugin):
    """Has no rule: is asked about every node for every pod."""

    name = "Asked"

    def filter_nodes(self, state, pod, nodes):
        return None

    def score_nodes(self, state, pod, nodes):
        return 1

    def score_rule(self, state, pod):
        return Rule()


class Single(FilterPlugin):
    """Answers one node at a time, and is asked once."""

    name = "Single"

    def filter(self, state, pod, node_info):
        return None

    def filter_rule(self, state, pod):
        return Rule(Scope.NODE)


class Brief(FilterPlugin):
    """Its rule is for one attempt."""

    name = "Brief"

    def filter(self, state, pod, node_info):
        return None

    def filter_rule(self, state, pod):
        return Rule(Scope.NODE, premise=None)


@pytest.fixture
def costs(monkeypatch):
    monkeypatch.setattr(loop, "PLUGIN_METRICS_SAMPLE_PERCENT", 100)
    nodes = [make_node(f"n{number}").build() for number in range(8)]
    with Cluster(nodes, CONFIG, plugins=[Asked, Single, Brief]) as cluster:
        cluster.add(*(make_pod(f"p{number}").build() for number in range(5)))
        cluster.settle()
        assert len(cluster.placements()) == 5
        found = plugin_costs(cluster.assembly)
    return {(cost.plugin, cost.point): cost for cost in found}


def test_a_plugin_without_a_rule_is_asked_about_every_node_for_every_pod(costs):
    asked = costs["Asked", "Filter"]
    assert (asked.calls, asked.rows) == (5, 40)
    assert asked.answers == "not kept for 1: no rule"
    assert (
        costs["Asked", "Score"].answers == "not kept for 1: the rule depends on the whole cluster"
    )
    assert costs["Brief", "Filter"].rows == 40
    assert costs["Brief", "Filter"].answers == "not kept for 1: the rule is for one attempt"


def test_kept_answers_are_asked_for_once(costs):
    single = costs["Single", "Filter"]
    assert (single.calls, single.rows) == (1, 8)
    assert single.answers == "kept for 1 of 1 shapes"
    assert ("NodeName", "Filter") in costs


def test_a_rule_that_raises_is_a_reason():
    class Raising(Single):
        def filter_rule(self, state, pod):
            raise ValueError("no")

    config = CONFIG.replace("{name: Asked}, {name: Single}, {name: Brief}", "{name: Single}")
    with Cluster([make_node("n").build()], config, plugins=[Raising]) as cluster:
        cluster.add(make_pod("p").build())
        cluster.settle()
        assert cluster.node_of("p") == "n"
        costs = plugin_costs(cluster.assembly)
    (answers,) = {cost.answers for cost in costs if cost.point == "Filter"}
    assert answers == "not kept for 1: a rule raised an exception, see the log"


async def test_what_blocked_the_loop_is_named():
    import asyncio

    watchdog = LoopWatchdog(asyncio.get_running_loop(), MetricsRegistry(), SystemClock())
    watchdog._stalled.labels("Slow", "Filter").inc(3.25)
    text = as_text(PluginProfile(blocked=watchdog.blocked()))
    assert text.splitlines()[1:] == ["Slow blocked the scheduling loop in Filter for 3.2 s"]


def test_the_list_of_a_live_scheduler(costs, monkeypatch, capsys):
    blocked = Blocked(plugin="Slow", point="", seconds=2.0)
    served = PluginProfile(plugins=tuple(costs.values()), blocked=(blocked,))
    body = [msgspec.json.encode(served), b"<html>"]

    class Connections:
        main = SimpleNamespace()

        async def __aenter__(self):
            async def get_raw(path):
                assert path == "/debug/plugins"
                return body[0]

            self.main = SimpleNamespace(get_raw=get_raw)
            return self

        async def __aexit__(self, *_error):
            pass

    def connections_to(connection):
        assert (connection.host, connection.port) == ("scheduler", 10259)
        return Connections()

    monkeypatch.setattr("kubesched.app.connecting.connections_to", connections_to)
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert plugin_work.show_live("table", "https://scheduler:10259", "") == 0
    shown = capsys.readouterr().out
    assert "not kept for 1: no rule" in shown
    assert "Slow blocked the scheduling loop for 2.0 s" in shown
    del body[0]
    with pytest.raises(plugin_work.KubeschedError, match="/debug/plugins is not kubesched's"):
        plugin_work.show_live("table", "https://scheduler:10259", "")
