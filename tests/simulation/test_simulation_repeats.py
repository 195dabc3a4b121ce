"""The same seed gives the same run: within a process, across processes, whatever strings hash
to.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import weakref

import pytest

from kubesched.app.simulated import SimulatedProcess
from kubesched.insight.state.virtual_loop import clear_garbage
from kubesched.lab.simulation.options import of_seed
from kubesched.lab.simulation.run import simulate
from kubesched.lab.simulation.world import World

FIRST, RUNS = 11, 8


def _digests(hash_seed: str) -> list[str]:
    command = [
        *(
            sys.executable,
            "-c",
            "from kubesched.app.cli.main import main; raise SystemExit(main())",
        ),
        *("simulate", "--faults", "--seed", str(FIRST), "--runs", str(RUNS), "-o", "json"),
    ]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return [json.loads(line)["digest"] for line in done.stdout.splitlines()]


def test_processes_with_different_string_hashes_run_alike() -> None:
    first, second = _digests("1"), _digests("4242")
    assert len(first) == RUNS
    assert first == second


def test_a_run_does_not_depend_on_the_runs_before_it() -> None:
    alone = simulate(FIRST, SimulatedProcess).digest
    simulate(FIRST + 1, SimulatedProcess)
    assert simulate(FIRST, SimulatedProcess).digest == alone


def test_different_seeds_run_differently() -> None:
    assert simulate(1, SimulatedProcess).digest != simulate(2, SimulatedProcess).digest


@pytest.mark.parametrize("extras", [(), ("disk",)], ids=["plain", "recorded"])
def test_nothing_is_left_of_a_run_when_the_next_one_begins(extras: tuple[str, ...]) -> None:
    """What is still referred to then is kept for good, and there may be a hundred thousand runs."""
    worlds: list[weakref.ref[World]] = []
    options = of_seed(5001, faults=True, extras=extras)
    simulate(
        5001,
        SimulatedProcess,
        options=options,
        prepare=lambda world: worlds.append(weakref.ref(world)),
    )
    clear_garbage()
    assert [world() for world in worlds] == [None]
