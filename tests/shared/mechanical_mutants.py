"""Mutants by a generator: one mechanical change of the source each, drawn by seed.

    python tests/shared/mechanical_mutants.py --first 1 --count 300 --results FILE
    python tests/shared/mechanical_mutants.py --results FILE --table

Each is written into a scratch copy of the package. First unit tests are run, those about the
changed module before those that only import it, then seeds of the simulation; the first failure
ends the trial. Results are kept in the file, and a later run goes on after them. A mutant that
neither notices may be equivalent: judge it by hand.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from random import Random

from mutants import _RUN_SEEDS, ROOT

PACKAGE = ROOT / "src" / "kubesched"
UNIT_TESTS = ROOT / "tests" / "unit"
WHERE = ("scheduler", "framework/nodes", "plugins", "client/informers")
DROPPED = (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete)
FILES = 20
"""Test modules that are run for a mutant, at most: six miss half of what more would notice."""
CPU_S = 60
"""CPU time of the unit tests, and of the simulation, of one mutant. Only the latter kills by it."""


@dataclass(frozen=True, slots=True)
class MechanicalMutant:
    """One changed file."""

    path: str
    """Below the package."""
    what: str
    source: str


def draw(seed: int) -> MechanicalMutant:
    """The mutant of this number."""
    random = Random(f"mutant {seed}")
    paths = sorted(path for part in WHERE for path in (PACKAGE / part).rglob("*.py"))
    while True:
        path = random.choice(paths)
        tree = ast.parse(path.read_text())
        ways = [way for node in _walk(tree) for way in _ways(node)]
        if ways:
            node, how = random.choice(ways)
            what = f"line {node.lineno}: {how}: {ast.unparse(node).splitlines()[0][:80]}"
            changed = _Change(node, how).visit(deepcopy(tree))
            source = ast.unparse(ast.fix_missing_locations(changed))
            if source != ast.unparse(tree):
                return MechanicalMutant(str(path.relative_to(PACKAGE)), what, source)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that may matter: not what is logged, nor what only readers see."""
    if isinstance(node, ast.Expr) and ast.unparse(node).startswith("log."):
        return
    if isinstance(node, ast.Assign) and ast.unparse(node).startswith("__all__"):
        return
    if isinstance(node, ast.If) and "log.enabled" in ast.unparse(node.test):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _walk(child)


def _ways(node: ast.AST) -> list[tuple[ast.AST, str]]:
    if isinstance(node, DROPPED) and not _is_docstring(node):
        return [(node, "drop")]
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        return [(node, "negate")]
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return [(node, "off by one")]
    if isinstance(node, ast.Call) and len(node.args) == 2 and not node.keywords:
        return [(node, "swap arguments")]
    return []


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


class _Change(ast.NodeTransformer):
    """Changes the node at one place of a copy of the tree."""

    def __init__(self, node: ast.AST, how: str) -> None:
        self._place, self._how = (type(node), node.lineno, node.col_offset), how

    def visit(self, node: ast.AST) -> ast.AST:
        place = (type(node), getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
        if place != self._place:
            return self.generic_visit(node)
        if self._how == "drop":
            return ast.Pass()
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            node.test = ast.UnaryOp(ast.Not(), node.test)
        elif isinstance(node, ast.Constant):
            node.value += 1
        elif isinstance(node, ast.Call):
            node.args.reverse()
        return node


def tests_of(path: str) -> list[Path]:
    """The test modules to run for a changed module, those that are most about it first."""
    module = Path(path).with_suffix("")
    dotted = f"kubesched.{'.'.join(module.parts)}".removesuffix(".__init__")
    ranked = []
    for test in UNIT_TESTS.rglob("test_*.py"):
        text = test.read_text()
        named = len(_words(module) & _words(test.relative_to(UNIT_TESTS).with_suffix("")))
        if dotted in text or (UNIT_TESTS / module.parts[0]) in test.parents:
            is_own = test.stem == f"test_{module.name}"
            ranked.append((not is_own, dotted not in text, -named, len(text), test))
    return [entry[-1] for entry in sorted(ranked)[:FILES]]


def _words(path: Path) -> set[str]:
    """The words of a path, without its first part; in the singular."""
    return {word.removesuffix("s") for part in path.parts[1:] for word in part.split("_")}


class Trial:
    """A scratch copy of the package, in which one file at a time is changed."""

    def __init__(self, scratch: Path, seeds: int) -> None:
        self._package = scratch / "src" / "kubesched"
        self._seeds = [str(seed) for seed in range(1, seeds + 1)]
        shutil.copytree(PACKAGE, self._package)
        self._environment = {
            **os.environ,
            "PYTHONPATH": f"{scratch / 'src'}:{Path(__file__).parent}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "KUBESCHED_FUZZ_EXAMPLES": "20",
        }

    def killed_by(self, chosen: MechanicalMutant) -> str:
        """`unit tests`, `seed N`, `simulation` if it did not end, or `neither`."""
        place = self._package / chosen.path
        place.write_text(chosen.source)
        try:
            return self._killed_by(chosen.path)
        finally:
            shutil.copy2(PACKAGE / chosen.path, place)

    def _killed_by(self, path: str) -> str:
        options = ("-qx", "-n0", "-p", "no:cacheprovider", "-m", "not slow", "--tb=no")
        tests = tests_of(path)
        done = self._run("-m", "pytest", *options, *map(str, tests)) if tests else None
        if done is not None and done.returncode > 0:
            return "unit tests"
        done = self._run("-c", _RUN_SEEDS, *self._seeds)
        if done.returncode:
            return "simulation"
        return f"seed {json.loads(done.stdout)[0]}" if done.stdout else "neither"

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            capture_output=True,
            check=False,
            env=self._environment,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S)),
        )


def _known(results: Path | None) -> dict[int, dict[str, str]]:
    if results is None or not results.exists():
        return {}
    lines = map(json.loads, results.read_text().splitlines())
    return {line["number"]: line for line in lines}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Mechanical mutants, and what kills them.")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--results", type=Path, help="a file with a line of JSON per mutant")
    parser.add_argument("--table", action="store_true", help="only count what is in the file")
    args = parser.parse_args(arguments)
    known = _known(args.results)
    if not args.table:
        with tempfile.TemporaryDirectory() as scratch:
            trial = Trial(Path(scratch), args.seeds)
            for number in range(args.first, args.first + args.count):
                if number in known:
                    continue
                chosen = draw(number)
                by = trial.killed_by(chosen)
                known[number] = {
                    "number": number,
                    "path": chosen.path,
                    "what": chosen.what,
                    "by": by,
                }
                line = json.dumps(known[number]) + "\n"
                sys.stdout.write(line)
                sys.stdout.flush()
                if args.results is not None:
                    with args.results.open("a") as file:
                        file.write(line)
    counts = Counter(
        "simulation" if each["by"].startswith("seed") else each["by"] for each in known.values()
    )
    sys.stdout.write(f"{len(known)} mutants: {dict(counts)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
