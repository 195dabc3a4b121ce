"""`kubesched simulate`: the scheduler in virtual time, with faults from a seed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubesched.app.cli.options import add_options, add_output
from kubesched.app.cli.parsing import usage_error
from kubesched.app.cli.sweeping import add_sweep_options, run_with_progress

if TYPE_CHECKING:
    from kubesched.lab.simulation.run import SimulationResult

DESCRIPTION = """\
Run the scheduler against a simulated cluster in virtual time. Everything that happens follows from
the seed: the cluster, its pods, and with --faults also lost, late and repeated answers and watch
events, refused requests, crashes, lost leases, clock jumps, nodes and pods that come and go, and
plugins that misbehave.

While that lasts, safety is checked: no node is over its allocatable, no pod is lost or bound twice,
rules hold at every decision, queue and cache are consistent, at most one replica leads.
Then the faults stop, and all that can be placed must be placed soon.

The same seed gives the same run, event by event. Exit code 0 means that every invariant held.

To see what a change would do to a cluster, use 'plan'; to count replicas, 'capacity'; to compare
configurations on a trace or a recording, 'replay'.

With --replay every scheduler process is recorded, and each recording is played: a decision that
comes out differently is a failure. The plugin that misbehaves at random is left out then.
"""

_OPTIONS = """
--faults              let things go wrong
--seed N {number=1}   the first seed
--runs K {positive=1}  seeds N, N+1, ...
--with WHAT {|volumes|budgets|extender|resizing|devices|groups|disk*}  have this in every run, not
    only where the seed draws it: volumes, budgets, extender, resizing, devices, groups (of pods,
    without disks), or disk (recorded, to disks with faults)
--replay              record every scheduler, play the recordings and compare every decision
--trace               print every event as it happens
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, _OPTIONS)
    add_sweep_options(parser)
    add_output(parser, "text", "json")


def main(args: argparse.Namespace) -> int:
    from kubesched.app.cli.interruption import INTERRUPTION

    if _is_sweep(args):
        if args.trace or args.replay:
            return usage_error("--trace and --replay need --executor local:1 and no --results")
        return _report(args, _swept(args))
    with INTERRUPTION.at_safe_points() as safe_point:
        return _replay(args, safe_point) if args.replay else _report(args, _runs(args, safe_point))


def _is_sweep(args: argparse.Namespace) -> bool:
    return args.executor != "local:1" or args.results is not None


def _swept(args: argparse.Namespace) -> Iterator[SimulationResult | _Failed]:
    """The runs in order of their seeds, from any worker."""
    from kubesched.app.simulated import SimulationSettings, decode, keyed, simulate_cell

    settings = SimulationSettings(args.faults, tuple(args.with_))
    seeds = range(args.seed, args.seed + args.runs)
    results = run_with_progress(args, simulate_cell, settings, keyed(settings, seeds))
    for seed, result in zip(seeds, results, strict=True):
        yield _Failed(seed, result.error) if result.data is None else decode(result.data)


@dataclass(frozen=True, slots=True)
class _Failed:
    """A run without a result."""

    seed: int
    error: str


def _report(args: argparse.Namespace, runs: Iterable[SimulationResult | _Failed]) -> int:
    from kubesched.lab.simulation import report

    good = True
    outcomes: list[SimulationResult] = []
    for outcome in runs:
        if isinstance(outcome, _Failed):
            good = False
            print(f"seed {outcome.seed}: could not be run: {outcome.error}", file=sys.stderr)
            continue
        good &= outcome.is_good
        if args.output == "json":
            print(json.dumps(report.to_plain(outcome)), flush=True)
            continue
        outcomes.append(outcome)
        print(report.line(outcome), flush=True)
        if not outcome.is_good:
            print(report.failure(outcome, command=_command(args, outcome.seed)), flush=True)
    if len(outcomes) > 1:
        if args.faults:
            print(report.faults(outcomes))
        print(report.summary(outcomes))
    return 0 if good else 1


def _runs(args: argparse.Namespace, safe_point: Callable[[], None]) -> Iterator[SimulationResult]:
    from kubesched.app.simulated import SimulatedProcess
    from kubesched.lab.simulation.options import of_seed
    from kubesched.lab.simulation.run import simulate

    echo = (lambda line: print(line, file=sys.stderr)) if args.trace else None
    for seed in range(args.seed, args.seed + args.runs):
        options = of_seed(seed, faults=args.faults, extras=args.with_)
        yield simulate(seed, SimulatedProcess, options=options, echo=echo, safe_point=safe_point)


def _replay(args: argparse.Namespace, safe_point: Callable[[], None]) -> int:
    from kubesched.app.recorded_simulation import play_simulation
    from kubesched.lab.simulation import report
    from kubesched.lab.simulation.options import of_seed

    failed: list[int] = []
    processes = decisions = 0
    for seed in range(args.seed, args.seed + args.runs):
        options = of_seed(seed, faults=args.faults, extras=args.with_)
        played = play_simulation(seed, options, safe_point=safe_point)
        processes += played.processes
        decisions += played.decisions
        verdict = played.difference or "all as logged"
        if played.difference or not played.outcome.is_good:
            failed.append(seed)
        print(report.line(played.outcome))
        print(
            f"  {played.processes} recordings, {played.decisions} decisions played: {verdict}",
            flush=True,
        )
    names = f": seeds {', '.join(map(str, failed))}" if failed else ""
    print(
        f"{args.runs} runs, {processes} recordings, {decisions} decisions played, "
        f"{len(failed)} failed{names}"
    )
    return 1 if failed else 0


def _command(args: argparse.Namespace, seed: int) -> str:
    flags = [*(["--faults"] if args.faults else []), *(f"--with {name}" for name in args.with_)]
    return " ".join(["kubesched simulate", *flags, f"--seed {seed} --trace"])
