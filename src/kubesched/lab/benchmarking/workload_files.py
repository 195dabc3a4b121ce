"""Workload files in scheduler_perf's format.

A file is a list of test cases. A case has a `workloadTemplate`, a list of operations with
`$parameters`, and `workloads` with parameter values. `load` returns one `Workload` per pair, with
complete operations. Paths are relative to the file. All problems are reported at once, with field,
line and column. Unlike in scheduler_perf, an unused parameter is not an error: other programs may
use it.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeGuard, TypeVar

from msgspec import structs

from kubesched.api.meta import Record
from kubesched.api.yaml_nodes import Mapping, Node, Scalar, Sequence, from_plain, is_json, parse
from kubesched.base.errors import ConfigError, FieldProblem
from kubesched.config.features import NOT_IMPLEMENTED
from kubesched.config.schema import RawArgs, decode_args
from kubesched.lab.benchmarking import operations as ops
from kubesched.lab.benchmarking.templates import Value, load_template

DECLARED_FEATURES = "numNodeDeclaredFeatures"
"""A parameter that scheduler_perf's own code reads: features declared by each created node."""

R = TypeVar("R", bound=Record)
AnyOp = TypeVar("AnyOp", bound=ops.Op)

MODES = ("create", "recreate")
STAGES = ("Scheduled", "Attempted")


@dataclass(frozen=True, slots=True)
class TestCase:
    """The common part of a case's workloads."""

    __test__ = False  # not a pytest class

    name: str
    source: str
    """The file that defines it."""
    labels: tuple[str, ...] = ()
    feature_gates: MappingOf[str, bool] = field(default_factory=dict)
    scheduler_config: str = ""
    """Path of a KubeSchedulerConfiguration; empty for the default one."""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Workload:
    """A case with parameter values, ready to run."""

    case: TestCase
    name: str
    params: MappingOf[str, Value]
    labels: tuple[str, ...]
    feature_gates: MappingOf[str, bool]
    threshold: float | None
    """Threshold for upstream's machines, in pods per second."""
    ops: tuple[ops.Op, ...]

    @property
    def full_name(self) -> str:
        return f"{self.case.name}/{self.name}"

    @property
    def not_supported(self) -> str:
        """Why this cannot be run; empty if it can."""
        reasons = [f"{op.code}: {op.reason}" for op in self.ops if isinstance(op, ops.NotSupported)]
        reasons += [
            f"{gate}: {NOT_IMPLEMENTED[gate]} are not implemented"
            for gate, is_on in self.feature_gates.items()
            if is_on and gate in NOT_IMPLEMENTED
        ]
        return "; ".join(dict.fromkeys(reasons))

    @property
    def node_count(self) -> int:
        return sum(op.count for op in self.ops if isinstance(op, ops.CreateNodes))

    @property
    def pod_count(self) -> int:
        single = sum(op.count for op in self.ops if isinstance(op, ops.CreatePods))
        in_sets = (
            op.count * op.create_pods_op.count
            for op in self.ops
            if isinstance(op, ops.CreatePodSets)
        )
        return single + sum(in_sets)


def load(path: str | Path, params: MappingOf[str, Value] | None = None) -> tuple[Workload, ...]:
    """Load the workloads of a file; `params` override existing parameters.

    Raises:
        ConfigError: with every problem of the file.
        OSError: the file cannot be read.
    """
    return _Reader(Path(path), params or {}).read()


class _MissingParameter(Exception):
    def __init__(self, message: str, name: str, path: str, node: Node) -> None:
        super().__init__(message)
        self.name, self.path, self.node = name, path, node


class _FileWorkload(Record):
    name: str
    params: dict[str, RawArgs] | None = None
    labels: tuple[str, ...] = ()
    feature_gates: dict[str, bool] | None = None
    threshold: RawArgs | None = None
    threshold_metric_selector: RawArgs | None = None


class _FileCase(Record):
    name: str
    workload_template: tuple[RawArgs, ...]
    workloads: tuple[_FileWorkload, ...]
    description: str = ""
    default_pod_template_path: str = ""
    scheduler_config_path: str = ""
    labels: tuple[str, ...] = ()
    feature_gates: dict[str, bool] | None = None
    metrics_collector_config: RawArgs | None = None


class _Reader:
    """Reads one file and collects its problems."""

    def __init__(self, path: Path, replaced: MappingOf[str, Value]) -> None:
        self._path = path
        self._replaced = replaced
        data = path.read_bytes()
        self._json = is_json(data) or data.lstrip().startswith(b"[")
        self._root = parse(data, str(path))
        self._problems: dict[FieldProblem, None] = {}

    def read(self) -> tuple[Workload, ...]:
        workloads: list[Workload] = []
        if isinstance(self._root, Sequence):
            for index, node in enumerate(self._root.items):
                workloads += self._case(node, f"[{index}]")
        else:
            self._report("", "a workload file is a list of test cases", self._root)
        if self._problems:
            by_position = sorted(
                self._problems, key=lambda problem: (problem.line or 0, problem.column or 0)
            )
            raise ConfigError(by_position, source=str(self._path))
        return tuple(workloads)

    def _report(self, path: str, message: str, node: Node) -> None:
        self._problems[FieldProblem(path, message, node.line or None, node.column or None)] = None

    def _decoded(self, node: Node, record: type[R], path: str) -> R | None:
        try:
            return decode_args(RawArgs(None, node, self._json), record, path)
        except ConfigError as error:
            self._problems |= dict.fromkeys(error.problems)
            return None

    # -- cases and workloads -----------------------------------------------------------------------

    def _case(self, node: Node, path: str) -> list[Workload]:
        read = self._decoded(node, _FileCase, path)
        if read is None:
            return []
        case = TestCase(
            name=read.name,
            source=str(self._path),
            labels=read.labels,
            feature_gates=read.feature_gates or {},
            scheduler_config=self._absolute(read.scheduler_config_path),
            description=read.description,
        )
        self._check_file(read.default_pod_template_path, f"{path}.defaultPodTemplatePath", node)
        if case.scheduler_config and not Path(case.scheduler_config).is_file():
            self._report(
                f"{path}.schedulerConfigPath", f"no file {read.scheduler_config_path}", node
            )
        return [
            made
            for index, entry in enumerate(read.workloads)
            if (made := self._workload(case, read, entry, path, f"{path}.workloads[{index}]"))
        ]

    def _workload(
        self, case: TestCase, read: _FileCase, entry: _FileWorkload, case_path: str, path: str
    ) -> Workload | None:
        params = {name: raw.value for name, raw in (entry.params or {}).items()}
        params |= {name: value for name, value in self._replaced.items() if name in params}
        steps = [
            self._op(index, raw.node, read, params, entry.name, case_path)
            for index, raw in enumerate(read.workload_template)
            if raw.node is not None
        ]
        return Workload(
            case=case,
            name=entry.name,
            params=params,
            labels=tuple(dict.fromkeys((*case.labels, *entry.labels))),
            feature_gates={**case.feature_gates, **(entry.feature_gates or {})},
            threshold=_threshold(entry.threshold),
            ops=tuple(step for step in steps if step is not None),
        )

    # -- operations --------------------------------------------------------------------------------

    def _op(
        self,
        index: int,
        node: Node,
        case: _FileCase,
        params: MappingOf[str, Value],
        workload: str,
        case_path: str,
    ) -> ops.Op | None:
        path = f"{case_path}.workloadTemplate[{index}]"
        if not isinstance(node, Mapping):
            self._report(path, "an operation is a map with an opcode", node)
            return None
        opcode = _text_of(node, "opcode")
        record = ops.OPS.get(opcode)
        if record is None:
            known = ", ".join(ops.OPS)
            problem = f"unknown opcode {opcode!r}" if opcode else "opcode is missing"
            self._report(f"{path}.opcode", f"{problem}; there are {known}", node)
            return None
        try:
            filled = self._filled(node, params, workload, path)
        except _MissingParameter as missing:
            if not any(missing.name in (it.params or {}) for it in case.workloads):
                self._report(missing.path, str(missing), missing.node)
                return None
            # One of upstream's own cases has such workloads: only they cannot be run.
            return ops.NotSupported(code=opcode, reason=str(missing))
        read = self._decoded(filled, record, path) if filled is not None else None
        return self._completed(read, index, case, params, path, node) if read is not None else None

    def _filled(
        self, node: Mapping, params: MappingOf[str, Value], workload: str, path: str
    ) -> Mapping | None:
        """Substitute parameters (`countParam: $nodes` -> `count: 5`); None if one is missing."""
        entries: list[tuple[Scalar, Node]] = []
        complete = True
        for key, value in node.entries:
            name = key.text
            if name == "opcode":
                continue
            if isinstance(value, Mapping):
                nested = self._filled(value, params, workload, f"{path}.{name}")
                complete &= nested is not None
                entries.append((key, nested or value))
                continue
            is_parameter = name.endswith("Param") and isinstance(value, Scalar)
            if not is_parameter and not (path.endswith(".templateParams") and _is_reference(value)):
                entries.append((key, value))
                continue
            assert isinstance(value, Scalar)
            filled = self._value_of(value, params, workload, f"{path}.{name}")
            complete &= filled is not None
            if filled is not None:
                entries.append((_renamed(key, name.removesuffix("Param")), filled))
        return Mapping(node.line, node.column, entries=entries) if complete else None

    def _value_of(
        self, node: Scalar, params: MappingOf[str, Value], workload: str, path: str
    ) -> Node | None:
        """A parameter's value (`$nodes`), or its default in YAML (`$devices|10`)."""
        if not _is_reference(node):
            self._report(path, f"{node.text!r} is no parameter: it begins with $", node)
            return None
        name, has_default, default = node.text[1:].partition("|")
        if name not in params and not has_default:
            known = ", ".join(f"${name}" for name in params) or "none"
            message = f"workload {workload!r} gives ${name} no value; it has {known}"
            raise _MissingParameter(message, name, path, node)
        value = from_plain(params[name]) if name in params else parse(default.encode(), path)
        if isinstance(value, Scalar):
            value.plain = not isinstance(value.value, str)
        return replace(value, line=node.line, column=node.column)

    def _completed(
        self,
        op: ops.Op,
        index: int,
        case: _FileCase,
        params: MappingOf[str, Value],
        path: str,
        node: Node,
    ) -> ops.Op:
        """Make paths absolute and check them, and apply scheduler_perf's defaults."""
        changes: dict[str, object] = {}
        own_namespace = f"namespace-{index}"
        if isinstance(op, ops.CreatePods):
            op = self._pods(op, case, path, node)
            changes["namespace"] = op.namespace or own_namespace
        elif isinstance(op, ops.CreatePodSets):
            changes["create_pods_op"] = self._pods(
                op.create_pods_op, case, f"{path}.createPodsOp", node
            )
        elif isinstance(op, ops.Churn):
            changes["namespace"] = op.namespace or own_namespace
            changes["template_paths"] = tuple(
                self._absolute(template) for template in op.template_paths
            )
            for number, template in enumerate(op.template_paths):
                self._check_file(template, f"{path}.templatePaths[{number}]", node)
        elif isinstance(op, ops.CreateNodes) and isinstance(params.get(DECLARED_FEATURES), int):
            changes["declared_features"] = params[DECLARED_FEATURES]
        op = structs.replace(self._with_absolute_paths(op, path, node), **changes)
        for problem in _wrong(op):
            self._report(path, problem, node)
        return op

    def _pods(self, op: ops.CreatePods, case: _FileCase, path: str, node: Node) -> ops.CreatePods:
        chosen = op.pod_template_path or case.default_pod_template_path
        op = structs.replace(
            op, pod_template_path=chosen, count=op.count * op.count_multiplier, count_multiplier=1
        )
        for problem in _wrong_pods(op):
            self._report(path, problem, node)
        return self._with_absolute_paths(op, path, node)

    def _with_absolute_paths(self, op: AnyOp, path: str, node: Node) -> AnyOp:
        changes: dict[str, object] = {}
        for name, encoded in zip(op.__struct_fields__, op.__struct_encode_fields__, strict=True):
            value = getattr(op, name)
            if name.endswith("template_path") and value:
                self._check_file(value, f"{path}.{encoded}", node)
                changes[name] = self._absolute(value)
        return structs.replace(op, **changes) if changes else op

    def _absolute(self, path: str) -> str:
        return str((self._path.parent / path).resolve()) if path else ""

    def _check_file(self, path: str, field_path: str, node: Node) -> None:
        if not path:
            return
        try:
            load_template(self._absolute(path))
        except OSError as error:
            self._report(field_path, f"{path}: {(error.strerror or str(error)).lower()}", node)
        except ConfigError as error:
            self._report(field_path, str(error), node)


def _wrong(op: ops.Op) -> list[str]:
    """Problems of an operation that its types do not express."""
    problems: list[str] = []
    counts = {
        name: getattr(op, name)
        for name in ("count", "number", "delete_pods_per_second", "update_per_second")
        if hasattr(op, name)
    }
    problems += [f"{name} is negative: {n}" for name, n in counts.items() if n < 0]
    if isinstance(op, ops.Churn):
        if op.mode not in MODES:
            problems.append(f"mode {op.mode!r} is not one of {', '.join(MODES)}")
        if op.mode == "recreate" and op.number == 0:
            problems.append("mode recreate needs a number above 0")
        if not op.template_paths:
            problems.append("templatePaths is empty")
        if op.interval_milliseconds <= 0:
            problems.append("intervalMilliseconds is not above 0")
    if isinstance(op, ops.Barrier) and op.stage_requirement not in STAGES:
        problems.append(
            f"stageRequirement {op.stage_requirement!r} is not one of {', '.join(STAGES)}"
        )
    if isinstance(op, ops.StartCollectingMetrics) and not op.namespaces:
        problems.append("namespaces is empty")
    if isinstance(op, ops.CreateNodes):
        strategy = op.label_node_prepare_strategy
        if strategy is not None and not (strategy.label_key and strategy.label_values):
            problems.append("labelNodePrepareStrategy needs labelKey and labelValues")
        unique = op.unique_node_label_strategy
        if unique is not None and not unique.label_key:
            problems.append("uniqueNodeLabelStrategy needs a labelKey")
    return problems


def _wrong_pods(op: ops.CreatePods) -> list[str]:
    problems: list[str] = []
    if op.count < 0:
        problems.append(f"count is negative: {op.count}")
    if op.collect_metrics and op.skip_wait_to_completion:
        problems.append("collectMetrics and skipWaitToCompletion exclude each other")
    if op.steady_state and op.skip_wait_to_completion:
        problems.append("steadyState and skipWaitToCompletion exclude each other")
    if op.steady_state and op.duration <= 0:
        problems.append("steadyState needs a duration above 0")
    if op.persistent_volume_template_path and not op.persistent_volume_claim_template_path:
        problems.append("persistentVolumeTemplatePath needs persistentVolumeClaimTemplatePath")
    return problems


def _is_reference(node: Node) -> TypeGuard[Scalar]:
    return isinstance(node, Scalar) and isinstance(node.value, str) and node.text.startswith("$")


def _renamed(key: Scalar, name: str) -> Scalar:
    return Scalar(key.line, key.column, value=name, text=name, plain=False)


def _text_of(node: Mapping, name: str) -> str:
    child = next((value for key, value in node.entries if key.text == name), None)
    return child.text if isinstance(child, Scalar) else ""


def _threshold(raw: RawArgs | None) -> float | None:
    """A number, or the lowest of several per test group: all machines must reach it."""
    value = raw.value if raw is not None else None
    candidates = list(value.values()) if isinstance(value, dict) else [value]
    numbers = [
        float(candidate)
        for candidate in candidates
        if isinstance(candidate, int | float) and not isinstance(candidate, bool)
    ]
    return min(numbers) if numbers else None
