"""Recordings of simulations with faults: every decision comes out the same when they are played."""

from __future__ import annotations

import pytest
from recorded_simulation import playing_registry, record_simulation

from kubesched.app.replaying import play


@pytest.mark.parametrize("seed", [11, 35, 73, 75, 115, *range(300, 315)])
def test_every_decision_is_the_same_when_played(seed: int) -> None:
    for run in record_simulation(seed):
        played = play(run, playing_registry())
        assert played.difference == ""
        assert played.attempts >= played.decisions
