"""Runs from seeds, and their results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from kubesched.insight.state.collector import collector_paused
from kubesched.insight.state.virtual_loop import (
    SimulationStuck,
    VirtualLoop,
    clear_garbage,
    run_virtual,
)
from kubesched.lab.simulation.options import ONE_SEGMENT_BYTES, DiskOptions, Options, of_seed
from kubesched.lab.simulation.processes import ProcessFactory
from kubesched.lab.simulation.trace import Trace, UnexpectedErrors, Violation
from kubesched.lab.simulation.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """The result of one run."""

    seed: int
    options: Options
    digest: str
    """Digest of the whole trace: equal if and only if the runs are."""
    events: int
    checks: int
    virtual_s: float
    counts: dict[str, int]
    """Events by kind."""
    census: dict[str, dict[str, int]]
    """Counts of injected faults, see `census.FAULTS`."""
    bound: int
    pending: int
    violation: Violation | None
    last_lines: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        return self.violation is None


@collector_paused()  # else it goes through the whole world before that is garbage
def simulate(
    seed: int,
    make_process: ProcessFactory,
    *,
    faults: bool = True,
    options: Options | None = None,
    echo: Callable[[str], None] | None = None,
    prepare: Callable[[World], None] | None = None,
    safe_point: Callable[[], None] = lambda: None,
) -> SimulationResult:
    """Simulate one run.

    `options` replaces the seed's options; `prepare` is called with the world before it starts;
    `safe_point` is called between rounds of the loop and may raise to end the run.
    """
    clear_garbage()
    options = options or of_seed(seed, faults=faults)
    worlds: list[World] = []

    async def main(loop: VirtualLoop) -> None:
        loop.safe_point = safe_point
        trace = Trace(loop.time, echo)
        async with asyncio.TaskGroup() as group:
            world = World(loop, group, seed, options, make_process, trace)
            worlds.append(world)
            if prepare is not None:
                prepare(world)
            await world.run()

    violation: Violation | None = None
    errors = UnexpectedErrors(lambda *what: worlds[0].complaints.add(*what))
    with errors.watch():
        try:
            run_virtual(main)
            worlds[0].processes.recordings.check()
        except* (Violation, SimulationStuck) as group:
            violation = _first(group)
    outcome = _outcome(seed, worlds.pop(), violation)
    if outcome.is_good and options.disk is not None and prepare is None:
        return _compared(outcome, options.disk, make_process)
    return outcome


def _compared(
    outcome: SimulationResult, disk: DiskOptions, make_process: ProcessFactory
) -> SimulationResult:
    """Compare a run with the same run on disks that never fail.

    Skipped if disk faults ended processes, or if segments fill up: at the checkpoint between two
    segments a scheduler restarts with other random numbers, and the number of segments depends on
    how long the recording lasts.
    """
    if disk.crash or disk.segment_bytes != ONE_SEGMENT_BYTES:
        return outcome
    good = replace(disk, short=0.0, fail=0.0, fill=0.0, fail_sync=0.0, fail_delete=0.0)
    if good == disk or not any(outcome.census["disks"].values()):
        return outcome
    same = simulate(outcome.seed, make_process, options=replace(outcome.options, disk=good))
    if same.digest == outcome.digest:
        return outcome
    why = Violation(
        "scheduling does not depend on the disk",
        f"{outcome.events} events became {same.events} without disk faults",
    )
    return replace(outcome, violation=why)


def _first(group: BaseExceptionGroup[Violation | SimulationStuck]) -> Violation:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, Violation):
        return error
    return Violation("the world goes on", str(error))


def _outcome(seed: int, world: World, violation: Violation | None) -> SimulationResult:
    pods = world.cluster.active_pods()
    bound = sum(1 for pod in pods if pod["spec"].get("nodeName"))
    trace = world.trace
    return SimulationResult(
        seed=seed,
        options=world.options,
        digest=trace.digest(),
        events=trace.count,
        checks=world.checkers.checks,
        virtual_s=world.virtual_s,
        counts=dict(sorted(trace.kinds.items())),
        census=trace.census.to_plain(),
        bound=bound,
        pending=len(pods) - bound,
        violation=violation,
        last_lines=tuple(trace.last_lines()),
    )
