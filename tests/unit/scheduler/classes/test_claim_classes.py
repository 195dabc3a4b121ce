"""Pods that differ in the names of their claims share a class, and decisions stay what they are.

Random storage worlds change between pods of a few templates, each with claims of its own. A
scheduler with classes and one without decide about every pod in the same state; node, number of
feasible nodes and messages must be equal. Half of the pods are then reserved, bound or forgotten,
so that assumed claims and volumes play a part.
"""

from __future__ import annotations

from random import Random

import pytest
from frameworks import default_framework
from storage_worlds import CLAIMS, StorageWorlds

from kubesched.config.features import DEFAULT_GATES
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import FilterPlugin
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.reserve import run_reserve, run_unreserve
from kubesched.plugins.node_name import NodeName
from kubesched.scheduler.algorithm import ScheduleResult, SchedulingAlgorithm
from kubesched.scheduler.classes import ClassEngine
from kubesched.scheduler.classes.signature import class_signature
from kubesched.testing import make_node, make_pod
from kubesched.testing.builders import HOSTNAME, ZONE, PodBuilder


def template(random: Random, name: str) -> PodBuilder:
    pod = make_pod(name).cpu("100m").labels(app="db")
    for claim in random.sample(CLAIMS[:4], random.choice([1, 1, 1, 2])):
        pod.claim(claim)
    match random.randrange(4):
        case 0:
            pod.spread(1, ZONE, selector={"matchLabels": {"app": "db"}})
        case 1:
            pod.pod_anti_affinity(HOSTNAME, app="db")
    return pod


class History:
    """One table and one framework; two algorithms, one of which keeps classes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.worlds = StorageWorlds(self.random)
        self.worlds.is_tidy = True
        self.worlds.fill()
        table = self.worlds.table
        for number in range(8):
            node = make_node(f"m{number}").zone(self.random.choice("ab")).capacity(cpu="4")
            table.set_node(node.build())
        self.table = table
        handle = Handle(table=table, listers=self.worlds.listers, feature_gates=DEFAULT_GATES)
        self.framework = default_framework(table, handle)
        self.engine = ClassEngine(table)
        self.with_classes = SchedulingAlgorithm(table, Random(1), engine=self.engine)
        self.plain = SchedulingAlgorithm(table, Random(1))

    def decide(self, number: int) -> None:
        pod = template(self.random, f"p{number}").build()
        info, state = PodInfo(pod), CycleState()
        outcome = self.with_classes.schedule(self.framework, state, info)
        expected = self.plain.schedule(self.framework, CycleState(), PodInfo(pod))
        assert told(outcome) == told(expected), pod.spec.volumes
        if isinstance(outcome, ScheduleResult):
            self.go_on(info, state, outcome.node_name)

    def go_on(self, info: PodInfo, state: CycleState, node: str) -> None:
        """Reserve and assume the pod, or give up at some point."""
        if self.random.random() < 0.3:
            return
        refused = run_reserve(self.framework, state, info.pod, node)
        assert refused is None, refused
        if self.random.random() < 0.3:
            run_unreserve(self.framework, state, info.pod, node)
            return
        assumed = info.assumed_on(node)
        assert assumed.claims == PodInfo(info.pod).claims
        self.table.add_pod(assumed, node)


def told(outcome):
    if isinstance(outcome, ScheduleResult):
        return outcome.node_name, outcome.feasible_nodes
    return str(outcome.error or outcome), outcome.code


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_pods_with_claims_of_their_own_share_answers(seed: int) -> None:
    history = History(seed)
    for number in range(60):
        for _ in range(history.random.choice([0, 0, 0, 0, 1])):
            history.worlds.change()
        history.decide(number)
    shapes = history.engine.classes.all_answers()
    assert len(shapes) <= 6, "shapes by template, not by claim"


class ReadsNames(FilterPlugin):
    """Says nothing about names of claims."""

    name = "ReadsNames"


def signature(claim: str, *plugins):
    handle = Handle(table=NodeTable(1))
    framework = Framework(handle, {"filter": [plugin(None, handle) for plugin in plugins]}, {})
    return class_signature(framework, make_pod("p").claim(claim).build())


def test_names_of_claims_do_not_make_a_class() -> None:
    one, other = signature("a", NodeName), signature("b", NodeName)
    assert one.shape == other.shape
    assert one.whole != other.whole, "hints of plugins may tell the pods apart"


def test_names_of_claims_make_a_class_if_a_plugin_may_keep_answers_about_them() -> None:
    assert signature("a", NodeName, ReadsNames).shape != signature("b", NodeName, ReadsNames).shape
