"""Watchdog of the scheduling loop: names the plugin that blocks it, and ends a stuck process.

It runs on the control thread and schedules a callback on the main loop. While the callback is
overdue, it inspects the main thread's stack: the innermost plugin call at an extension point blocks
the loop. The main loop pays one callback per half second; the scheduling path has no bookkeeping.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

from kubesched.base.clock import Clock
from kubesched.base.logs import get_logger
from kubesched.base.metrics.registry import MetricsRegistry
from kubesched.framework.interfaces import Plugin
from kubesched.scheduler.plugin_profile import Blocked

log = get_logger(__name__)

PERIOD_S = 0.5
STALL_S = 1.0
"""A loop that does not respond for this long is stalled."""
STUCK_S = 300.0
"""A loop that does not respond for this long is stuck: the process ends, a standby takes over."""
EXIT_STUCK = 1
STACK_LINES = 40

EXTENSION_POINTS = {
    "less": "QueueSort",
    "sort_key": "QueueSort",
    "pre_enqueue": "PreEnqueue",
    "pre_filter": "PreFilter",
    "add_pod": "PreFilterExtensionAddPod",
    "remove_pod": "PreFilterExtensionRemovePod",
    "filter": "Filter",
    "filter_nodes": "Filter",
    "filter_rule": "Filter",
    "post_filter": "PostFilter",
    "pre_score": "PreScore",
    "score": "Score",
    "score_nodes": "Score",
    "score_rule": "Score",
    "normalize_scores": "ScoreExtensionNormalize",
    "reserve": "Reserve",
    "unreserve": "Unreserve",
    "permit": "Permit",
    "pre_bind_pre_flight": "PreBindPreFlight",
    "pre_bind": "PreBind",
    "bind": "Bind",
    "post_bind": "PostBind",
    "sign_pod": "Sign",
    "placement_feasible": "PlacementFeasible",
    "pod_group_post_filter": "PodGroupPostFilter",
    "generate_placements": "PlacementGenerate",
    "score_placement": "PlacementScore",
    "normalize_placement_scores": "PlacementScoreExtensionNormalize",
}
"""Plugin methods, with their extension point's name in metrics."""


@dataclass(frozen=True, slots=True)
class Culprit:
    """What blocks the loop; empty strings if it is not a plugin."""

    plugin: str = ""
    extension_point: str = ""


def find_culprit(frame: FrameType | None) -> Culprit:
    """The innermost plugin call in a stack, preferably one of an extension point."""
    on_plugin = Culprit()
    while frame is not None:
        names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
        owner = frame.f_locals.get(names[0]) if names else None
        if isinstance(owner, Plugin):
            point = EXTENSION_POINTS.get(frame.f_code.co_name, "")
            culprit = Culprit(str(getattr(owner, "name", type(owner).__name__)), point)
            if point:
                return culprit
            on_plugin = on_plugin if on_plugin.plugin else culprit
        frame = frame.f_back
    return on_plugin


def _exit() -> None:
    os._exit(EXIT_STUCK)


class LoopWatchdog:
    """Watches the main thread's loop; `run` it on another thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        registry: MetricsRegistry,
        clock: Clock,
        *,
        on_stuck: Callable[[], None] = _exit,
        stuck_s: float = STUCK_S,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._on_stuck = on_stuck
        self._stuck_s = stuck_s
        thread_id = threading.main_thread().ident
        assert thread_id is not None
        self._thread_id = thread_id
        self._stalled = registry.counter("kubesched_scheduling_loop_stalled_seconds_total")
        self._stalled.labels("", "")

    def blocked(self) -> tuple[Blocked, ...]:
        """The plugins that blocked the loop. Thread-safe."""
        cells = self._stalled.cells().items()
        return tuple(
            Blocked(plugin=plugin, point=point, seconds=cell.current())
            for (plugin, point), cell in cells
            if plugin
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self._wait_for_answer()
            await asyncio.sleep(PERIOD_S)

    async def _wait_for_answer(self) -> None:
        here, answered = asyncio.get_running_loop(), asyncio.Event()
        self._loop.call_soon_threadsafe(lambda: here.call_soon_threadsafe(answered.set))
        asked_at = looked_at = self._clock.monotonic()
        report_at = 0.0
        while True:
            try:
                async with asyncio.timeout(STALL_S):
                    await answered.wait()
                if report_at:
                    seconds = round(looked_at - asked_at, 1)
                    log.info("The scheduling loop goes on", seconds=seconds)
                return
            except TimeoutError:
                now = self._clock.monotonic()
                # If this thread was late too, the whole process was: no plugin is to blame.
                if now - looked_at < 2 * STALL_S:
                    report_at = self._report(now - asked_at, now - looked_at, report_at)
                looked_at = now

    def _report(self, stalled_s: float, since_s: float, report_at: float) -> float:
        """Count and log the stall, end a stuck process; returns when to log again."""
        frame = sys._current_frames().get(self._thread_id)
        culprit = find_culprit(frame)
        self._stalled.labels(culprit.plugin, culprit.extension_point).inc(since_s)
        if stalled_s < report_at:
            return report_at
        log.warning(
            "The scheduling loop is blocked",
            plugin=culprit.plugin,
            extensionPoint=culprit.extension_point,
            seconds=round(stalled_s, 1),
            stack="".join(traceback.format_stack(frame)[-STACK_LINES:]),
        )
        if stalled_s >= self._stuck_s:
            log.error("The scheduling loop is stuck, ending the process", seconds=round(stalled_s))
            self._on_stuck()
        return min(2 * stalled_s, self._stuck_s)
