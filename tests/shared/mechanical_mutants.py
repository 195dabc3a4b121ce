"""Mutants by a generator: one mechanical change of the source each, drawn by seed.

    python tests/shared/mechanical_mutants.py --first 1 --count 20 --seeds 10

Each is written into a scratch copy of the package. First the unit tests beside the changed file are run, then seeds of
the simulation; the report says which of them failed. A mutant that neither notices may be equivalent: judge it by hand.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from random import Random

from mutants import _RUN_SEEDS, ROOT

PACKAGE = ROOT / "src" / "kubesched"
WHERE = ("scheduler", "framework/nodes", "plugins", "client/informers")
DROPPED = (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete)


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
        ways = [way for node in ast.walk(tree) for way in _ways(node)]
        if ways:
            node, how = random.choice(ways)
            what = f"line {node.lineno}: {how}: {ast.unparse(node).splitlines()[0][:80]}"
            changed = _Change(node, how).visit(deepcopy(tree))
            source = ast.unparse(ast.fix_missing_locations(changed))
            if source != ast.unparse(tree):
                return MechanicalMutant(str(path.relative_to(PACKAGE)), what, source)


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


def killed_by(chosen: MechanicalMutant, seeds: int) -> str:
    """`unit tests`, `seed N`, or `neither`."""
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(PACKAGE, Path(scratch) / "src" / "kubesched")
        (Path(scratch) / "src" / "kubesched" / chosen.path).write_text(chosen.source)
        path = f"{Path(scratch) / 'src'}:{Path(__file__).parent}"
        environment = {**os.environ, "PYTHONPATH": path}
        beside = ROOT / "tests" / "unit" / Path(chosen.path).parent
        tests = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", str(beside)]
        if beside.is_dir() and _fails(tests, environment):
            return "unit tests"
        for seed in range(1, seeds + 1):
            if _fails([sys.executable, "-c", _RUN_SEEDS, str(seed)], environment, says=True):
                return f"seed {seed}"
    return "neither"


def _fails(command: Sequence[str], environment: dict[str, str], *, says: bool = False) -> bool:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, env=environment)
    return done.returncode != 0 or (says and bool(done.stdout))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Mechanical mutants, and what kills them.")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args(arguments)
    for number in range(args.first, args.first + args.count):
        chosen = draw(number)
        sys.stdout.write(f"{number} {chosen.path} {chosen.what}: {killed_by(chosen, args.seeds)}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
