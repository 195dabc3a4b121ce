"""Framework: the plugins of one profile, by extension point, and the handle they share."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from kubesched.base.logs import get_logger
from kubesched.base.metrics.instruments import Counter, Histogram
from kubesched.base.metrics.scheduler import SchedulerMetrics
from kubesched.framework.engine import declares
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import (
    EXTENSION_POINTS,
    BindPlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from kubesched.framework.runtime.timing import EvaluationCounts, PluginTimer
from kubesched.framework.status import Code, Status

log = get_logger(__name__)

_OF_BINDING = frozenset({"PreBindPreFlight", "PreBind", "Bind", "PostBind"})
"""Extension points of the binding cycle, which overlaps with other pods' attempts."""


class Framework:
    """One profile's plugins in execution order. Sibling modules implement the phases."""

    def __init__(
        self,
        handle: Handle,
        points: Mapping[str, Sequence[Plugin]],
        score_weights: Mapping[str, int],
        *,
        percentage_of_nodes_to_score: int | None = None,
        placement_score_weights: Mapping[str, int] | None = None,
    ) -> None:
        self.handle = handle
        self.now = handle.clock.monotonic
        self.profile_name = handle.profile_name
        self.percentage_of_nodes_to_score = percentage_of_nodes_to_score
        self.score_weights = dict(score_weights)
        self.placement_score_weights = dict(placement_score_weights or {})

        for point, plugins in points.items():
            kind = EXTENSION_POINTS[point]
            assert all(kind in type(p).__mro__ for p in plugins), f"wrong plugin at {point}"

        def at(point: str) -> list[Any]:
            return list(points.get(point, ()))

        self.pre_enqueue: list[PreEnqueuePlugin] = at("preEnqueue")
        self.queue_sort: list[QueueSortPlugin] = at("queueSort")
        self.pre_filter: list[PreFilterPlugin] = at("preFilter")
        self.filter: list[FilterPlugin] = at("filter")
        self.post_filter: list[PostFilterPlugin] = at("postFilter")
        self.pre_score: list[PreScorePlugin] = at("preScore")
        self.score: list[ScorePlugin] = at("score")
        self.reserve: list[ReservePlugin] = at("reserve")
        self.permit: list[PermitPlugin] = at("permit")
        self.pre_bind: list[PreBindPlugin] = at("preBind")
        self.bind: list[BindPlugin] = at("bind")
        self.post_bind: list[PostBindPlugin] = at("postBind")
        self.points = {point: list(plugins) for point, plugins in points.items()}
        self.caches: dict[type[Any], Any] = {}
        """Derived state of the phases, by type."""
        handle.framework = self
        self._point_durations: dict[str | tuple[str, Code], Histogram] = {}
        """By extension point and status code; successes by extension point."""
        self._steps: dict[str, float] = {}
        self._attempts: dict[str, tuple[Counter, Histogram]] = {}
        self.tries_resizes = handle.feature_gates.InPlacePodVerticalScalingSchedulerPreemption
        """True if bound pods are tried while the kubelet defers their resize."""
        self.timer: PluginTimer | None = None
        """For the sample of attempts whose plugin calls are timed."""
        self.evaluations: EvaluationCounts | None = None
        if handle.metrics is not None:
            self._measure(handle.metrics)
        self.fails_per_class = all(declares(p, "answers_per_class") for p in self.post_filter)
        """True if no PostFilter plugin distinguishes unschedulable pods of a class."""
        self.class_field_plugins = [
            p for p in self.plugins if type(p).class_fields is not Plugin.class_fields
        ]
        others = [p for p in self.deciding_plugins if not declares(p, "answers_by_spec")]
        self.answers_by_spec = all(declares(p, "class_fields") for p in others)
        """True if no cached answer depends on labels or owner, unless it is in `class_fields`."""
        self.ignores_names = not others
        """True if no cached answer depends on names of claims or of the pod's group either."""

    def at(self, point: str) -> list[Any]:
        """The plugins of a point that only some schedulers use, in order."""
        return self.points.get(point, [])

    @property
    def deciding_plugins(self) -> list[Plugin]:
        """The plugins that filter and score, in order of first appearance."""
        points = (self.pre_filter, self.filter, self.pre_score, self.score)
        return list(dict.fromkeys(p for point in points for p in point))

    def _measure(self, metrics: SchedulerMetrics) -> None:
        self.timer = PluginTimer(self.handle.clock, metrics.plugin_execution_duration_seconds)
        counted: dict[str, Sequence[Plugin]] = {
            "PreFilter": self.pre_filter,
            "Filter": self.filter,
            "PreScore": self.pre_score,
            "Score": self.score,
        }
        self.evaluations = EvaluationCounts(metrics, self.profile_name, counted)

    def point_done(self, point: str, started: float, status: Status | None = None) -> float:
        """Record an extension point's duration by status code; returns the next start time."""
        durations = self._point_durations.get(point if status is None else (point, status.code))
        if durations is None:
            if self.handle.metrics is None:
                return started
            durations = self._durations_of(self.handle.metrics, point, status)
        now = self.now()
        seconds = now - started
        # Inlined from `observe`: this runs nine times for every pod.
        bounds = durations.bounds
        durations.counts[0 if seconds <= bounds[0] else bisect_left(bounds, seconds)] += 1
        durations.sum += seconds
        self._steps[point] = seconds
        return now

    def _durations_of(
        self, metrics: SchedulerMetrics, point: str, status: Status | None
    ) -> Histogram:
        code = Code.SUCCESS if status is None else status.code
        durations = metrics.framework_extension_point_duration_seconds.labels(
            point, code.upstream_name, self.profile_name
        )
        self._point_durations[point if status is None else (point, code)] = durations
        return durations

    def attempt_begins(self) -> None:
        """Clear the extension points of the previous attempt."""
        self._steps.clear()

    @property
    def steps(self) -> dict[str, float]:
        """Seconds per extension point of the current attempt; logged if the attempt is slow."""
        return {point: s for point, s in self._steps.items() if point not in _OF_BINDING}

    def algorithm_done(self, started: float) -> None:
        """Record the duration of the scheduling algorithm, preemption included."""
        if self.handle.metrics is not None:
            seconds = self.now() - started
            self.handle.metrics.scheduling_algorithm_duration_seconds.observe(seconds)

    def attempt_done(self, result: str, seconds: float) -> None:
        """Count an attempt by its result: `scheduled`, `unschedulable` or `error`."""
        metrics = self.handle.metrics
        if metrics is None:
            return
        kept = self._attempts.get(result)
        if kept is None:
            kept = self._attempts[result] = (
                metrics.schedule_attempts_total.labels(result, self.profile_name),
                metrics.scheduling_attempt_duration_seconds.labels(result, self.profile_name),
            )
        kept[0].inc()
        kept[1].observe(seconds)

    def attempts_settled(self, result: str, count: int) -> None:
        """Count pods settled by another pod of their class, with a duration of zero."""
        if self.handle.metrics is not None:
            attempts = self.handle.metrics.schedule_attempts_total
            attempts.labels(result, self.profile_name).inc(count)

    @property
    def plugins(self) -> list[Plugin]:
        """Every plugin once, in order of first appearance."""
        return list({id(p): p for plugins in self.points.values() for p in plugins}.values())

    def close(self) -> None:
        """Close every plugin; failures are logged."""
        for plugin in self.plugins:
            try:
                plugin.close()
            except Exception as error:  # raised by a plugin; close the others
                log.error(
                    "Failed to close plugin", error, profile=self.profile_name, plugin=plugin.name
                )

    @property
    def has_scoring(self) -> bool:
        return bool(self.score)
