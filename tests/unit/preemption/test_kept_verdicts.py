"""Verdicts kept for classes without candidates are those that a dry run gives anew."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from preemption_history import History

from kubesched.equivalence import EquivalenceEngine
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.status import Status
from kubesched.preemption import kept_verdicts, search
from kubesched.preemption.dry_run import dry_run
from kubesched.preemption.search import finished
from kubesched.scheduler.algorithm import SchedulingAlgorithm
from kubesched.snapshot.pods import PodInfo
from kubesched.testing import make_pod
from kubesched.testing.builders import ZONE

TEMPLATES = {
    "lowest": lambda pod: pod.cpu("1").priority(-5),
    "low": lambda pod: pod.cpu("2").memory("8Gi").priority(0),
    "huge": lambda pod: pod.cpu("3").priority(9),
    "port": lambda pod: pod.cpu("2").priority(3).host_port(80),
    "affine": lambda pod: pod.cpu("2").priority(0).labels(app="web").pod_affinity(ZONE, app="web"),
}


class VerdictHistory(History):
    """With the memo of each class of preemptors."""

    def __init__(self, world_type, rng: Random) -> None:
        super().__init__(world_type, rng)
        self.memos: dict[str, dict] = {name: {} for name in TEMPLATES}

    def compare(self) -> None:
        name = self.rng.choice([*TEMPLATES])
        self.made += 1
        pod = TEMPLATES[name](make_pod(f"p-{self.made}")).build()
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
        found = finished(
            world.plugin.evaluator._find_candidates(state, pod, statuses, is_current=True)
        )
        return (found[0], found[1].message) if isinstance(found, tuple) else "candidates"


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize("limit", [2**20, 1], ids=["all classes kept", "one class kept"])
def test_kept_verdicts_are_those_of_a_dry_run(world_type, limit: int, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_verdicts, "BYTES_LIMIT", limit)
        patch.setattr(search, "PORTION", (1_500, 3)[seed % 2])
        history = VerdictHistory(world_type, Random(seed))
        for _ in range(30):
            for _ in range(history.rng.randrange(4)):
                history.change()
            history.compare()


def test_only_dirty_rows_are_evaluated_again(make_world, monkeypatch) -> None:
    world = make_world()
    world.algorithm = SchedulingAlgorithm(
        world.table, Random(1), engine=EquivalenceEngine(world.table)
    )
    for number in range(5):
        world.node(f"n{number}", "2")
        world.on(f"n{number}", f"low-{number}", cpu="500m", priority=-5)
        world.on(f"n{number}", f"high-{number}", cpu="1500m", priority=9)
    evaluated: list[int] = []

    def counting(preemptor, rows, *rest):
        evaluated.append(len(rows))
        return dry_run(preemptor, rows, *rest)

    monkeypatch.setattr("kubesched.preemption.evaluator.dry_run", counting)
    monkeypatch.setattr(kept_verdicts, "dry_run", counting)
    answers = [world.preempt(world.pending("p-0", priority=0))]
    assert evaluated == [5]
    world.on("n3", "late", cpu="0", priority=9)
    answers.append(world.preempt(world.pending("p-1", priority=0)))
    assert evaluated == [5, 1]
    assert answers[0] == answers[1]
    assert "Insufficient cpu" in answers[0][1], "evicting the low pods is not enough"
