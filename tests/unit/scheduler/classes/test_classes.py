"""Pod classes never change a decision.

Two schedulers see the same random history of nodes, pods, services, nominations, updates and
removals; one keeps answers per class, the other runs the full evaluation for every pod. Placements,
failures and their messages must be the same throughout, whichever way dirty rows are computed, and
without any of the forms that plugins give beside the contract.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from faster_forms import without_faster_forms
from frameworks import default_framework
from msgspec import structs
from random_clusters import random_node, random_pod

from kubesched.api.core_v1 import Service, ServiceSpec
from kubesched.api.meta import ObjectMeta
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import (
    FilterPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    default_normalize,
)
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.runtime import Framework
from kubesched.framework.status import SKIP, unschedulable
from kubesched.framework.verdicts import Verdicts
from kubesched.insight.state.memory import MemoryListers
from kubesched.scheduler import algorithm
from kubesched.scheduler.algorithm import ScheduleResult, SchedulingAlgorithm
from kubesched.scheduler.cache.cache import Cache
from kubesched.scheduler.classes import Best, ClassEngine, Walked, pod_classes, row_columns
from kubesched.testing import make_pod
from kubesched.testing.builders import HOSTNAME

WAYS = {
    "as configured": {},
    "in arrays only": {
        (row_columns, "FEW_ROWS"): 0,
    },
    "with room for two shapes": {
        (row_columns, "FEW_ROWS"): 3,
        (pod_classes, "BYTES_LIMIT"): 2 * pod_classes.BYTES_PER_ROW * 16,
    },
}
"""Bounds that decide which code runs."""


def seeds(*numbers: int) -> list[object]:
    """All but the first are slow: together they take half a minute of CPU time."""
    first, *others = numbers
    return [first, *(pytest.param(number, marks=pytest.mark.slow) for number in others)]


WEIGHTS = (1, 7, 1000)
"""Of NodeResourcesFit. With the last, levels take eight bytes instead of two."""

PERCENTAGES = (100, 30, 0)
"""How many nodes are scored, for two seeds each."""


class Whim(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """A plugin without rules that decides by the pod's name, and now and then opts out."""

    name = "Whim"

    def pre_filter(self, state, pod, nodes):
        number = int(pod.metadata.name.strip("p") or 0)
        state.write(self.name, number)
        return SKIP if number % 5 == 0 else None

    def filter_nodes(self, state, pod, nodes):
        refused = (nodes.row_indices() + state.read(self.name)) % 4 == 0
        return Verdicts.reject(refused, unschedulable("not in the mood"))

    def pre_score(self, state, pod, nodes):
        state.write("feasible", len(nodes))
        return SKIP if state.read(self.name) % 7 == 0 else None

    def score_nodes(self, state, pod, nodes):
        return (nodes.row_indices() * state.read("feasible") + state.read(self.name)) % 101


class OneByOne(FilterPlugin, ScorePlugin):
    """Looks at one node at a time, says what its answers depend on, and normalises."""

    name = "OneByOne"

    def filter(self, state, pod, node_info):
        full = len(node_info.pods) > 9
        return unschedulable("node has its share") if full else None

    def filter_rule(self, state, pod):
        return Rule(Scope.ROW)

    def score(self, state, pod, node_info):
        return len(node_info.name) * 1000 + len(node_info.pods)

    def score_rule(self, state, pod):
        return Rule(Scope.ROW)

    def normalize_scores(self, state, pod, scores, nodes):
        return default_normalize(scores, reverse=True)


class Crowding(FilterPlugin, ScorePlugin):
    """Answers about all nodes at once, by the pods on each."""

    name = "Crowding"

    def filter_nodes(self, state, pod, nodes):
        return Verdicts.reject(nodes.pod_count > 7, unschedulable("node is crowded"))

    def filter_rule(self, state, pod):
        return Rule(Scope.ROW)

    def score_nodes(self, state, pod, nodes):
        return 100 - nodes.pod_count

    def score_rule(self, state, pod):
        return Rule(Scope.ROW)


class Nominations:
    """The least that stands in for the queue's nominator."""

    def __init__(self) -> None:
        self.by_node: dict[str, list[PodInfo]] = {}
        self.version = 0

    def add_nominated_pod(self, pod: PodInfo, info: NominatingInfo | None) -> None:
        self.by_node.setdefault(info.node_name, []).append(pod)
        self.version += 1

    def delete_nominated_pod(self, pod) -> None:
        for pods in self.by_node.values():
            pods[:] = [p for p in pods if p.uid != pod.metadata.uid]
        self.version += 1

    def nominated_pods_for_node(self, node_name: str) -> list[PodInfo]:
        return [*self.by_node.get(node_name, [])]

    def changes_since(self, version: int) -> None:
        return None

    def nominated_nodes(self) -> list[str]:
        return [name for name, pods in self.by_node.items() if pods]


class Side:
    """One scheduler's view of the history."""

    def __init__(self, seed: int, parallelism: int, strangers=(), *, classes: bool) -> None:
        self.cache = Cache(NodeTable(4))
        table = self.cache.table
        self.listers = MemoryListers()
        self.nominations = Nominations()
        handle = Handle(table=table, listers=self.listers, nominator=self.nominations)
        self.framework: Framework = default_framework(table, handle)
        self.framework.score_weights["NodeResourcesFit"] = WEIGHTS[seed % len(WEIGHTS)]
        for plugin in [cls(None, handle) for cls in strangers]:
            for point in (FilterPlugin, PreFilterPlugin, PreScorePlugin, ScorePlugin):
                if isinstance(plugin, point):
                    points = {
                        FilterPlugin: self.framework.filter,
                        PreFilterPlugin: self.framework.pre_filter,
                        PreScorePlugin: self.framework.pre_score,
                        ScorePlugin: self.framework.score,
                    }
                    points[point].append(plugin)
            self.framework.score_weights[plugin.name] = 2
        self.engine = ClassEngine(table) if classes else None
        self.algorithm = SchedulingAlgorithm(
            table,
            Random(seed),
            parallelism=parallelism,
            percentage_of_nodes_to_score=PERCENTAGES[seed // 2 % len(PERCENTAGES)],
            engine=self.engine,
        )

    def place(self, pod) -> str:
        info = PodInfo(pod)
        outcome = self.algorithm.schedule(self.framework, CycleState(), info)
        if isinstance(outcome, ScheduleResult):
            self.cache.assume_pod(info.assumed_on(outcome.node_name))
            return f"{outcome.node_name} of {outcome.feasible_nodes}/{outcome.evaluated_nodes}"
        return f"{outcome.code.name}: {outcome.message}"


class History:
    """Random things that happen to both sides alike."""

    def __init__(self, seed: int, parallelism: int, strangers=()) -> None:
        self.rng = Random(seed)
        self.nominates = seed % 2 == 0
        self.has_images = seed % 3 == 0
        """Then a change in the number of nodes can change scores everywhere."""
        self.node_changes = 0.02 if seed % 5 else 0.08
        self.relabels = seed % 4 > 1
        self.sides = (
            Side(seed, parallelism, strangers, classes=True),
            Side(seed, parallelism, strangers, classes=False),
        )
        self.reference = self.sides[1]
        self.templates = [random_pod(self.rng, f"template-{n}") for n in range(6)]
        # A label that most of the time no node has: counts by it come to life and vanish again.
        self.templates[0].preferred_pod_term("podAffinity", 50, "shelf", app="web")
        self.templates[1].pod_anti_affinity("shelf", app="db")
        self.templates[2].spread(1, "shelf", "ScheduleAnyway", {"matchLabels": {"app": "web"}})
        self.placed: list = []
        self.rivals: list[PodInfo] = []

    def step(self, number: int) -> None:
        rng, nodes = self.rng, sorted(self.reference.cache.table.row_of)
        action = rng.random()
        if number < 14 or action < self.node_changes:
            self.put_node(random_node(rng, f"n{rng.randrange(16)}"))
        elif action < 1.3 * self.node_changes and nodes:
            name = rng.choice(nodes)
            for side in self.sides:
                side.cache.remove_node(name)
        elif action < 0.4 and self.placed:
            self.remove(self.placed.pop(rng.randrange(len(self.placed))))
        elif action < 0.43 and nodes and self.nominates:
            self.nominate(number, rng.choice(nodes))
        elif action < 0.45:
            self.change_service()
        else:
            self.place(number, rng.choice(self.templates))

    def put_node(self, node) -> None:
        if self.rng.random() < 0.1:
            node.label(HOSTNAME, "twin")
        if self.rng.random() < 0.1:
            node.label("shelf", self.rng.choice("uv"))
        if not self.has_images:
            node.json["status"].pop("images", None)
        for side in self.sides:
            side.cache.add_node(node.build())

    def remove(self, pod) -> None:
        for side in self.sides:
            if side.cache.is_assumed(pod.metadata.uid):
                side.cache.forget_pod(pod)
            else:
                side.cache.remove_pod(pod)

    def nominate(self, number: int, node_name: str) -> None:
        """Nominate a pod, or withdraw all nominations."""
        if len(self.rivals) > 2 or (self.rivals and self.rng.random() < 0.3):
            for rival in self.rivals:
                for side in self.sides:
                    side.nominations.delete_nominated_pod(rival.pod)
            self.rivals = []
            return
        pod = random_pod(self.rng, f"rival-{number}").priority(self.rng.choice([0, 10])).build()
        self.rivals.append(PodInfo(pod))
        for side in self.sides:
            side.nominations.add_nominated_pod(self.rivals[-1], NominatingInfo(True, node_name))

    def change_service(self) -> None:
        """Pods behind a service get the system's default constraints."""
        name, app = self.rng.choice("st"), self.rng.choice(["web", "db", ""])
        selector = {"app": app} if app else None
        if self.relabels and self.rng.random() < 0.3:
            selector = {"job": self.rng.choice("123")}
        service = Service(
            metadata=ObjectMeta(name=name, namespace="default"),
            spec=ServiceSpec(selector=selector),
        )
        for side in self.sides:
            side.listers.of(Service).put(service)

    def place(self, number: int, template) -> None:
        meta = template.json["metadata"]
        meta.update(name=f"p{number}", uid=f"uid-{number}")
        if self.relabels:  # other apps with the same spec, and labels of their own
            meta["labels"]["app"] = self.rng.choice(["web", "db", "cache", "new"])
            meta["labels"]["job"] = self.rng.choice(["1", "2", f"job-{number}"])
        pod = template.build()
        answers = [side.place(pod) for side in self.sides]
        assert answers[0] == answers[1], f"step {number}: {answers}"
        assumed = self.reference.cache.get_pod(f"uid-{number}")
        if assumed is None:
            return
        self.placed.append(assumed.pod)
        if self.rng.random() < 0.5:  # the watch confirms, sometimes with changed labels
            labels = {"app": "web"} if self.rng.random() < 0.2 else assumed.pod.metadata.labels
            meta = structs.replace(assumed.pod.metadata, labels=labels)
            confirmed = structs.replace(assumed.pod, metadata=meta)
            for side in self.sides:
                side.cache.add_pod(confirmed)
            self.placed[-1] = confirmed


@pytest.fixture(autouse=True)
def _nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure inside the engine would only make it slow: here it is to show."""

    def give_up(pod, answers, error) -> None:
        raise error

    monkeypatch.setattr(ClassEngine, "_give_up", staticmethod(give_up))
    monkeypatch.setattr(algorithm, "MIN_FEASIBLE_NODES_TO_FIND", 3)


@pytest.mark.parametrize("parallelism", [1, 16])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", seeds(*range(10)))
def test_classes_and_plain_columns_decide_alike(
    seed: int, way: str, parallelism: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for (module, bound), value in WAYS[way].items():
        monkeypatch.setattr(module, bound, value)
    history = History(seed, parallelism)
    for number in range(260):
        history.step(number)
    for side in history.sides:
        side.cache.check_invariants()


@pytest.mark.parametrize("parallelism", [1, 16])
@pytest.mark.parametrize(
    "strangers",
    [
        pytest.param((Whim,), id="no rules"),
        pytest.param((OneByOne,), id="one node at a time"),
        pytest.param((Whim, OneByOne), id="both"),
        pytest.param((Crowding,), id="in columns"),
        pytest.param((Crowding, OneByOne), id="of ROW scope"),
    ],
)
@pytest.mark.parametrize("seed", seeds(*range(6)))
def test_plugins_of_others_decide_alike_with_and_without_classes(seed, strangers, parallelism):
    history = History(seed, parallelism, strangers)
    for number in range(160):
        history.step(number)
    assert any(a.scores is not None for a in history.sides[0].engine.classes.all_answers())


@pytest.mark.slow
def test_most_of_these_decisions_come_from_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    served = []
    original = ClassEngine.decide

    def decide(self, *arguments):
        answer = original(self, *arguments)
        served.append(isinstance(answer, Best | Walked))
        return answer

    monkeypatch.setattr(ClassEngine, "decide", decide)
    for seed in (1, 5, 7):
        history = History(seed, 16)
        for number in range(260):
            history.step(number)
    assert sum(served) > 200


@pytest.mark.parametrize("parallelism", [1, 16])
@pytest.mark.parametrize("seed", seeds(*range(6)))
def test_plugins_without_faster_forms_decide_alike(seed: int, parallelism: int) -> None:
    history = History(seed, parallelism)
    without_faster_forms(history.sides[0].framework)
    for number in range(200):
        history.step(number)
    assert any(a.scores is not None for a in history.sides[0].engine.classes.all_answers())


class ManyShapes(History):
    """Pods of twelve shapes in turn, which differ in their requests; some soon fit nowhere, or only
    here and there.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, parallelism=16)
        rng = Random(seed)
        self.templates = [
            make_pod("template")
            .label("app", "web")
            .cpu(f"{rng.choice([50, 400, 900]) + n}m")
            .memory(f"{n + 1}Mi")
            for n in range(12)
        ]
        self.turn = 0

    def place(self, number: int, template) -> None:
        self.turn += 1
        super().place(number, self.templates[self.turn % len(self.templates)])


@pytest.mark.parametrize("few", [0, 3, 16])
@pytest.mark.parametrize("seed", seeds(1, 2, 4, 5, 7, 8))
def test_many_shapes_in_turn_decide_alike(
    seed: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_columns, "FEW_ROWS", few)
    history = ManyShapes(seed)
    for number in range(400):
        history.step(number)
    kept = history.sides[0].engine.classes.all_answers()
    assert sum(answers.scores is not None for answers in kept) > 5, "many shapes are kept"
    levels = {answers.scores._level.dtype for answers in kept if answers.scores is not None}
    assert levels == {np.dtype(np.int64 if seed % 3 == 2 else np.int16)}
    for side in history.sides:
        side.cache.check_invariants()
