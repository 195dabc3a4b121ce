"""The second implementation of preemption, where pods on a node share a host port.

# Upstream: a node's ports are a set. One of the pods that share a port frees it when it goes, and takes it when it is back.
"""

from __future__ import annotations

import pytest

from kubesched.lab.simulation.rules import State
from kubesched.lab.simulation.victims import Budget, fits_without_victims, spareable, violations
from kubesched.playground.apimachinery.objects import JsonObject

PRIORITIES = {"low": 10, "high": 1000}
KEPT = [Budget({"app": "kept"}, 0)]


def _pod(name: str, priority: str, *, port: int | None = None, app: str = "any") -> JsonObject:
    ports = [{"hostPort": port}] if port is not None else []
    return {
        "metadata": {"name": name, "uid": name, "labels": {"app": app}},
        "spec": {"priority": PRIORITIES[priority], "containers": [{"ports": ports}]},
    }


def _state(*pods: JsonObject, blurred: int | None = None) -> State:
    """One node with room for many pods, of whose ports one is free although a pod has it."""
    room = {"cpu": "4", "memory": "4Gi", "pods": "10"}
    node = {"metadata": {"name": "n"}, "spec": {}, "status": {"allocatable": room}}
    ports = {} if blurred is None else {"n": frozenset({blurred})}
    return State({"n": node}, tuple((pod, "n") for pod in pods), blurred_ports=ports)


WANTS_80 = _pod("wants 80", "high", port=80)
EQUAL = _pod("equal", "high", port=80)
LESS = _pod("less", "low", port=80, app="kept")
ALSO_LESS = _pod("also less", "low", port=80, app="kept")
ELSEWHERE = _pod("elsewhere", "low", port=81, app="kept")


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        pytest.param([EQUAL, LESS], (1, 1), id="a victim frees the port of a pod that stays"),
        pytest.param([EQUAL, ELSEWHERE], None, id="a victim frees no port that it has not"),
        pytest.param([LESS, ALSO_LESS], (2, 2), id="neither of two victims may stay"),
        pytest.param([EQUAL, LESS, ALSO_LESS], (2, 2), id="nor beside a pod that stays"),
        pytest.param([EQUAL, LESS, ELSEWHERE], (1, 1), id="a victim with another port may stay"),
    ],
)
def test_what_a_shared_port_costs(
    there: list[JsonObject], expected: tuple[int, int] | None
) -> None:
    assert violations(WANTS_80, "n", _state(*there), (), KEPT) == expected


@pytest.mark.parametrize(
    ("there", "victims", "spared"),
    [
        pytest.param([EQUAL, LESS], [LESS], None, id="a pod that stays has it"),
        pytest.param([LESS, ALSO_LESS], [LESS, ALSO_LESS], None, id="another victim has it"),
        pytest.param([EQUAL, LESS, ELSEWHERE], [LESS, ELSEWHERE], "elsewhere", id="has another"),
    ],
)
def test_who_shares_the_port_has_to_go(
    there: list[JsonObject], victims: list[JsonObject], spared: str | None
) -> None:
    uids = [victim["metadata"]["uid"] for victim in victims]
    assert spareable(WANTS_80, "n", _state(*there), (), uids, {}) == spared


def test_who_comes_takes_a_port_that_was_free_though_a_pod_had_it() -> None:
    state = _state(LESS, blurred=80)
    assert fits_without_victims(WANTS_80, "n", state, ())
    assert not fits_without_victims(WANTS_80, "n", state, [(EQUAL, "n")])
    assert spareable(WANTS_80, "n", state, (), ["less"], {}) is None
