"""The n-th call fails: for every n that a small scenario makes, in every way a call can fail.

The scenario runs once for each API write and read in turn until a run ends before its n-th call:
then every call has failed once. Safety and liveness are the same as in any other run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from kubesched.client.transport import Request
from kubesched.lab.simulation.faults import CallFault
from kubesched.lab.simulation.options import NO_FAULTS, Options
from kubesched.lab.simulation.processes import Processes, ProcessFactory
from kubesched.lab.simulation.run import SimulationResult, simulate
from kubesched.lab.simulation.world import Scenario, World

SEED = 1
MAX_CALLS = 500

WAYS = {
    "refused": CallFault("refused", commits=False, code=500),
    "conflict": CallFault("refused", commits=False, code=409),
    "lost request": CallFault("broken", commits=False),
    "lost answer": CallFault("broken", commits=True),
    "silence after commit": CallFault("silent", commits=True),
    "cut off after commit": CallFault("broken", commits=True),
    "crash before commit": CallFault("broken", commits=False),
    "crash after commit": CallFault("broken", commits=True),
}
"""How a call can go wrong; a crash takes the process with it, being cut off lasts for `CUT_S`."""

CUT_S = 40.0


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One run of a sweep. `was_hit` is False for the last: there was no n-th call."""

    way: str
    call: int
    what: str
    was_hit: bool
    outcome: SimulationResult


def sweep(scenario: Scenario, way: str, make_process: ProcessFactory) -> Iterator[SweepRun]:
    """Fail the first, the second, ... call in this way, until a run passes untouched."""
    for number in range(1, MAX_CALLS + 1):
        run = fail_call(scenario, way, number, make_process)
        yield run
        if not run.was_hit:
            return
    raise AssertionError(f"the scenario {scenario.name} makes more than {MAX_CALLS} calls")


def fail_call(scenario: Scenario, way: str, number: int, make_process: ProcessFactory) -> SweepRun:
    hit: list[str] = []

    def prepare(world: World) -> None:
        world.scenario = scenario
        world.processes.on_call = _FailNth(world.processes, number, way, hit)

    outcome = simulate(SEED, make_process, options=options(scenario), prepare=prepare)
    return SweepRun(way, number, hit[0] if hit else "", bool(hit), outcome)


def options(scenario: Scenario) -> Options:
    """No fault but the one call."""
    return Options(
        nodes=0,
        pods=0,
        mixes=("plain",),
        duration_s=scenario.duration_s,
        instances=1,
        rates=NO_FAULTS,
        focus="",
        crash_every_s=0.0,
        partition_every_s=0.0,
        jump_every_s=0.0,
        change_every_s=0.0,
        mischief=0.0,
        extras=scenario.extras,
    )


class _FailNth:
    """Counts calls and spoils one."""

    def __init__(self, processes: Processes, number: int, way: str, hit: list[str]) -> None:
        self._processes = processes
        self._left = number
        self._way = way
        self._hit = hit

    def __call__(self, process: str, request: Request) -> CallFault | None:
        self._left -= 1
        if self._left != 0:
            return None
        self._hit.append(f"{request.method} {request.target.partition('?')[0]}")
        fault = WAYS[self._way]
        for incarnation in self._processes.alive():
            if incarnation.name != process:
                continue
            if self._way.startswith("crash"):
                self._processes.crash_now(incarnation, fault)
            elif self._way.startswith("cut off"):
                asyncio.get_running_loop().call_soon(self._processes.cut_off, incarnation, CUT_S)
        return fault
