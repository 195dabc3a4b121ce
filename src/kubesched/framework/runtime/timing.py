"""Plugin metrics: durations in a sample of the attempts, and evaluation counts.

Both run for every pod, so they do little work there. Attempts outside the sample have no timer.
Evaluations are counted per attempt, keyed by the set of skipped plugins, and summed per plugin when
the metrics page is read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from kubesched.base.clock import Clock
from kubesched.base.metrics.instruments import Family, Histogram
from kubesched.base.metrics.scheduler import SchedulerMetrics
from kubesched.framework.cycle_state import CallTimer, CycleState
from kubesched.framework.interfaces import Plugin, Wait
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Code, Status

T = TypeVar("T")

PRE_FILTER, FILTER, PRE_SCORE, SCORE = 1, 2, 4, 8
"""Bits of `CycleState.points_reached`."""

_OVER_ROWS: Final = frozenset({"Filter", "Score"})
_COUNTED: Final = {"PreFilter": PRE_FILTER, "Filter": FILTER, "PreScore": PRE_SCORE, "Score": SCORE}


class PluginTimer:
    """Times the plugin calls of one attempt. Caches the series: an observation is an addition."""

    def __init__(self, clock: Clock, durations: Family[Histogram]) -> None:
        self._now = clock.monotonic
        self._durations = durations
        self._cells: dict[tuple[str, str, Code], Histogram] = {}
        self.rows: dict[tuple[str, str], int] = {}
        """Rows that plugins were asked about, by plugin and extension point."""

    def call(self, plugin: Plugin, point: str, function: Callable[..., T], *arguments: object) -> T:
        """Call and time the function; returns its result or raises its exception."""
        started = self._now()
        code = Code.ERROR
        try:
            answer = function(*arguments)
            code = _code_of(answer)
            return answer
        finally:
            self.observe(plugin.name, point, code, started)
            if point in _OVER_ROWS:
                key = plugin.name, point
                self.rows[key] = self.rows.get(key, 0) + _rows(arguments[-1])

    async def call_async(
        self, plugin: Plugin, point: str, function: Callable[..., object], *arguments: object
    ) -> object:
        """Like `call`, for a function that may return an awaitable."""
        started = self._now()
        code = Code.ERROR
        try:
            answer = function(*arguments)
            if inspect.isawaitable(answer):
                answer = await answer
            code = _code_of(answer)
            return answer
        finally:
            self.observe(plugin.name, point, code, started)

    def observe(self, plugin: str, point: str, code: Code, started: float) -> None:
        """Record a call that started at `started` and ends now."""
        cell = self._cells.get((plugin, point, code))
        if cell is None:
            cell = self._durations.labels(plugin, point, code.upstream_name)
            self._cells[plugin, point, code] = cell
        cell.observe(self._now() - started)


def _rows(asked: object) -> int:
    """The rows of a view, or those that are left if they are asked one by one."""
    if isinstance(asked, NodeColumns):
        return len(asked)
    return int(np.count_nonzero(asked)) if isinstance(asked, np.ndarray) else 0


def _code_of(answer: object) -> Code:
    if isinstance(answer, tuple) and len(answer) == 2:  # PostFilter: a result and a status
        answer = answer[1]
    if isinstance(answer, Status):
        return answer.code
    return Code.WAIT if isinstance(answer, Wait) else Code.SUCCESS


class EvaluationCounts:
    """`plugin_evaluation_total` of one profile.

    Upstream counts a Filter or Score plugin once per node; here it answers for all nodes at once
    and counts once per attempt, also when an identical pod's answer is reused.
    """

    def __init__(
        self, metrics: SchedulerMetrics, profile: str, points: Mapping[str, Sequence[Plugin]]
    ) -> None:
        self._attempts: dict[tuple[int, frozenset[str], frozenset[str]], int] = {}
        for point, bit in _COUNTED.items():
            for plugin in points[point]:
                cell = metrics.plugin_evaluation_total.labels(plugin.name, point, profile)
                cell.read_from(partial(self._total, bit, plugin.name))

    def note(self, state: CycleState) -> None:
        """Count a finished attempt."""
        key = (
            state.points_reached,
            frozenset(state.skip_filter_plugins),
            frozenset(state.skip_score_plugins),
        )
        self._attempts[key] = self._attempts.get(key, 0) + 1

    def _total(self, bit: int, plugin: str) -> float:
        by_filter = bit in (PRE_FILTER, FILTER)
        return sum(
            count
            for (reached, no_filter, no_score), count in list(
                self._attempts.items()
            )  # pages are written by another thread
            if reached & bit and plugin not in (no_filter if by_filter else no_score)
        )


def timed(
    timer: CallTimer | None, plugin: Plugin, point: str, function: Callable[..., Any]
) -> Callable[..., Any]:
    """The function itself, or with a timer around it."""
    return function if timer is None else partial(timer.call, plugin, point, function)
