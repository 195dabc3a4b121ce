"""Pods that are as expensive as the API server admits, and a limit on the work per attempt.

Anyone who may create pods can create these. Work is counted in interpreter calls, which do not
depend on machine load, and may grow linearly with the pod. A plugin with quadratic work, in one
part or in the product of two, exceeds the budget at these sizes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.status import Status
from kubesched.lab.simulation.options import HOSTILE_PODS
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.scheduler.algorithm import ScheduleResult, SchedulingAlgorithm

SIZE: Final = 400
"""Items of one kind in a hostile pod; they form 160,000 pairs."""
BASE_CALLS: Final = 10_000
CALLS_PER_NODE: Final = 100
CALLS_PER_ITEM: Final = 300
"""Twice the work of the most expensive kind."""


def budget_calls(items: int, nodes: int) -> int:
    return BASE_CALLS + CALLS_PER_NODE * nodes + CALLS_PER_ITEM * items


def spec_of(kind: str, count: int) -> JsonObject:
    """The expensive part of a pod's spec."""
    return _SPECS[kind](count)


def _spread(count: int) -> JsonObject:
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": f"example.com/key-{n}",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
            for n in range(count)
        ]
    }


def _terms(kind: str) -> Callable[[int], JsonObject]:
    def spec(count: int) -> JsonObject:
        terms = [
            {
                "topologyKey": f"example.com/key-{n}",
                "labelSelector": {"matchLabels": {"example.com/x": f"{n}"}},
            }
            for n in range(count)
        ]
        return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}

    return spec


def _node_terms(count: int) -> JsonObject:
    terms = [
        {"matchExpressions": [{"key": f"key-{n}", "operator": "In", "values": [f"v{n}"]}]}
        for n in range(count)
    ]
    required = {"nodeSelectorTerms": terms}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


def _tolerations(count: int) -> JsonObject:
    return {"tolerations": [{"key": f"k{n}", "operator": "Exists"} for n in range(count)]}


def _containers(count: int) -> JsonObject:
    return {
        "containers": [
            {
                "name": f"c{n}",
                "image": f"image-{n}",
                "ports": [{"containerPort": 80, "hostPort": 9000 + n, "protocol": "TCP"}],
            }
            for n in range(count)
        ]
    }


_SPECS: Final[dict[str, Callable[[int], JsonObject]]] = {
    "spread constraints": _spread,
    "affinity terms": _terms("podAffinity"),
    "anti-affinity terms": _terms("podAntiAffinity"),
    "node selector terms": _node_terms,
    "tolerations": _tolerations,
    "containers": _containers,
}
assert list(_SPECS) == list(HOSTILE_PODS)


class Work:
    """Calls so far."""

    def __init__(self) -> None:
        self.calls = 0

    def _on_event(self, _frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            self.calls += 1

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count calls inside the block, unless a profiler is active."""
        if sys.getprofile() is not None:
            yield
            return
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(None)


@contextmanager
def counting(
    algorithms: Sequence[SchedulingAlgorithm], pod: str, on_attempt: Callable[[int], None]
) -> Iterator[None]:
    """Report the work of every search for a node for the pod with this name."""

    def wrapped(algorithm: SchedulingAlgorithm) -> Callable[..., ScheduleResult | Status]:
        schedule = algorithm.schedule

        def counted(
            framework: Framework, state: CycleState, info: PodInfo
        ) -> ScheduleResult | Status:
            if info.name != pod:
                return schedule(framework, state, info)
            work = Work()
            with work.counted():
                outcome = schedule(framework, state, info)
            on_attempt(work.calls)
            return outcome

        return counted

    for algorithm in algorithms:
        algorithm.schedule = wrapped(algorithm)  # type: ignore[method-assign]  # only this one
    try:
        yield
    finally:
        for algorithm in algorithms:
            del algorithm.schedule
