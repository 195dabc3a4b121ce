"""Planted bugs: patches that break the scheduler, and the simulation that has to notice.

Each patch in `tests/simulation/mutants` begins with what it breaks (`What:`) and the promise that
is broken by it (`Promise:`). A mutant is applied to a scratch copy of the package, never to the
work tree, and seeds are run in a process of their own until one fails.

    scripts/mutants                        every mutant, seeds 1 to 200
    scripts/mutants cache queue-in-flight  those whose name contains one of these
    scripts/mutants --table                the table of the reference
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATCHES = ROOT / "tests" / "simulation" / "mutants"
MAX_SEEDS = 200

_RUN_SEEDS = """
import json, sys
from kubesched.app.simulated import SimulatedProcess
from kubesched.lab.simulation.run import simulate

for seed in map(int, sys.argv[1:]):
    violation = simulate(seed, SimulatedProcess).violation
    if violation is not None:
        print(json.dumps([seed, violation.property, violation.detail]))
        break
"""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug."""

    name: str
    what: str
    promise: str
    path: Path


@dataclass(frozen=True, slots=True)
class Catch:
    """The first seed that fails, and how."""

    seed: int
    promise: str
    detail: str


def all_mutants() -> list[Mutant]:
    return [_read(path) for path in sorted(PATCHES.glob("*.patch"))]


def mutant(name: str) -> Mutant:
    return _read(PATCHES / f"{name}.patch")


def _read(path: Path) -> Mutant:
    head = path.read_text().partition("\n\n")[0]
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    return Mutant(path.stem, fields["What"], fields["Promise"], path)


def apply(chosen: Mutant, directory: Path, *, check_only: bool = False) -> str:
    """Apply a patch below a directory that has `src`; returns what git complains about, or
    nothing.
    """
    command = ["git", "apply", *(("--check",) if check_only else ()), str(chosen.path)]
    # Outside a repository, so that git takes the paths as they are.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(directory.parent)}
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, check=False, env=environment
    )
    return done.stderr if done.returncode else ""


def catch(chosen: Mutant, seeds: Iterable[int] = range(1, MAX_SEEDS + 1)) -> Catch | None:
    """The first of these seeds that fails with the mutant; None if all pass."""
    with tempfile.TemporaryDirectory() as scratch:
        # With the compiled files and their times: only what the patch touches is compiled anew.
        shutil.copytree(ROOT / "src" / "kubesched", Path(scratch) / "src" / "kubesched")
        problem = apply(chosen, Path(scratch))
        if problem:
            raise ValueError(f"{chosen.name} does not apply: {problem}")
        environment = {**os.environ, "PYTHONPATH": str(Path(scratch) / "src")}
        done = subprocess.run(
            [sys.executable, "-c", _RUN_SEEDS, *map(str, seeds)],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
    if done.returncode:
        raise RuntimeError(f"{chosen.name}: the simulation itself failed: {done.stderr[-2000:]}")
    return Catch(*json.loads(done.stdout)) if done.stdout else None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run the simulation against planted bugs.")
    parser.add_argument("names", nargs="*", help="parts of names; all mutants without any")
    parser.add_argument("--seeds", type=int, default=MAX_SEEDS, help="seeds 1 to this one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--table", action="store_true", help="print a table for the reference")
    args = parser.parse_args(arguments)
    chosen = [
        item
        for item in all_mutants()
        if not args.names or any(part in item.name for part in args.names)
    ]
    missed = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        running = {pool.submit(catch, item, range(1, args.seeds + 1)): item for item in chosen}
        for done in as_completed(running):
            item, result = running[done], done.result()
            missed += result is None
            line = _row(item, result) if args.table else _line(item, result, args.seeds)
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    sys.stderr.write(f"{len(chosen)} mutants, {missed} not caught\n")
    return 1 if missed else 0


def _line(item: Mutant, result: Catch | None, seeds: int) -> str:
    if result is None:
        return f"{item.name}: NOT CAUGHT by {seeds} seeds"
    return f"{item.name}: seed {result.seed}: {result.promise}: {result.detail}"


def _row(item: Mutant, result: Catch | None) -> str:
    seed, promise = ("none", "") if result is None else (str(result.seed), result.promise)
    return f"| `{item.name}` | {item.what} | {promise} | {seed} |"


if __name__ == "__main__":
    raise SystemExit(main())
