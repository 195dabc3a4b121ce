"""The second look knows what an extender could not be asked, and what changed meanwhile."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kubesched.api.core_v1 import Pod
from kubesched.app.scheduler_app import WholeObjectsByRest
from kubesched.app.simulated import SimulatedProcess
from kubesched.base.errors import ConnectFailed
from kubesched.framework.preemption.evaluator import Evaluator
from kubesched.lab.simulation.options import NO_FAULTS, Rates, draw
from kubesched.lab.simulation.run import simulate
from kubesched.playground.apimachinery.objects import JsonObject

PREEMPTORS: dict[str, Any] = {
    "nodes": 2,
    "mixes": ("priorities",),
    "instances": 1,
    "change_every_s": 1.0,
    "extras": ("extender", "tight"),
    "extender_traits": ("filter", "names"),
    "extender_trouble": 0.0,
    **dict.fromkeys(("crash_every_s", "partition_every_s", "jump_every_s", "mischief"), 0.0),
}
"""An extender that is awaited, and little that goes wrong."""


def _simulate(rates: Rates) -> None:
    options = replace(draw(Random("1/options"), faults=True), **PREEMPTORS, rates=rates)
    outcome = simulate(1, SimulatedProcess, options=options)
    assert outcome.is_good, outcome.violation


def test_a_nominated_pod_that_could_not_be_read_for_an_extender_is_tried_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, count = WholeObjectsByRest.pod, 0

    async def pod(self: WholeObjectsByRest, pod: Pod) -> JsonObject:
        nonlocal count
        if pod.status.nominated_node_name:
            count += 1
            if count % 2:  # the trial of the nominated node ends, and not the attempt
                raise ConnectFailed("connection refused")
        return await read(self, pod)

    monkeypatch.setattr(WholeObjectsByRest, "pod", pod)
    _simulate(NO_FAULTS)
    assert count > 1


def test_a_preemptor_that_changes_while_an_extender_is_awaited_is_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, changed = Evaluator._current, list[str]()

    def current(self: Evaluator, pod: Pod) -> Pod | None:
        newest = read(self, pod)
        if newest is not None and newest.metadata.resource_version != pod.metadata.resource_version:
            changed.append(pod.metadata.name)
        return newest

    monkeypatch.setattr(Evaluator, "_current", current)
    _simulate(replace(NO_FAULTS, delay_watch=0.6))
    assert changed
