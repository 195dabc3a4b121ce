"""What the page looks at, and how it gets there.

A `View` is one cluster at one moment, or one that goes on changing. A `Source` has a current view,
and with a recording any number of earlier ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from kubesched.api.core_v1 import Pod
from kubesched.api.kinds import Kind
from kubesched.client.informers.factory import UndeclaredKind
from kubesched.config.features import FeatureGates
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.insight.explain.explainer import Explainer
from kubesched.insight.explain.model import Explanation
from kubesched.insight.explain.selection import Selection
from kubesched.insight.explain.sources import explainer_of
from kubesched.insight.page.actions import Actions
from kubesched.insight.recording.reader import RecordingReader
from kubesched.insight.state.cluster_state import KINDS, ClusterState
from kubesched.scheduler.decisions import DecisionRing
from kubesched.scheduler.factory import Assembly

T = TypeVar("T")

SourceKind = Literal["playground", "scheduler", "cluster", "dump", "recording"]


class Read(Protocol):
    """Runs a function where the scheduler's state may be read."""

    def __call__(self, function: Callable[[], T]) -> Awaitable[T]: ...


async def read_here(function: Callable[[], T]) -> T:
    """For a page on the same event loop."""
    return function()


class Listers(Protocol):
    """Informers, or stores in memory."""

    def of(self, kind: type[Any]) -> Any: ...  # noqa: ANN401  # a lister of that kind


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One cluster to look at."""

    assembly: Assembly
    """Its table and queue are read, never changed."""
    state: Callable[[], ClusterState]
    """The objects, as they are when it is called."""
    explainer: Explainer | None
    """None if the assembly schedules: then explanations are made over a copy of the state."""

    def pods(self) -> list[Pod]:
        return self.state().of(Pod)


Play = Callable[[RecordingReader, str, int, Selection, bool], Explanation | None]
"""Plays a recording up to a pod's attempt: reader, pod, number, selection, fixes. None if it does
not reach back.
"""


@dataclass(slots=True, kw_only=True)
class Source:
    """What the page looks at."""

    kind: SourceKind
    title: str
    view: View
    config: KubeSchedulerConfiguration
    gates: FeatureGates
    is_live: bool = False
    """Whether it goes on changing."""
    ring: DecisionRing | None = None
    reader: Callable[[], RecordingReader] | None = None
    """Opens the recording, if there is one, as it is now."""
    play: Play | None = None
    actions: Actions | None = None
    read: Read = read_here


def view_of_state(
    state: ClusterState, config: KubeSchedulerConfiguration, gates: FeatureGates
) -> View:
    """A state that does not change, with a scheduler in memory that knows it."""
    explainer = explainer_of(state, config, gates=gates)
    return View(assembly=explainer.assembly, state=lambda: state, explainer=explainer)


def state_of_listers(
    title: str, listers: Listers, unwatched: Callable[[Kind[Any]], list[Any]] | None = None
) -> ClusterState:
    """A copy of what informers know; the records themselves are shared.

    `unwatched` gives the objects of kinds without an informer; no decision depends on those, but
    admission may.
    """
    state = ClusterState(title)
    for kind in KINDS:
        try:
            objects = listers.of(kind.record).list()
        except UndeclaredKind:
            objects = [] if unwatched is None else unwatched(kind)
        for obj in objects:
            state.put(obj)
    return state


class Busy(Exception):
    """Too many questions wait for an answer."""


def _without_exit(work: Callable[[], T]) -> T:
    try:
        return work()
    except SystemExit as error:  # a plugin's; a question must not end the process
        raise RuntimeError(f"the process was asked to exit: {error}") from error


class Turns:
    """Work in threads, one at a time, with a bounded number waiting."""

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
