"""Recordings of simulations with faults: every decision comes out the same when they are played."""

from __future__ import annotations

from random import Random

import pytest

from kubesched.app.recorded_simulation import play_simulation
from kubesched.lab.simulation.options import Options, of_seed, with_groups

FOUND = {
    "one of several victims leaves PreBind while the eviction begins": 3273,
    "pods of a class are flushed beside others after a checkpoint": 10140,
}
"""Seeds that once found something."""


@pytest.mark.parametrize(
    ("seed", "options"),
    [
        (22, with_groups(of_seed(22, faults=True), Random("22/groups"))),  # and an extender
        (86, of_seed(86, faults=True, extras=("groups",))),  # a pod is evicted in PreBind
        (23, of_seed(23, faults=True, extras=("groups",))),
    ],
    ids=lambda value: value if isinstance(value, int) else "",
)
def test_groups_are_the_same_when_played(seed: int, options: Options) -> None:
    played = play_simulation(seed, options)
    assert played.difference == ""
    assert played.decisions > 0


@pytest.mark.parametrize(
    "seed",
    [
        *(pytest.param(seed, id=what) for what, seed in FOUND.items()),
        *(11, 35, 73, 75, 115, 30010, 30043, *range(300, 315)),
    ],
)
def test_every_decision_is_the_same_when_played(seed: int) -> None:
    played = play_simulation(seed)
    assert played.difference == ""
    assert played.outcome.is_good
    assert played.decisions > 0
