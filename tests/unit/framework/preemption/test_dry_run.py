"""Dry runs kept between preemptions find what one node by node finds anew.

Random histories: preemptors of a few classes in turn; in between pods come, go and start,
nominations and budgets change, nodes come and go, time passes or is set back. Every shortlist must
equal that of a dry run from scratch: candidates, victims, order and criteria; and where there is no
candidate, the verdicts and the message must.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from preemption_history import History

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.node_statuses import NodeStatusColumns
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.preemption import dry_run as dry_run_module
from kubesched.framework.preemption.budgets import Budgets
from kubesched.framework.preemption.dry_run import DryRun, KeptDryRuns
from kubesched.framework.preemption.victims import Preemptor
from kubesched.framework.runtime.pre_filter import run_pre_filter
from kubesched.framework.status import Status
from kubesched.scheduler.algorithm import SchedulingAlgorithm
from kubesched.scheduler.classes import ClassEngine
from kubesched.testing import make_pod
from kubesched.testing.builders import ZONE

TEMPLATES = {
    "small": lambda pod: pod.cpu("500m").priority(5),
    "large": lambda pod: pod.cpu("2").priority(9),
    "port": lambda pod: pod.cpu("1").priority(9).host_port(80),
    "affine": lambda pod: pod.cpu("1").priority(9).labels(app="web").pod_affinity(ZONE, app="web"),
}


HOPELESS = {
    "lowest": lambda pod: pod.cpu("1").priority(-5),
    "low": lambda pod: pod.cpu("2").memory("8Gi").priority(0),
    "huge": lambda pod: pod.cpu("3").priority(9),
    "port": lambda pod: pod.cpu("2").priority(3).host_port(80),
    "affine": lambda pod: pod.cpu("2").priority(0).labels(app="web").pod_affinity(ZONE, app="web"),
}


class VictimHistory(History):
    """With the memo of each class of preemptors."""

    def __init__(self, world_type, rng: Random) -> None:
        super().__init__(world_type, rng)
        self.known = KeptDryRuns(self.world.table, "victims")
        self.memos: dict[str, dict] = {name: {} for name in TEMPLATES}

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
        budgets = world.plugin.evaluator.budgets.list()
        now_us = round(world.clock.now() * 1e6)
        preemptor = Preemptor(world.framework, state, info, now_us)
        known = self.known.of(preemptor, budgets)
        assert name != "affine" or known is None, "its filters are not row-local"
        found = (known or DryRun(preemptor, budgets)).find(rows, wanted)
        fresh = Preemptor(world.framework, state, info, now_us)
        expected = DryRun(fresh, budgets, together=False).find(rows, wanted)
        if isinstance(found, NodeStatusColumns):
            assert isinstance(expected, NodeStatusColumns)
            assert told(found) == told(expected)
        else:
            assert described(found) == described(expected)


def told(verdicts):
    return {
        name: (status.code, status.message, status.plugin)
        for name, status in verdicts.explicit.items()
    }


def described(shortlist):
    candidates = [
        (c.node_name, [pod.metadata.name for pod in c.victims.pods], c.victims.pdb_violations)
        for c in shortlist.candidates()
    ]
    return candidates, shortlist.criteria.tolist()


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize("limit", [2**20, 1], ids=["all classes kept", "one class kept"])
def test_kept_victims_are_those_of_a_run_node_by_node(world_type, limit: int, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dry_run_module, "BYTES_LIMIT", limit)
        history = VictimHistory(world_type, Random(seed))
        for _ in range(30):
            for _ in range(history.rng.randrange(4)):
                history.change()
            history.compare()


class VerdictHistory(History):
    """With the memo of each class of preemptors."""

    def __init__(self, world_type, rng: Random) -> None:
        super().__init__(world_type, rng)
        self.memos: dict[str, dict] = {name: {} for name in HOPELESS}

    def compare(self) -> None:
        name = self.rng.choice([*HOPELESS])
        self.made += 1
        pod = HOPELESS[name](make_pod(f"p-{self.made}")).build()
        answers = [self.answer(pod, memo) for memo in (self.memos[name], {}, None)]
        assert answers[0] == answers[1] == answers[2]

    def answer(self, pod, memo):
        """Why there is no candidate, or that there is one, or that the pod fits."""
        world, state = self.world, CycleState()
        state.class_memo = memo
        outcome = world.algorithm.schedule(world.framework, state, PodInfo(pod))
        if not isinstance(outcome, Status):
            return "fits"
        statuses = outcome.error.diagnosis.node_to_status
        found = world.plugin.evaluator._find_candidates(state, pod, statuses, is_current=True)
        return (found[0], found[1].message) if isinstance(found, tuple) else "candidates"


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize("limit", [2**20, 1], ids=["all classes kept", "one class kept"])
def test_kept_verdicts_are_those_of_a_dry_run(world_type, limit: int, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dry_run_module, "BYTES_LIMIT", limit)
        history = VerdictHistory(world_type, Random(seed))
        for _ in range(30):
            for _ in range(history.rng.randrange(4)):
                history.change()
            history.compare()


def full_nodes(world, count: int) -> None:
    for number in range(count):
        world.node(f"n{number}", "2")
        for each in range(2):
            world.on(f"n{number}", f"v{number}-{each}", hour=each)


def counted(monkeypatch) -> list[int]:
    """How many rows are evaluated each time."""
    evaluated: list[int] = []
    evaluate = DryRun._evaluate

    def counting(run, rows, quota):
        evaluated.append(len(rows))
        return evaluate(run, rows, quota)

    monkeypatch.setattr(DryRun, "_evaluate", counting)
    return evaluated


def test_only_changed_rows_are_evaluated_again(make_world, monkeypatch) -> None:
    world = make_world()
    engine = ClassEngine(world.table)
    world.algorithm = SchedulingAlgorithm(world.table, Random(1), engine=engine)
    full_nodes(world, 5)
    evaluated = counted(monkeypatch)
    assert world.preempt(world.pending("p-0"))[0]
    assert evaluated == [5]
    assert world.preempt(world.pending("p-1"))[0]
    assert evaluated == [5], "nothing has changed"
    evaluated.clear()
    world.on("n3", "late", cpu="0")
    assert world.preempt(world.pending("p-2"))[0]
    assert evaluated == [1]
    world.budget("b", 0, app="none")
    assert world.preempt(world.pending("p-3"))[0]
    assert evaluated == [1, 5]


def test_only_changed_rows_are_evaluated_again_for_a_class_without_candidates(
    make_world, monkeypatch
) -> None:
    world = make_world()
    world.algorithm = SchedulingAlgorithm(world.table, Random(1), engine=ClassEngine(world.table))
    for number in range(5):
        world.node(f"n{number}", "2")
        world.on(f"n{number}", f"low-{number}", cpu="500m", priority=-5)
        world.on(f"n{number}", f"high-{number}", cpu="1500m", priority=9)
    evaluated = counted(monkeypatch)
    answers = [world.preempt(world.pending("p-0", priority=0))]
    assert evaluated == [5]
    world.on("n3", "late", cpu="0", priority=9)
    answers.append(world.preempt(world.pending("p-1", priority=0)))
    assert evaluated == [5, 1]
    assert answers[0] == answers[1]
    assert "Insufficient cpu" in answers[0][1], "evicting the low pods is not enough"


def test_no_run_is_kept_for_a_nominated_pod(make_world) -> None:
    """Its own nomination does not stand in its way, as it does in that of others of its class."""
    world = make_world()
    full_nodes(world, 2)
    known = KeptDryRuns(world.table, "victims")
    preemptor = world.preemptor(world.nominate("n0", "p", "1", 10))
    preemptor.state.class_memo = {}
    rows = world.table.order_rows.astype(np.intp)
    assert known.of(preemptor, Budgets(())) is None
    other = world.preemptor(make_pod("q").cpu("1").priority(10).build())
    other.state.class_memo = preemptor.state.class_memo
    found = known.of(other, Budgets(())).find(rows, 2)
    assert [len(c.victims.pods) for c in found.candidates()] == [2, 1]
