"""What the page shows, and how it reads it.

A `View` is one cluster, fixed at a moment or live. A `Source` has a current view and, with a
recording, any number of earlier ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from kubesched.api.core_v1 import Pod
from kubesched.config.features import FeatureGates
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.insight.explain.explainer import Explainer
from kubesched.insight.explain.model import Explanation
from kubesched.insight.explain.selection import Selection
from kubesched.insight.explain.sources import explainer_of
from kubesched.insight.page.actions import PlaygroundActions
from kubesched.insight.recording.reader import RecordingReader
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.scheduler.decisions import DecisionRing
from kubesched.scheduler.factory import Assembly

T = TypeVar("T")

SourceKind = Literal["playground", "scheduler", "cluster", "dump", "recording"]


class Read(Protocol):
    """Runs a function where the scheduler's state may be read."""

    def __call__(self, function: Callable[[], T]) -> Awaitable[T]: ...


async def read_here(function: Callable[[], T]) -> T:
    """For a page on the scheduler's event loop."""
    return function()


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One cluster to show."""

    assembly: Assembly
    """Its table and queue are read, never changed."""
    state: Callable[[], ClusterState]
    """Returns the current objects."""
    explainer: Explainer | None
    """None if the assembly schedules: explanations then use a copy of the state."""

    def pods(self) -> list[Pod]:
        return self.state().of(Pod)


Play = Callable[[RecordingReader, str, int, Selection, bool], Explanation | None]
"""Replays up to an attempt (reader, pod, number, selection, fixes); None if out of reach."""


@dataclass(slots=True, kw_only=True)
class Source:
    """The data behind the page."""

    kind: SourceKind
    title: str
    view: View
    config: KubeSchedulerConfiguration
    gates: FeatureGates
    is_live: bool = False
    """Whether it keeps changing."""
    ring: DecisionRing | None = None
    reader: Callable[[], RecordingReader] | None = None
    """Opens the recording, if there is one, in its current state."""
    play: Play | None = None
    actions: PlaygroundActions | None = None
    read: Read = read_here


def view_of_state(
    state: ClusterState, config: KubeSchedulerConfiguration, gates: FeatureGates
) -> View:
    """A fixed state, with an in-memory scheduler loaded from it."""
    explainer = explainer_of(state, config, gates=gates)
    return View(assembly=explainer.assembly, state=lambda: state, explainer=explainer)


class Busy(Exception):
    """Too many requests are waiting."""


def _without_exit(work: Callable[[], T]) -> T:
    try:
        return work()
    except SystemExit as error:  # raised by a plugin; a request must not end the process
        raise RuntimeError(f"the process was asked to exit: {error}") from error


class Turns:
    """Runs work in threads, one at a time, with a bounded number waiting."""

    def __init__(self, max_waiting: int = 8) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._max_waiting = max_waiting

    async def run(self, work: Callable[[], T]) -> T:
        """Raises Busy."""
        if self._waiting >= self._max_waiting:
            raise Busy
        self._waiting += 1
        try:
            async with self._lock:
                return await asyncio.to_thread(_without_exit, work)
        finally:
            self._waiting -= 1
