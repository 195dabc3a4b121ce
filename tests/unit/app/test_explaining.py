"""Recorded attempts of fault simulations, explained while they are played.

The scheduler that is asked has nominations, assumed pods and preemptions under way. What it says
must be what the attempt then comes to, and being asked must not change that: the play goes on as
logged.
"""

from __future__ import annotations

import pytest

from kubesched.api.core_v1 import Pod
from kubesched.app.recorded_simulation import record_simulation
from kubesched.app.simulated import playing_registry
from kubesched.framework.nodes.pods import PodInfo
from kubesched.insight.explain import Explainer
from kubesched.insight.explain.model import Verdict
from kubesched.insight.recording.recorder import digest_of
from kubesched.insight.recording.records import Attempt, Decision
from kubesched.lab.traces.log_player import play
from kubesched.scheduler.factory import Assembly
from kubesched.scheduler.scheduling_cycle import Failed


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 24, 55, 60, 121])
def test_explaining_every_attempt_says_what_it_comes_to_and_changes_nothing(seed: int) -> None:
    run = max(record_simulation(seed)[1], key=lambda each: sum(1 for _ in each.entries()))
    entries = list(run.entries())
    pods = {each.number: each.pod for each in entries if isinstance(each, Attempt)}
    logged = {each.number: each for each in entries if isinstance(each, Decision)}
    placed = failed = 0

    def look(number: int, assembly: Assembly) -> bool:
        nonlocal placed, failed
        if number not in logged:
            return False  # skipped, or not decided before the end
        decision = logged[number]
        pod = queued(assembly, pods[number])
        handle = assembly.scheduler.frameworks[pod.spec.scheduler_name].handle
        assert not handle.extenders, "their recorded answers can be asked for once"
        explainer = Explainer(assembly)
        told = explainer.explain(pod, fix=number % 10 == 0)
        if decision.node:
            placed += 1
            # The pod may have entered the queue before a preemption for it began, which keeps it
            # out from then on.
            if {wait.code for wait in told.waiting_for} != {"PreemptionUnderWay"}:
                assert told.verdict is Verdict.FITS
            assert decision.node in {row.node for row in told.matrix if row.feasible}
            return False
        failed += 1
        outcome, _ = explainer.decide(assembly.frameworks[told.profile], PodInfo(pod))
        if pod.spec.scheduling_group is not None:
            # It failed with its group, or beside members that took its room.
            assert told.message or any(note.startswith("PodGroup ") for note in told.notes)
            return False
        assert told.message
        if isinstance(outcome, Failed):
            assert digest_of(outcome.status) == decision.digest
        return False

    played = play(run, playing_registry(), before_attempt=look)
    assert played.difference == ""
    assert placed + failed > 20


def queued(assembly: Assembly, key: str) -> Pod:
    """The pod as it waits in the queue."""
    namespace, _, name = key.partition("/")
    info = assembly.scheduler.queue.get_pod(namespace, name)
    assert info is not None
    return info.pod_info.pod
