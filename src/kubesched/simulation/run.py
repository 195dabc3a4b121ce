"""Runs from seeds, and their results."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kubesched.simulation.options import Options, of_seed
from kubesched.simulation.processes import ProcessFactory
from kubesched.simulation.trace import Trace
from kubesched.simulation.violation import Violation
from kubesched.simulation.virtual_loop import SimulationStuck, VirtualLoop, run_virtual
from kubesched.simulation.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """What came of one run."""

    seed: int
    options: Options
    digest: str
    """Of the whole trace: equal if and only if the runs were."""
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
    """One run.

    `options` replaces what the seed would draw; `prepare` is called with the world before it starts; `safe_point` is
    called between rounds of the loop and may raise to end the run.
    """
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
    with quiet_logs():
        try:
            run_virtual(main)
        except* (Violation, SimulationStuck) as group:
            violation = _first(group)
    return _outcome(seed, worlds[0], violation)


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


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Silence the log: under faults every other line is an expected warning."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
