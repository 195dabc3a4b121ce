"""The n-th call fails: for every n that a small scenario makes, in every way a call can fail.

The scenario runs once untouched, and once for each of the API writes and reads that it made then.
Safety and liveness are the same as in any other run.
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

OF_WRITES = ("conflict", "lost answer", "crash after commit")
"""Ways in which only writes go wrong: no read is a conflict, and a read whose answer is lost is one
that was lost.
"""

CUT_S = 40.0


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One run of a sweep: the call that failed, the first being 1, or 0 if none did."""

    way: str
    call: int
    calls: tuple[str, ...]
    """Method and path of every call that was made."""
    outcome: SimulationResult

    @property
    def was_hit(self) -> bool:
        return 0 < self.call <= len(self.calls)

    @property
    def what(self) -> str:
        return self.calls[self.call - 1] if self.was_hit else ""


def sweep(scenario: Scenario, way: str, make_process: ProcessFactory) -> Iterator[SweepRun]:
    """Fail none, then the first, the second, ... call that can go wrong in this way.

    Up to the call that fails, every run makes the calls of the untouched one.
    """
    untouched = fail_call(scenario, way, 0, make_process)
    yield untouched
    for number, what in enumerate(untouched.calls, start=1):
        if way in OF_WRITES and what.startswith("GET "):
            continue
        run = fail_call(scenario, way, number, make_process)
        assert run.what == what, f"call {number} is {run.what} and was {what}"
        yield run


def fail_call(scenario: Scenario, way: str, number: int, make_process: ProcessFactory) -> SweepRun:
    calls: list[str] = []

    def prepare(world: World) -> None:
        world.scenario = scenario
        world.processes.on_call = _FailNth(world.processes, number, way, calls)

    outcome = simulate(SEED, make_process, options=options(scenario), prepare=prepare)
    return SweepRun(way, number, tuple(calls), outcome)


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
    """Notes calls and spoils one."""

    def __init__(self, processes: Processes, number: int, way: str, calls: list[str]) -> None:
        self._processes = processes
        self._number = number
        self._way = way
        self._calls = calls

    def __call__(self, process: str, request: Request) -> CallFault | None:
        self._calls.append(f"{request.method} {request.target.partition('?')[0]}")
        if len(self._calls) != self._number:
            return None
        fault = WAYS[self._way]
        for incarnation in self._processes.alive():
            if incarnation.name != process:
                continue
            if self._way.startswith("crash"):
                self._processes.crash_now(incarnation, fault)
            elif self._way.startswith("cut off"):
                asyncio.get_running_loop().call_soon(self._processes.cut_off, incarnation, CUT_S)
        return fault
