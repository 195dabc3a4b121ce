"""Stages: the life cycle of a pod as data.

A stage defines which pods it applies to (selector), how long they wait (delay) and what happens
then (next). A pod waits for the first matching stage, so order is precedence. A stage with a
probability below one is skipped accordingly often, in favour of later stages. The conditions
Initialized, ContainersReady and Ready are derived from the containers (`transitions`).

Stages come from a file of kind `KubeletStages`; `default_stages.yaml` has the built-in ones.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

from msgspec import field

from kubesched.api import times
from kubesched.api.meta import Record
from kubesched.base.errors import FieldProblem
from kubesched.config import field_problems
from kubesched.config.schema import Seconds, decode_file
from kubesched.playground.apimachinery.objects import JsonObject, annotations_of, labels_of
from kubesched.playground.apimachinery.paths import Path, PathError
from kubesched.playground.kubelet.node_templates import header_problems

KIND = "KubeletStages"

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
PHASES = ("Pending", "Running", "Succeeded", "Failed")
STATES = ("waiting", "running", "terminated")
EVENT_TYPES = ("Normal", "Warning")
EVENT_SCOPES = ("pod", "containers", "initContainers", "sidecars")


class Expression(Record):
    """A condition on the value at a path."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class StageSelector(Record):
    """Which pods a stage applies to; all given conditions must hold."""

    match_labels: dict[str, str] = field(default_factory=dict)
    match_annotations: dict[str, str] = field(default_factory=dict)
    match_expressions: tuple[Expression, ...] = ()


class Delay(Record):
    """Wait before a stage: duration plus a uniformly random part of jitter."""

    duration: Seconds = 0.0
    jitter: Seconds = 0.0
    duration_from: str = ""
    """Path to a duration such as `30s` that, if present, replaces duration and jitter."""


class ContainerChange(Record):
    """State change of containers."""

    state: str = ""
    reason: str = ""
    message: str = ""
    exit_code: int = 0
    exit_code_from: str = ""
    """Path to a value that, if present, replaces the exit code."""
    ready: bool | None = None
    """Readiness of the containers; by default running ones are ready."""


class StageEvent(Record):
    """An event to emit. The message may contain {container}, {image}, {node} and {pod}."""

    type: str = "Normal"
    reason: str = ""
    message: str = ""
    scope: str = "pod"
    """Emit once for the pod, or for each of its containers, initContainers or sidecars."""


class Transition(Record):
    """Changes to a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    has_ip: bool = field(default=False, name="podIP")
    """Whether the pod gets its address now."""
    init_containers: ContainerChange | None = None
    sidecars: ContainerChange | None = None
    containers: ContainerChange | None = None
    events: tuple[StageEvent, ...] = ()
    delete: bool = False
    """Whether the pod is deleted."""


class StageRecord(Record):
    """One stage, in file format."""

    name: str = ""
    selector: StageSelector = StageSelector()
    delay: Delay = Delay()
    probability: float = 1.0
    next: Transition = Transition()


class StageFile(Record):
    """The file format."""

    api_version: str = ""
    kind: str = ""
    stages: tuple[StageRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Stage:
    """A compiled stage."""

    record: StageRecord
    _expressions: tuple[tuple[Path, str, frozenset[str]], ...]
    _duration_from: Path | None

    @classmethod
    def of(cls, record: StageRecord) -> Stage:
        return cls(
            record,
            tuple(
                (
                    Path(match_expression.key),
                    match_expression.operator,
                    frozenset(match_expression.values),
                )
                for match_expression in record.selector.match_expressions
            ),
            Path(record.delay.duration_from) if record.delay.duration_from else None,
        )

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def next(self) -> Transition:
        return self.record.next

    def matches(self, pod: JsonObject) -> bool:
        for path, operator, values in self._expressions:
            if not _holds(path.values(pod), operator, values):
                return False
        selector = self.record.selector
        return (
            selector.match_labels.items() <= labels_of(pod).items()
            and selector.match_annotations.items() <= annotations_of(pod).items()
        )

    def delay_s(self, pod: JsonObject, rng: random.Random) -> float:
        if self._duration_from is not None:
            for value in self._duration_from.values(pod):
                own = _seconds(value)
                if own is not None:
                    return own
        delay = self.record.delay
        return delay.duration + (rng.random() * delay.jitter if delay.jitter else 0.0)


def first_match(
    stages: Sequence[Stage], pod: JsonObject, passed_over: Collection[str]
) -> Stage | None:
    """The first stage that matches the pod and is not in `passed_over`."""
    for stage in stages:
        if stage.name not in passed_over and stage.matches(pod):
            return stage
    return None


def choose(
    stages: Sequence[Stage], pod: JsonObject, rng: random.Random, passed_over: set[str]
) -> Stage | None:
    """The stage the pod waits for next; adds those skipped by chance to `passed_over`."""
    while (stage := first_match(stages, pod, passed_over)) is not None:
        if stage.record.probability >= 1.0 or rng.random() < stage.record.probability:
            return stage
        passed_over.add(stage.name)
    return None


def load_stages(data: bytes, source: str = "") -> tuple[Stage, ...]:
    """Parse the stages in a file.

    Raises:
        ConfigError: with every problem, each with field path, line and column.
    """
    return tuple(
        Stage.of(record) for record in decode_file(data, source, StageFile, _problems).stages
    )


@functools.cache
def default_stages() -> tuple[Stage, ...]:
    """The built-in stages."""
    name = "default_stages.yaml"
    return load_stages(resources.files(__package__).joinpath(name).read_bytes(), name)


# -- validation -----------------------------------------------------------------------------------


def _problems(file: StageFile) -> Iterator[FieldProblem]:
    yield from header_problems(file.api_version, file.kind, KIND)
    if not file.stages:
        yield field_problems.required("stages", "at least one stage is needed")
    names: set[str] = set()
    for index, stage in enumerate(file.stages):
        path = f"stages[{index}]"
        if not stage.name:
            yield field_problems.required(f"{path}.name")
        elif stage.name in names:
            yield field_problems.duplicate(f"{path}.name", stage.name)
        names.add(stage.name)
        yield from _stage_problems(stage, path)


def _stage_problems(stage: StageRecord, path: str) -> Iterator[FieldProblem]:
    if not 0.0 < stage.probability <= 1.0:
        yield field_problems.invalid(
            f"{path}.probability", stage.probability, "must be above 0 and at most 1"
        )
    for name, value in (("duration", stage.delay.duration), ("jitter", stage.delay.jitter)):
        if value < 0:
            yield field_problems.invalid(
                f"{path}.delay.{name}", times.format_duration(value), "must not be negative"
            )
    yield from _path_problems(stage.delay.duration_from, f"{path}.delay.durationFrom")
    for index, match_expression in enumerate(stage.selector.match_expressions):
        yield from _expression_problems(
            match_expression, f"{path}.selector.matchExpressions[{index}]"
        )
    yield from _transition_problems(stage.next, f"{path}.next")


def _expression_problems(expression: Expression, path: str) -> Iterator[FieldProblem]:
    if not expression.key:
        yield field_problems.required(f"{path}.key")
    yield from _path_problems(expression.key, f"{path}.key")
    if expression.operator not in OPERATORS:
        yield field_problems.not_supported(f"{path}.operator", expression.operator, OPERATORS)
    elif expression.operator in ("In", "NotIn") and not expression.values:
        yield field_problems.required(
            f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"
        )
    elif expression.operator in ("Exists", "DoesNotExist") and expression.values:
        yield field_problems.forbidden(
            f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        )


def _transition_problems(transition: Transition, path: str) -> Iterator[FieldProblem]:
    if transition.phase and transition.phase not in PHASES:
        yield field_problems.not_supported(f"{path}.phase", transition.phase, PHASES)
    for name, change in (
        ("initContainers", transition.init_containers),
        ("sidecars", transition.sidecars),
        ("containers", transition.containers),
    ):
        if change is not None:
            if change.state not in STATES:
                yield field_problems.not_supported(f"{path}.{name}.state", change.state, STATES)
            yield from _path_problems(change.exit_code_from, f"{path}.{name}.exitCodeFrom")
    for index, event in enumerate(transition.events):
        where = f"{path}.events[{index}]"
        if not event.reason:
            yield field_problems.required(f"{where}.reason")
        if event.type not in EVENT_TYPES:
            yield field_problems.not_supported(f"{where}.type", event.type, EVENT_TYPES)
        if event.scope not in EVENT_SCOPES:
            yield field_problems.not_supported(f"{where}.scope", event.scope, EVENT_SCOPES)


def _path_problems(text: str, path: str) -> Iterator[FieldProblem]:
    if not text:
        return
    try:
        Path(text)
    except PathError as error:
        yield field_problems.invalid(path, text, str(error))


# -- evaluation -----------------------------------------------------------------------------------


def _holds(matches: list[object], operator: str, values: frozenset[str]) -> bool:
    if operator == "Exists":
        return bool(matches)
    if operator == "DoesNotExist":
        return not matches
    is_among = False
    for match in matches:
        is_among = is_among or _text(match) in values
    return is_among is (operator == "In")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _seconds(value: object) -> float | None:
    """Parse a duration from a pod; None if invalid, so that the stage's own applies."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return max(0.0, float(value))
    try:
        return max(0.0, times.parse_duration(str(value)))
    except ValueError:
        return None
