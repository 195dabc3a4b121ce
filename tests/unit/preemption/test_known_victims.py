"""Victims kept between preemptions are those that a dry run finds anew.

Random histories: preemptors of a few classes in turn; in between pods come, go and start, nominations and budgets change,
nodes come and go, time passes or is set back. Every shortlist must equal that of a dry run from scratch: candidates,
victims, order and criteria.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_victims import random_victim, random_world

from kubesched.api.core_v1 import PodStatus
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.clock import ManualClock
from kubesched.equivalence import EquivalenceEngine
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.runtime.pre_filter import run_pre_filter
from kubesched.preemption import known_victims as known_victims_module
from kubesched.preemption.budgets import Budgets
from kubesched.preemption.candidates import candidates_of
from kubesched.preemption.dry_run import dry_run, victims_on
from kubesched.preemption.known_victims import KnownVictims
from kubesched.preemption.row_pods import RowPodsCache
from kubesched.preemption.victims import USUAL_RULES, Preemptor
from kubesched.scheduler.algorithm import SchedulingAlgorithm
from kubesched.snapshot.pods import PodInfo
from kubesched.snapshot.views import NodeColumns
from kubesched.testing import make_node, make_pod
from kubesched.testing.builders import ZONE

TEMPLATES = {
    "small": lambda pod: pod.cpu("500m").priority(5),
    "large": lambda pod: pod.cpu("2").priority(9),
    "port": lambda pod: pod.cpu("1").priority(9).host_port(80),
    "affine": lambda pod: pod.cpu("1").priority(9).labels(app="web").pod_affinity(ZONE, app="web"),
}


class History:
    """A world that changes, and the memo of each class of preemptors."""

    def __init__(self, world_type, rng: Random) -> None:
        self.rng = rng
        self.world = random_world(world_type, rng)
        self.row_pods = RowPodsCache(self.world.table)
        self.known = KnownVictims(self.world.table, self.row_pods, "victims")
        self.memos: dict[str, dict] = {name: {} for name in TEMPLATES}
        self.made = 0
        self.rivals: list[tuple[str, str]] = []

    def some_pod(self):
        pods = [pod for _, pod in self.world.table.all_pods()]
        return self.rng.choice(pods) if pods else None

    def change(self) -> None:
        getattr(self, self.rng.choice(CHANGES))()

    def pod_comes(self) -> None:
        self.made += 1
        node = self.rng.choice([*self.world.table.row_of])
        self.world.add(random_victim(self.rng, f"new-{self.made}").on(node))

    def pod_goes(self) -> None:
        if (pod := self.some_pod()) is not None:
            self.world.cache.remove_pod(pod.pod)

    def pod_starts(self) -> None:
        if (pod := self.some_pod()) is not None:
            start = self.rng.choice([None, "2026-01-01T03:00:00Z", "2026-01-01T13:00:00Z"])
            self.world.change(pod.pod, status=PodStatus(start_time=start))

    def nomination(self) -> None:
        self.made += 1
        node = self.rng.choice([*self.world.table.row_of])
        self.world.nominate(node, f"rival-{self.made}", "500m", self.rng.choice([0, 5, 9]))
        self.rivals.append((f"rival-{self.made}", node))

    def nomination_ends(self) -> None:
        if self.rivals:
            name, _ = self.rivals.pop()
            self.world.nominator.delete_nominated_pod(self.world.queued[f"default/{name}"].pod)

    def budget(self) -> None:
        labels = {"app": self.rng.choice(["web", "db"])}
        self.world.budget(f"b{self.rng.randrange(3)}", self.rng.randrange(3), **labels)

    def no_budgets(self) -> None:
        budgets = self.world.listers.of(PodDisruptionBudget)
        for budget in list(budgets.list()):
            budgets.remove(budget.metadata.namespace, budget.metadata.name)

    def time_passes(self) -> None:
        self.world.clock.advance(self.rng.choice([1, 3600, 4 * 3600]))

    def clock_is_set_back(self) -> None:
        self.world.clock = ManualClock(self.world.clock.now() - 3600)

    def node_changes(self) -> None:
        node = make_node(f"n{self.rng.randrange(10)}").capacity(
            cpu=self.rng.choice(["1", "2"]), memory="8Gi", pods=20
        )
        if self.rng.random() < 0.2:
            node.taint("dedicated", "x")
        self.world.add_node(node)

    def node_goes(self) -> None:
        names = [*self.world.table.row_of]
        if len(names) > 1:
            self.world.cache.remove_node(self.rng.choice(names))

    def compare(self) -> None:
        world, rng = self.world, self.rng
        name = rng.choice([*TEMPLATES])
        self.made += 1
        pod = TEMPLATES[name](make_pod(f"p-{self.made}")).build()
        state = CycleState()
        state.class_memo = self.memos[name]
        info = PodInfo(pod)
        run_pre_filter(world.framework, state, pod, NodeColumns(world.table))
        rows = world.table.order_rows.astype(np.intp)
        rows = np.roll(rows, rng.randrange(len(rows)))
        wanted = rng.choice([1, 2, len(rows)])
        budgets = world.plugin.evaluator._budgets.list()
        now_us = round(world.clock.now() * 1e6)
        preemptor = Preemptor(world.framework, state, info, now_us)
        found = self.known.find(preemptor, rows, wanted, budgets)
        fresh = Preemptor(world.framework, state, info, now_us)
        expected = dry_run(
            fresh, rows, wanted, budgets, RowPodsCache(world.table), USUAL_RULES
        ).shortlist
        if name != "affine" or found is not None:  # with affinity, filters are not row-local
            assert described(found) == described(expected)


CHANGES = (
    *["pod_comes", "pod_goes", "pod_starts", "nomination", "nomination_ends", "time_passes"] * 3,
    "budget",
    "no_budgets",
    "clock_is_set_back",
    "node_changes",
    "node_goes",
)


def described(shortlist):
    if shortlist is None:
        return None
    candidates = [
        (c.node_name, [pod.metadata.name for pod in c.victims.pods], c.victims.pdb_violations)
        for c in candidates_of(shortlist)
    ]
    return candidates, shortlist.criteria.tolist()


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize("limit", [64, 1], ids=["all classes kept", "one class kept"])
def test_kept_victims_are_those_of_a_dry_run(world_type, limit: int, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_victims_module, "CLASS_LIMIT", limit)
        history = History(world_type, Random(seed))
        for _ in range(30):
            for _ in range(history.rng.randrange(4)):
                history.change()
            history.compare()


def full_nodes(world, count: int) -> None:
    for number in range(count):
        world.node(f"n{number}", "2")
        for each in range(2):
            world.on(f"n{number}", f"v{number}-{each}", hour=each)


def test_only_changed_rows_are_evaluated_again(make_world, monkeypatch) -> None:
    world = make_world()
    engine = EquivalenceEngine(world.table)
    world.algorithm = SchedulingAlgorithm(world.table, Random(1), engine=engine)
    full_nodes(world, 5)
    evaluated: list[int] = []

    def counting(preemptor, rows, budgets, row_pods):
        evaluated.append(len(rows))
        return victims_on(preemptor, rows, budgets, row_pods)

    monkeypatch.setattr(known_victims_module, "victims_on", counting)
    monkeypatch.setattr("kubesched.preemption.evaluator.dry_run", None)
    assert world.preempt(world.pending("p-0"))[0]
    assert evaluated == [5]
    assert world.preempt(world.pending("p-1"))[0]
    assert evaluated == [5], "nothing has changed"
    world.on("n3", "late", cpu="0")
    assert world.preempt(world.pending("p-2"))[0]
    assert evaluated == [5, 1]
    world.budget("b", 0, app="none")
    assert world.preempt(world.pending("p-3"))[0]
    assert evaluated == [5, 1, 5]


def test_a_nominated_pod_gets_a_dry_run(make_world) -> None:
    """Its own nomination does not stand in its way, as it does in that of others of its class."""
    world = make_world()
    full_nodes(world, 2)
    known = KnownVictims(world.table, RowPodsCache(world.table), "victims")
    preemptor = world.preemptor(world.nominate("n0", "p", "1", 10))
    preemptor.state.class_memo = {}
    rows = world.table.order_rows.astype(np.intp)
    assert known.find(preemptor, rows, 2, Budgets(())) is None
    other = world.preemptor(make_pod("q").cpu("1").priority(10).build())
    other.state.class_memo = preemptor.state.class_memo
    found = known.find(other, rows, 2, Budgets(()))
    assert [len(c.victims.pods) for c in candidates_of(found)] == [2, 1]
