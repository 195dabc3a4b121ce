"""Stages: the life cycle of a pod as data.

A stage defines which pods it applies to (selector), how long they wait (delay) and what happens
then (next). A pod waits for the first matching stage, so order is precedence. The conditions
Initialized, ContainersReady and Ready are derived from the containers (`transitions`).

`default_stages.yaml` has them all.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from importlib import resources

from msgspec import field

from kubesched.api import times
from kubesched.api.meta import Record
from kubesched.config.schema import Seconds, decode_file
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.apimachinery.paths import Path


class Expression(Record):
    """A condition on the value at a path."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class StageSelector(Record):
    """Which pods a stage applies to; all given conditions must hold."""

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


class Stage(Record):
    """One stage of a pod's life."""

    name: str = ""
    selector: StageSelector = StageSelector()
    delay: Delay = Delay()
    next: Transition = Transition()

    def matches(self, pod: JsonObject) -> bool:
        for expression in self.selector.match_expressions:
            if not _holds(path(expression.key).values(pod), expression.operator, expression.values):
                return False
        return True

    def delay_s(self, pod: JsonObject, rng: random.Random) -> float:
        delay = self.delay
        for value in path(delay.duration_from).values(pod) if delay.duration_from else ():
            own = _seconds(value)
            if own is not None:
                return own
        return delay.duration + (rng.random() * delay.jitter if delay.jitter else 0.0)


class StageFile(Record):
    """The file format."""

    api_version: str = ""
    kind: str = ""
    stages: tuple[Stage, ...] = ()


path = functools.lru_cache(maxsize=1024)(Path)
"""A compiled path."""


def first_match(stages: Sequence[Stage], pod: JsonObject) -> Stage | None:
    """The stage the pod waits for next."""
    return next((stage for stage in stages if stage.matches(pod)), None)


def load_stages(data: bytes) -> tuple[Stage, ...]:
    """Parse the stages in a file of this package."""
    return decode_file(data, "", StageFile, lambda _file: ()).stages


@functools.cache
def default_stages() -> tuple[Stage, ...]:
    """The built-in stages."""
    return load_stages(resources.files(__package__).joinpath("default_stages.yaml").read_bytes())


# -- evaluation -----------------------------------------------------------------------------------


def _holds(matches: list[object], operator: str, values: tuple[str, ...]) -> bool:
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
