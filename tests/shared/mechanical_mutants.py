"""Mutants by a generator: one mechanical change of the source each, drawn by seed.

    python tests/shared/mechanical_mutants.py --first 1 --count 300 --results FILE
    python tests/shared/mechanical_mutants.py --results FILE --table

Both the simulation and the unit tests judge every mutant. A process imports the package once and
forks for each trial; the child replaces the code of the changed function. Seeds and test modules
that do not execute the changed line cannot notice it and are not run: `Reach` knows them from
unmutated runs, which have to pass and in which only the functions of the drawn mutants are traced.
Results and reach are kept in files, and a later run of the same numbers goes on after them.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import json
import os
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar

import pytest
from mutants import ROOT
from scalar_look import TWINS, scalar_look

from kubesched.app.simulated import SimulatedProcess
from kubesched.lab.simulation.run import simulate

T = TypeVar("T", int, str)

PACKAGE = ROOT / "src" / "kubesched"
UNIT_TESTS = ROOT / "tests" / "unit"
AREAS = {
    "decision core": (3, ("scheduler", "framework", "plugins")),
    "informers": (1, ("client/informers",)),
    "binding path": (
        1,
        (
            "scheduler/binding_cycle.py",
            "scheduler/binding_slots.py",
            "scheduler/unknown_binding.py",
            "scheduler/failure.py",
            "scheduler/status_writer.py",
            "scheduler/cache",
            "framework/direct_bind.py",
            "framework/waiting_pods.py",
            "framework/runtime/bind.py",
            "framework/runtime/permit.py",
            "framework/runtime/reserve.py",
            "plugins/default_binder.py",
            "plugins/volume_binding/binding.py",
            "plugins/dynamic_resources/binding.py",
        ),
    ),
}
"""How often each is drawn, and what belongs to it. Within an area all places are equally likely."""
DIAGNOSTICS = {
    "scheduler/checkpoint.py",
    "scheduler/decisions.py",
    "scheduler/flight.py",
    "scheduler/plugin_profile.py",
    "scheduler/queue/log_lines.py",
    "scheduler/shadows.py",
    "scheduler/watchdog.py",
    "framework/runtime/timing.py",
}
"""Modules that observe decisions and make none."""
OBSERVERS = {"__repr__", "__str__", "check_invariants", "save", "restore", "checkpoint"}
"""Functions that are not part of a decision."""
OBSERVING = ("log.", "self._log.", "self.metrics", "self._metrics", "metrics.")
DROPPED = (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete)
TYPE_CHECKS = {"isinstance", "issubclass", "hasattr"}
"""Their swapped arguments only raise, as a local variable does that is never assigned."""
BOUNDARIES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
BATCH = 10
"""Test modules that one process traces; if it breaks, none of them is used."""
UNIT_CPU_S, TEST_CPU_S, SEED_CPU_S = 40, 15, 15
"""CPU time of a mutant's unit tests, and of one test or seed before it counts as hanging."""
MEMORY_BYTES = 6 << 30


@dataclass(frozen=True, slots=True)
class MechanicalMutant:
    """One changed function."""

    area: str
    path: str
    """Below the package."""
    function: str
    lines: tuple[int, int]
    """First and last line of the changed statement, without its body."""
    kind: str
    before: str
    code: CodeType

    def to_plain(self) -> dict[str, Any]:
        names = ("area", "path", "function", "lines", "kind", "before")
        return {name: getattr(self, name) for name in names}


# -- drawing ---------------------------------------------------------------------------------------


def draw(seed: int, among: Mapping[str, tuple[int, tuple[str, ...]]] = AREAS) -> MechanicalMutant:
    """The mutant of this number."""
    random = Random(f"mutant {seed}")
    area = random.choices(list(among), [weight for weight, _parts in among.values()])[0]
    while True:
        made = _make(area, *random.choice(_places(among[area][1])))
        if made is not None:
            return made


def at(path: str, kind: str, before: str) -> MechanicalMutant:
    """The first change of this kind to this code."""
    for place in _places((path,)):
        made = _make("", *place)
        if made is not None and (made.kind, made.before) == (kind, before):
            return made
    raise LookupError(f"{path}: {before}")


def _make(
    area: str, path: str, function: tuple[str, int], statement: ast.stmt, node: ast.AST, kind: str
) -> MechanicalMutant | None:
    """None if nothing changes, or a closure does: then the function cannot be replaced in place."""
    tree, original = _parsed(path)
    changed = ast.fix_missing_locations(_Change(node, kind).visit(deepcopy(tree)))
    code = _function(compile(changed, original.co_filename, "exec"), function)
    known = _function(original, function)
    if code == known or code.co_freevars != known.co_freevars:
        return None
    before = ast.unparse(node).splitlines()[0][:100]
    return MechanicalMutant(area, path, code.co_qualname, _lines(statement), kind, before, code)


@cache
def _parsed(path: str) -> tuple[ast.Module, CodeType]:
    full = PACKAGE / path
    tree = ast.parse(full.read_text())
    return tree, compile(tree, str(full), "exec")


@cache
def _places(parts: tuple[str, ...]) -> list[tuple[str, tuple[str, int], ast.stmt, ast.AST, str]]:
    """Path, function, statement, node and kind of all mutants in these files and folders."""
    roots = [PACKAGE / part for part in parts]
    files = {path for it in roots for path in ([it] if it.suffix else it.rglob("*.py"))}
    paths = sorted(files)
    return [
        (name, function, statement, node, kind)
        for name in (str(path.relative_to(PACKAGE)) for path in paths)
        if name not in DIAGNOSTICS
        for function, definition in _functions(_parsed(name)[0])
        for statement, node, kind in _ways(definition, definition)
    ]


def _functions(tree: ast.AST) -> Iterator[tuple[tuple[str, int], ast.FunctionDef]]:
    """Functions of a module and of its classes, by name and line, with what is inside them."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node)
        elif (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in OBSERVERS
        ):
            yield (
                (node.name, min([node, *node.decorator_list], key=lambda it: it.lineno).lineno),
                node,
            )


def _function(module: CodeType, function: tuple[str, int]) -> CodeType:
    """The code of a function of a module or of a class in it."""
    for code in _codes(module):
        if (code.co_name, code.co_firstlineno) == function:
            return code
    raise LookupError(f"{module.co_filename}: {function}")


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions inside it."""
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _codes(const)


def _ways(node: ast.AST, within: ast.stmt) -> Iterator[tuple[ast.stmt, ast.AST, str]]:
    """Changes of what a function does: not of its logs, metrics, annotations and assertions."""
    if isinstance(node, ast.Assert | ast.Raise) or _is_observing(node):
        return
    within = node if isinstance(node, ast.stmt) else within
    if isinstance(node, DROPPED) and not _is_docstring(node) and not _sets_local(node):
        yield within, node, "drop"
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield within, node, "negate"
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield within, node, "off by one"
    if isinstance(node, ast.Compare) and type(node.ops[0]) in BOUNDARIES:
        yield within, node, "boundary"
    if isinstance(node, ast.BoolOp):
        yield within, node, "and/or"
    if isinstance(node, ast.Call) and _may_be_swapped(node):
        yield within, node, "swap arguments"
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        children = list(node.body)  # defaults and decorators run at import
    elif isinstance(node, ast.AnnAssign):
        children = [] if node.value is None else [node.value]
    for child in children:
        yield from _ways(child, within)


def _may_be_swapped(node: ast.Call) -> bool:
    is_type_check = isinstance(node.func, ast.Name) and node.func.id in TYPE_CHECKS
    return len(node.args) == 2 and not node.keywords and not is_type_check


def _sets_local(node: ast.AST) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else []
    names = [it for target in targets for it in getattr(target, "elts", [target])]
    return bool(names) and all(isinstance(it, ast.Name) for it in names)


def _lines(statement: ast.stmt) -> tuple[int, int]:
    body = getattr(statement, "body", None)
    last = body[0].lineno - 1 if body else statement.end_lineno or 0
    return statement.lineno, max(statement.lineno, last)


def _is_observing(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return "log.enabled" in ast.unparse(node.test)
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith(OBSERVING)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


class _Change(ast.NodeTransformer):
    """Changes the node at one place of a copy of the tree."""

    def __init__(self, node: ast.AST, kind: str) -> None:
        self._place, self._kind = _place(node), kind

    def visit(self, node: ast.AST) -> ast.AST:
        if _place(node) != self._place:
            return self.generic_visit(node)
        if self._kind == "drop":
            return ast.copy_location(ast.Pass(), node)
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            node.test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
        elif isinstance(node, ast.Constant):
            node.value += 1
        elif isinstance(node, ast.Compare):
            node.ops[0] = BOUNDARIES[type(node.ops[0])]()
        elif isinstance(node, ast.BoolOp):
            node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        elif isinstance(node, ast.Call):
            node.args.reverse()
        return node


def _place(node: ast.AST) -> tuple[object, ...]:
    where = ("lineno", "col_offset", "end_lineno", "end_col_offset")
    return (type(node), *(getattr(node, name, None) for name in where))


# -- trials ----------------------------------------------------------------------------------------


def replace_code(chosen: MechanicalMutant) -> None:
    """Change the function in this process, for good."""
    gc.unfreeze()  # else they are not found
    path, code = str(PACKAGE / chosen.path), chosen.code
    importlib.import_module(_module(chosen.path))
    known = (path, code.co_qualname, code.co_firstlineno)
    found = [
        it
        for it in gc.get_objects()
        if isinstance(it, FunctionType)
        and (it.__code__.co_filename, it.__code__.co_qualname, it.__code__.co_firstlineno) == known
    ]
    if not found:
        raise LookupError(f"{known} is not loaded")
    for function in found:
        function.__code__ = code


def _module(path: str) -> str:
    return f"kubesched.{'.'.join(Path(path).with_suffix('').parts)}".removesuffix(".__init__")


def in_child(work: Callable[[], object], cpu_s: int) -> tuple[int, Any]:
    """Exit code (of a signal: negative) and result of a function that runs in a fork."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        with os.fdopen(read) as pipe:
            told = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code, json.loads(told) if told else None
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(nothing, standard)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        os.write(write, json.dumps(work()).encode())
        os._exit(0)
    finally:
        os._exit(1)


def first_failing(seeds: Iterable[int]) -> list[Any] | None:
    """The first seed that fails, and the broken promise."""
    for seed in seeds:
        signal.setitimer(signal.ITIMER_PROF, SEED_CPU_S)
        try:
            with scalar_look():
                violation = simulate(seed, SimulatedProcess).violation
        except Exception as error:
            return [seed, f"raised {type(error).__name__}"]
        if violation is not None:
            return [seed, TWINS if TWINS in violation.detail else violation.property]
    return None


class _Limits:
    """Ends the process if a test hangs."""

    def pytest_runtest_logstart(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, TEST_CPU_S)


Executed = tuple[float, dict[str, list[int]]]
"""CPU seconds, and lines by path."""


class Lines(defaultdict[str, set[int]]):
    """Executed lines by path below the package, of the functions that have a mutant."""

    def __init__(self, mutants: Iterable[MechanicalMutant]) -> None:
        super().__init__(set)
        self.cpu_s = 0.0
        self._traced = {
            (str(PACKAGE / it.path), code.co_name, code.co_firstlineno): self[it.path]
            for it in mutants
            for code in _codes(it.code)
        }

    def __enter__(self) -> None:
        self.cpu_s -= time.process_time()
        sys.settrace(self._enter)

    def __exit__(self, *_error: object) -> None:
        sys.settrace(None)
        self.cpu_s += time.process_time()

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> Any:
        code = frame.f_code
        lines = self._traced.get((code.co_filename, code.co_name, code.co_firstlineno))
        if lines is None:
            return None

        def line(frame: FrameType, _event: str, _argument: object) -> Any:
            lines.add(frame.f_lineno)
            return line

        return line

    def to_plain(self) -> Executed:
        return self.cpu_s, {path: sorted(lines) for path, lines in self.items() if lines}


class _Tracer:
    """The lines that each test module executes, and the modules that fail."""

    def __init__(self, mutants: Sequence[MechanicalMutant]) -> None:
        self._mutants = mutants
        self.reached: dict[str, Lines] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        test = item.nodeid.partition("::")[0]
        if test not in self.reached:
            self.reached[test] = Lines(self._mutants)
        with self.reached[test]:
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid.partition("::")[0])


def run_tests(tests: Iterable[str], options: str = "-qx", plugin: object = None) -> int:
    chosen = (options, "-n0", "-p", "no:cacheprovider", "-m", "not slow", "--tb=no")
    chosen += ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # the package is imported
    return int(pytest.main([*chosen, *tests], plugins=[plugin or _Limits()]))


def _fails(tests: list[str]) -> bool:
    """Whether a test fails. Most mutants need the first modules only; collecting takes time."""
    return any(run_tests(part) for part in (tests[:3], tests[3:]) if part)


@cache
def unit_tests() -> list[str]:
    """The test modules of the packages that mutants are drawn from."""
    packages = {Path(part).parts[0] for _weight, parts in AREAS.values() for part in parts}
    found = (path for it in sorted(packages) for path in (UNIT_TESTS / it).rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in sorted(found)]


class Reach:
    """The lines of mutated functions that unmutated runs execute, by seed and by test module."""

    def __init__(self, mutants: Sequence[MechanicalMutant], file: Path | None) -> None:
        self._mutants, self._file = mutants, file
        self.known: dict[int | str, Executed | None] = {}
        """By seed or test module; None if it fails."""
        if file is not None and file.exists():
            self.known = dict(map(json.loads, file.read_text().splitlines()))

    def seeds_of(self, chosen: MechanicalMutant, last_seed: int) -> list[int]:
        """Seeds that execute the changed line, those that take the least time first."""
        for seed in range(1, last_seed + 1):
            if seed not in self.known:
                code, reached = in_child(partial(self._of_seed, seed), 600)
                if code or reached is None:
                    raise RuntimeError(f"seed {seed} fails without a mutant: exit code {code}")
                self._keep(seed, reached)
        return self._reaching(chosen, range(1, last_seed + 1))

    def tests_of(self, chosen: MechanicalMutant) -> list[str]:
        """Test modules that execute the changed line, those that take the least time first."""
        new = [test for test in unit_tests() if test not in self.known]
        for batch in (new[at : at + BATCH] for at in range(0, len(new), BATCH)):
            _code, reached = in_child(partial(self._of_tests, batch), 60 * BATCH)
            for test in batch:
                self._keep(test, (reached or {}).get(test))
        return self._reaching(chosen, unit_tests())

    def _reaching(self, chosen: MechanicalMutant, among: Iterable[T]) -> list[T]:
        first, last = chosen.lines
        ranked = []
        for key in among:
            cpu_s, lines = self.known[key] or (0.0, {})
            if any(first <= line <= last for line in lines.get(chosen.path, ())):
                ranked.append((cpu_s, key))
        return [key for _cpu_s, key in sorted(ranked)]

    def _of_seed(self, seed: int) -> Executed | None:
        lines = Lines(self._mutants)
        with lines:
            outcome = simulate(seed, SimulatedProcess)
        return None if outcome.violation is not None else lines.to_plain()

    def _of_tests(self, tests: list[str]) -> dict[str, Executed]:
        tracer = _Tracer(self._mutants)
        run_tests(tests, "-q", tracer)
        return {
            test: lines.to_plain()
            for test, lines in tracer.reached.items()
            if test not in tracer.failed
        }

    def _keep(self, key: int | str, reached: Executed | None) -> None:
        self.known[key] = reached
        if self._file is not None:
            with self._file.open("a") as file:
                file.write(json.dumps([key, reached]) + "\n")


def judge(chosen: MechanicalMutant, reach: Reach, seeds: int, runs: int) -> dict[str, Any]:
    """What the simulation and the unit tests say about a mutant.

    Of seeds 1 to `seeds`, the `runs` cheapest that execute the changed line are run.
    """

    def with_mutant(work: Callable[[Any], object], argument: object) -> object:
        replace_code(chosen)
        return work(argument)

    told: dict[str, Any] = {"simulation": "not reached", "unit": "not reached"}
    of_seeds = reach.seeds_of(chosen, seeds)[:runs]
    if of_seeds:
        code, failed = in_child(lambda: with_mutant(first_failing, of_seeds), SEED_CPU_S * runs)
        told["simulation"] = "killed" if code or failed else "survived"
        if failed:
            told["seed"], told["promise"] = failed
        elif code:
            told["promise"] = "does not end"
    tests = reach.tests_of(chosen)
    if tests:
        code, failed = in_child(lambda: with_mutant(_fails, tests), UNIT_CPU_S)
        told["unit"] = "killed" if failed or code not in {0, -signal.SIGXCPU} else "survived"
        if code == -signal.SIGXCPU:
            told["unit"] = "out of time"
    return told


# -- results ---------------------------------------------------------------------------------------


def table(results: Iterable[dict[str, Any]]) -> str:
    """Counts by area, kind and package."""
    rows: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for it in results:
        package = "/".join(Path(it["path"]).parts[:2])
        by = {name for name in ("simulation", "unit") if it[name] == "killed"}
        for row in (("all", ""), ("area", it["area"]), ("kind", it["kind"]), ("in", package)):
            rows[row].update(["mutants", *by, "either" if by else "neither"])
            rows[row]["not reached by seeds"] += it["simulation"] == "not reached"
    columns = ("mutants", "simulation", "unit", "either", "neither", "not reached by seeds")
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for row, counts in sorted(rows.items()):
        cells = " | ".join(str(counts[column]) for column in columns)
        lines.append(f"| {' '.join(row).strip()} | {cells} |")
    return "\n".join(lines) + "\n"


def _known(results: Path | None) -> dict[int, dict[str, Any]]:
    if results is None or not results.exists():
        return {}
    return {line["number"]: line for line in map(json.loads, results.read_text().splitlines())}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Mechanical mutants, and what kills them.")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=40, help="seeds 1 to this one")
    parser.add_argument("--runs", type=int, default=25, help="seeds that are run, at most")
    parser.add_argument("--results", type=Path, help="a file with a line of JSON per mutant")
    parser.add_argument("--table", action="store_true", help="only count what is in the file")
    args = parser.parse_args(arguments)
    known = _known(args.results)
    if not args.table:
        os.environ["KUBESCHED_FUZZ_EXAMPLES"] = "20"
        os.chdir(ROOT)
        run_tests([str(Path(__file__).parents[1] / "conftest.py")], "--collect-only")  # imports
        drawn = {number: draw(number) for number in range(args.first, args.first + args.count)}
        reach = Reach([*drawn.values()], args.results and args.results.with_suffix(".reach"))
        for number, chosen in drawn.items():
            if number in known:
                continue
            told = judge(chosen, reach, args.seeds, args.runs)
            known[number] = {"number": number, **chosen.to_plain(), **told}
            line = json.dumps(known[number]) + "\n"
            sys.stdout.write(line)
            sys.stdout.flush()
            if args.results is not None:
                with args.results.open("a") as file:
                    file.write(line)
    sys.stdout.write(table(known.values()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
