"""Mutants by a generator: one mechanical change of the source each, drawn by seed.

    python tests/shared/mechanical_mutants.py --first 1 --count 300 --results FILE
    python tests/shared/mechanical_mutants.py --results FILE --table

The simulation judges every mutant, and the unit tests those that it lets live. A process collects
the tests once and forks for each trial; the child replaces the code of the changed function, runs
seeds or tests, those that take the least time first, and ends at the first that fails. Seeds and
tests that do not execute the changed statement cannot notice it and are not run: `Reach` knows them
from one unmutated run, in which every drawn statement notes that it is executed. Results and reach
are kept in files, and a later run of the same numbers goes on after them.
"""

from __future__ import annotations

import argparse
import ast
import builtins
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
from types import CodeType, FunctionType
from typing import Any, TypeVar

import pytest
from mutants import ROOT
from outside_look import outside_look
from scalar_look import TWINS, scalar_look

from kubesched.app.simulated import SimulatedProcess
from kubesched.lab.simulation.run import simulate

T = TypeVar("T")

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
REACH_CPU_S = 4 * 3600
UNIT_CPU_S, TEST_CPU_S, SEED_CPU_S = 60, 15, 15
"""CPU time of a mutant's unit tests, and of one test or seed before it counts as hanging."""
TEST_WALL_S = 120
MEMORY_BYTES = 6 << 30
PROBE = "mutated_statement_is_executed"


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
    place: tuple[object, ...]
    """Of the changed statement in the tree."""

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
    lines, name = _lines(statement), code.co_qualname
    return MechanicalMutant(area, path, name, lines, kind, before, code, _place(statement))


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
    _replace([(chosen.path, chosen.code)])


def _replace(changed: Iterable[tuple[str, CodeType]]) -> None:
    """Give functions other code, by their names and places in the source."""
    codes = {
        (str(PACKAGE / path), code.co_qualname, code.co_firstlineno): code for path, code in changed
    }
    for path, _code in changed:
        importlib.import_module(_module(path))
    gc.unfreeze()  # else they are not found
    found = set()
    for it in gc.get_objects():
        if isinstance(it, FunctionType):
            old = it.__code__
            known = (old.co_filename, old.co_qualname, old.co_firstlineno)
            if known in codes:
                it.__code__ = codes[known]
                found.add(known)
    if found != codes.keys():
        raise LookupError(f"not loaded: {codes.keys() - found}")


def _module(path: str) -> str:
    return f"kubesched.{'.'.join(Path(path).with_suffix('').parts)}".removesuffix(".__init__")


class _Probes(ast.NodeTransformer):
    """Lets statements note that they are executed."""

    def __init__(self, numbers: Mapping[tuple[object, ...], list[int]]) -> None:
        self._numbers = numbers

    def visit(self, node: ast.AST) -> Any:
        node = self.generic_visit(node)
        numbers = self._numbers.get(_place(node), ()) if isinstance(node, ast.stmt) else ()
        if not numbers:
            return node
        notes = [ast.parse(f"{PROBE}({number})").body[0] for number in numbers]
        for note in notes:
            for part in ast.walk(note):
                ast.copy_location(part, node)
        return [*notes, node]


def _probe(mutants: Mapping[int, MechanicalMutant], executed: set[int]) -> None:
    """Note in this process which mutants' statements are executed, from now on."""
    setattr(builtins, PROBE, executed.add)
    by_path: defaultdict[str, list[int]] = defaultdict(list)
    for number, it in mutants.items():
        by_path[it.path].append(number)
    probed: dict[tuple[str, str, int], CodeType] = {}
    for path, numbers in by_path.items():
        places: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
        for number in numbers:
            places[mutants[number].place].append(number)
        tree, original = _parsed(path)
        changed = ast.fix_missing_locations(_Probes(places).visit(deepcopy(tree)))
        module = compile(changed, original.co_filename, "exec")
        for number in numbers:
            known = mutants[number].code
            function = (known.co_name, known.co_firstlineno)
            probed[path, *function] = _function(module, function)
    _replace([(path, code) for (path, *_function), code in probed.items()])


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
            with scalar_look(), outside_look():
                violation = simulate(seed, SimulatedProcess).violation
        except Exception as error:
            return [seed, f"raised {type(error).__name__}"]
        if violation is not None:
            return [seed, TWINS if TWINS in violation.detail else violation.property]
    return None


# -- seeds and tests -------------------------------------------------------------------------------


class Tests:
    """All collected tests. A plugin of pytest."""

    def __init__(self, work: Callable[[Tests], None]) -> None:
        """`work` is done instead of running them."""
        self._work = work
        self.items: dict[str, pytest.Item] = {}
        self.failed = ""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self._work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = report.nodeid

    def run(self, tests: Sequence[str]) -> Iterator[tuple[str, bool]]:
        """Runs them one by one; whether each has failed."""
        items = [self.items[test] for test in tests]
        for item, following in zip(items, [*items[1:], None], strict=True):
            signal.setitimer(signal.ITIMER_PROF, TEST_CPU_S)
            self.failed = ""
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            yield item.nodeid, bool(self.failed)

    def first_failing(self, tests: Sequence[str]) -> str | None:
        return next((test for test, has_failed in self.run(tests) if has_failed), None)


Executed = tuple[float, list[int]]
"""CPU seconds, and numbers of mutants."""


class Reach:
    """The mutated statements that unmutated runs execute, by seed and by test."""

    def __init__(self, mutants: Mapping[int, MechanicalMutant], file: Path) -> None:
        self._mutants, self._file = mutants, file
        self._file.touch()
        self.known = self._read()
        """By seed or test; None if it fails."""

    def learn_seeds(self, last_seed: int) -> None:
        """Run those of the seeds 1 to this one that are not known yet."""
        self._learn(self._run_seeds, range(1, last_seed + 1))

    def learn_tests(self, tests: Tests) -> None:
        self._learn(partial(self._run_tests, tests), tests.items)

    def _learn(self, work: Callable[[list[Any]], None], wanted: Iterable[int | str]) -> None:
        while missing := [key for key in wanted if key not in self.known]:
            known = len(self.known)
            in_child(partial(work, missing), REACH_CPU_S)
            self.known = self._read()
            if len(self.known) < known + len(missing):  # the next one ended the process
                self._keep(missing[len(self.known) - known], None)
                self.known = self._read()

    def of(self, number: int, kind: type[int] | type[str]) -> list[Any]:
        """Seeds or tests that execute the changed statement, those that take least time first."""
        ranked = [
            (told[0], key)
            for key, told in self.known.items()
            if type(key) is kind and told is not None and number in told[1]
        ]
        return [key for _cpu_s, key in sorted(ranked)]

    def seeds(self, number: int, most: int) -> list[int]:
        """A third that take least time, then those in which most happens.

        The quickest worlds find a broken scheduler soonest, and never evict anything.
        """
        quickest: list[int] = self.of(number, int)
        rest = quickest[most // 3 :]
        rest.sort(key=lambda seed: -len((self.known[seed] or (0.0, []))[1]))
        return (quickest[: most // 3] + rest)[:most]

    def _run_seeds(self, seeds: Sequence[int]) -> None:
        executed: set[int] = set()
        _probe(self._mutants, executed)
        for seed in seeds:
            started = time.process_time()
            has_failed = first_failing([seed]) is not None
            self._keep(seed, None if has_failed else self._since(started, executed))

    def _run_tests(self, tests: Tests, wanted: Sequence[str]) -> None:
        executed: set[int] = set()
        _probe(self._mutants, executed)
        started = time.process_time()
        for test, has_failed in tests.run(wanted):
            self._keep(test, None if has_failed else self._since(started, executed))
            started = time.process_time()

    def _since(self, started: float, executed: set[int]) -> Executed:
        numbers = sorted(executed)
        executed.clear()
        return round(time.process_time() - started, 4), numbers

    def _keep(self, key: int | str, executed: Executed | None) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps([key, executed]) + "\n")

    def _read(self) -> dict[int | str, Executed | None]:
        return dict(map(json.loads, self._file.read_text().splitlines()))


def judged_by_seeds(chosen: MechanicalMutant, seeds: Sequence[int]) -> dict[str, Any]:
    """What the simulation says about a mutant."""
    if not seeds:
        return {"simulation": "not reached"}
    code, failed = in_child(partial(_with, chosen, first_failing, seeds), SEED_CPU_S * len(seeds))
    if failed:
        seed, promise = failed
        return {"simulation": "killed", "seed": seed, "promise": promise}
    if code:
        return {"simulation": "killed", "promise": "does not end"}
    return {"simulation": "survived", "seeds": len(seeds)}


def judged_by_tests(chosen: MechanicalMutant, tests: Tests, names: Sequence[str]) -> dict[str, Any]:
    """What the unit tests say about a mutant."""
    if not names:
        return {"unit": "not reached"}
    code, failed = in_child(partial(_with, chosen, tests.first_failing, names), UNIT_CPU_S)
    if code == -signal.SIGXCPU:
        return {"unit": "out of time", "tests": len(names)}
    if failed or code:
        return {"unit": "killed", "test": failed}
    return {"unit": "survived", "tests": len(names)}


def _with(chosen: MechanicalMutant, work: Callable[[Any], T], argument: object) -> T:
    replace_code(chosen)
    return work(argument)


def with_unit_tests(work: Callable[[Tests], None]) -> None:
    """Collect the unit tests of the packages that mutants are drawn from, and do this with them."""
    packages = {Path(part).parts[0] for _weight, parts in AREAS.values() for part in parts}
    folders = [str(UNIT_TESTS / name) for name in sorted(packages)]
    chosen = ("-q", "-s", "-n0", "-p", "no:cacheprovider", "-m", "not slow", "--tb=no")
    chosen += ("--timeout", str(TEST_WALL_S))  # a test that waits takes no CPU time
    chosen += ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # the package is imported
    pytest.main([*chosen, *folders], plugins=[Tests(work)])


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
    parser.add_argument("--seeds", type=int, default=100, help="seeds 1 to this one")
    parser.add_argument("--runs", type=int, default=25, help="seeds that are run, at most")
    parser.add_argument("--results", type=Path, required=True, help="a line of JSON per judgement")
    parser.add_argument("--table", action="store_true", help="only count what is in the file")
    args = parser.parse_args(arguments)
    results = args.results.absolute()
    known = _known(results)

    def keep(number: int, told: dict[str, Any]) -> None:
        before = known.get(number, {"unit": "not run"})
        known[number] = {"number": number, **drawn[number].to_plain(), **before, **told}
        with results.open("a") as file:
            file.write(json.dumps(known[number]) + "\n")

    if not args.table:
        os.environ["KUBESCHED_FUZZ_EXAMPLES"] = "20"
        os.chdir(ROOT)
        drawn = {number: draw(number) for number in range(args.first, args.first + args.count)}
        reach = Reach(drawn, results.with_suffix(".reach"))
        reach.learn_seeds(args.seeds)
        for number, chosen in drawn.items():
            if number not in known:
                keep(number, judged_by_seeds(chosen, reach.seeds(number, args.runs)))

        def work(tests: Tests) -> None:
            reach.learn_tests(tests)
            for number, chosen in drawn.items():
                if known[number]["simulation"] != "killed" and known[number]["unit"] == "not run":
                    keep(number, judged_by_tests(chosen, tests, reach.of(number, str)))

        with_unit_tests(work)
    sys.stdout.write(table(known.values()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
