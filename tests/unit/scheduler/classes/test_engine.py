"""How the engine treats plugins: strangers are asked every time, rules that break are given up."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from frameworks import default_framework

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import FilterPlugin, ScorePlugin
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.runtime import Framework
from kubesched.framework.status import unschedulable
from kubesched.framework.verdicts import Verdicts
from kubesched.plugins.inter_pod_affinity.plugin import InterPodAffinity
from kubesched.plugins.node_resources.fit import NodeResourcesFit
from kubesched.scheduler.algorithm import ScheduleResult, SchedulingAlgorithm
from kubesched.scheduler.classes import ClassEngine, engine
from kubesched.testing import make_node, make_pod
from kubesched.testing.builders import HOSTNAME


class FlipFlop(FilterPlugin):
    """A stranger: every pod is refused another half of the nodes."""

    name = "FlipFlop"
    calls = 0

    def filter_nodes(self, state, pod, nodes):
        self.calls += 1
        refused = np.arange(len(nodes)) % 2 == self.calls % 2
        return Verdicts.reject(refused, unschedulable("not now"))


class OutOfRange(ScorePlugin):
    """A row score that is too large once a node has pods."""

    name = "OutOfRange"

    def score_nodes(self, state, pod, nodes):
        return nodes.pod_count * 1000

    def score_rule(self, state, pod):
        return Rule(Scope.ROW)


class World:
    def __init__(self, nodes: int = 8) -> None:
        self.table = NodeTable()
        for number in range(nodes):
            self.table.set_node(make_node(f"n{number}").capacity(cpu="4", memory="8Gi").build())
        self.framework: Framework = default_framework(self.table, Handle(table=self.table))
        self.algorithm = SchedulingAlgorithm(self.table, Random(1), engine=ClassEngine(self.table))
        self.count = 0

    def place(self, make=make_pod):
        self.count += 1
        pod = PodInfo(make(f"p{self.count}").cpu("100m").build())
        state = CycleState()
        result = self.algorithm.schedule(self.framework, state, pod)
        if isinstance(result, ScheduleResult):
            self.table.add_pod(pod.assumed_on(result.node_name), result.node_name)
        return result, state

    @property
    def kept(self):
        """The answers of shapes that have scores."""
        answers = self.algorithm.engine.classes.all_answers()
        return [each for each in answers if each.scores is not None]


def repelling(name: str):
    return make_pod(name).label("app", "web").pod_anti_affinity(HOSTNAME, app="web")


def test_answers_are_kept_from_the_first_pod_on():
    world = World()
    world.place()
    (answers,) = world.kept
    filters, scores = answers.filters, answers.scores
    assert isinstance(world.place()[0], ScheduleResult)
    assert world.kept == [answers]
    assert (answers.filters, answers.scores) == (filters, scores)


def test_a_plugin_that_says_nothing_about_itself_is_asked_for_every_pod():
    world = World()
    stranger = FlipFlop(None, world.framework.handle)
    world.framework.filter.append(stranger)
    for _ in range(6):
        result, _ = world.place()
        assert result.feasible_nodes == 4
    assert stranger.calls == 6
    (answers,) = world.kept
    assert stranger in answers.filters.asked


def test_pods_that_repel_each_other_get_a_node_each_and_the_last_none():
    world = World(4)
    placed = [world.place(repelling)[0] for _ in range(5)]
    assert len({each.node_name for each in placed[:4]}) == 4
    assert [each.feasible_nodes for each in placed[:4]] == [4, 3, 2, 1]
    assert "didn't match pod anti-affinity rules" in placed[4].message


def test_a_label_that_nodes_get_later_brings_a_preference_to_life():
    """Its domains were empty, because there were none, when pods were first placed."""

    def liking(name: str):
        return make_pod(name).preferred_pod_term("podAffinity", 100, "rack", app="db")

    world = World()
    friend = PodInfo(make_pod("friend").label("app", "db").cpu("1").on("n3").build())
    world.table.add_pod(friend, "n3")
    for _ in range(4):
        assert world.place(liking)[0].node_name != "n3"
    assert world.kept
    node = make_node("n3").capacity(cpu="4", memory="8Gi").label("rack", "x")
    world.table.set_node(node.build())
    assert world.place(liking)[0].node_name == "n3"


def test_what_prefilter_and_prescore_store_is_there_for_every_pod():
    world = World()
    states = [world.place()[1] for _ in range(5)]
    assert [set(each.entries()) for each in states[2:]] == [set(states[0].entries())] * 3
    assert len({frozenset(each.skip_filter_plugins) for each in states}) == 1
    assert len({frozenset(each.skip_score_plugins) for each in states}) == 1
    assert len({each.points_reached for each in states}) == 1


def test_a_score_out_of_range_is_an_error_with_classes_as_without():
    world = World()
    for _ in range(4):
        world.place()
    assert world.kept
    world = World()
    plugin = OutOfRange(None, world.framework.handle)
    world.framework.score.append(plugin)
    world.framework.score_weights[plugin.name] = 1
    for _ in range(8):
        result, _ = world.place()
        if not isinstance(result, ScheduleResult):
            assert "invalid score" in result.message
            return
    pytest.fail("nodes with pods were scored 1000")


@pytest.mark.parametrize("shortcut", ["filter_rule", "score_rule"])
def test_a_rule_that_raises_costs_speed_and_nothing_else(shortcut, monkeypatch):
    def broken(self, state, pod):
        raise RuntimeError("no idea")

    monkeypatch.setattr(InterPodAffinity, shortcut, broken)
    world = World()
    nodes = {world.place(repelling)[0].node_name for _ in range(8)}
    assert len(nodes) == 8
    assert not world.kept


def test_a_form_for_one_row_that_raises_is_given_up(monkeypatch):
    honest = NodeResourcesFit.filter_rule

    def rule_with_broken_form(self, state, pod):
        def passes(row):
            raise RuntimeError("no idea")

        return replace(honest(self, state, pod), at=passes)

    monkeypatch.setattr(NodeResourcesFit, "filter_rule", rule_with_broken_form)
    world = World()
    nodes = {world.place(repelling)[0].node_name for _ in range(8)}
    assert len(nodes) == 8
    assert not world.kept


@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_the_nth_true_entry_is_found_in_any_block(share, monkeypatch):
    monkeypatch.setattr(engine, "_BLOCK", 8)
    rng = Random(1)
    for length in (1, 7, 8, 9, 16, 41):
        mask = np.array([rng.random() < share for _ in range(length)])
        mask[rng.randrange(length)] = True
        places = mask.nonzero()[0].tolist()
        assert [engine.nth(mask, number) for number in range(len(places))] == places
        with pytest.raises(IndexError):
            engine.nth(mask, len(places))
