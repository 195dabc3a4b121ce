"""The list of decisions from any source, oldest first, and the states of a recording before them.

A scheduler's ring holds the last 10,000 attempts, a recording all of its own. For any other cluster
the PodScheduled conditions give the time of each pod's last decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import msgspec

from kubesched.api.core_v1 import Pod
from kubesched.api.names import key_of
from kubesched.api.times import parse_time
from kubesched.config.features import FeatureGates
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.pod_status import REASON_UNSCHEDULABLE
from kubesched.insight.explain.explainer import condition_of
from kubesched.insight.page.source import View, view_of_state
from kubesched.insight.recording.reader import RecordingReader, Run
from kubesched.insight.recording.records import Attempt, Decision
from kubesched.scheduler.decisions import Decision as RingEntry
from kubesched.scheduler.decisions import DecisionRing

LIMIT: Final = 10_000
KEPT_MOMENTS: Final = 6
SCHEDULED, UNSCHEDULABLE, ERROR = "scheduled", "unschedulable", "error"


class Listed(msgspec.Struct, frozen=True, array_like=True):
    """One attempt; an array in JSON, since there are thousands."""

    number: int
    time: float
    pod: str
    outcome: str
    node: str
    seconds: float | None = None
    attempt: int | None = None
    feasible: int | None = None
    evaluated: int | None = None
    plugins: list[str] = []
    message: str = ""
    queue: str = ""


FIELDS: Final = Listed.__struct_fields__


def from_ring(ring: DecisionRing, after: int = 0) -> list[Listed]:
    """Attempts after a number, oldest first. Only new entries are read."""
    first = max(after + 1, ring.count - LIMIT + 1, 1)
    entries = (ring.get(number) for number in range(first, ring.count + 1))
    return [_from_entry(entry) for entry in entries if entry is not None]


def _from_entry(entry: RingEntry) -> Listed:
    return Listed(
        number=entry.number,
        time=round(entry.time, 6),
        pod=f"{entry.namespace}/{entry.name}",
        outcome=entry.outcome.value,
        node=entry.node,
        seconds=round(entry.seconds, 6),
        attempt=entry.attempt,
        feasible=entry.feasible_nodes,
        evaluated=entry.evaluated_nodes,
        plugins=sorted(entry.plugins),
        message=entry.message,
        queue=entry.queue,
    )


def from_recording(reader: RecordingReader) -> list[Listed]:
    """The last attempts of all runs, oldest first.

    Numbers restart with each run, so attempts of earlier runs get number 0.
    """
    listed: list[Listed] = []
    runs = reader.runs()
    for run in runs:
        is_last = run is runs[-1]
        listed += (
            attempt if is_last else msgspec.structs.replace(attempt, number=0)
            for attempt in _of_run(run)
        )
        del listed[:-LIMIT]
    return listed


def _of_run(run: Run) -> Iterator[Listed]:
    tries: dict[str, int] = {}
    began: dict[int, float] = {}
    for segment in run.segments:
        header = segment.header
        offset = header.wall_time - header.time
        for entry in segment.entries():
            if isinstance(entry, Attempt):
                tries[entry.uid] = tries.get(entry.uid, 0) + 1
                began[entry.number] = entry.time
            elif isinstance(entry, Decision):
                start = began.pop(entry.number, entry.time)
                yield Listed(
                    number=entry.number,
                    time=round(entry.time + offset, 6),
                    pod=entry.pod,
                    outcome=_outcome(entry),
                    node=entry.node,
                    seconds=round(entry.time - start, 6),
                    attempt=tries.get(entry.uid),
                )


def _outcome(entry: Decision) -> str:
    if entry.node:
        return SCHEDULED
    return ERROR if entry.code == "Error" else UNSCHEDULABLE


def from_conditions(pods: Iterable[Pod]) -> list[Listed]:
    """Each pod's last decision from its PodScheduled condition; the newest `LIMIT` of them."""
    timed = sorted(_timed(pods), key=lambda attempt: attempt[0])[-LIMIT:]
    return [
        Listed(number=number, time=time, pod=pod, outcome=outcome, node=node, message=message)
        for number, (time, pod, outcome, node, message) in enumerate(timed, 1)
    ]


def _timed(pods: Iterable[Pod]) -> Iterator[tuple[float, str, str, str, str]]:
    for pod in pods:
        condition = condition_of(pod)
        if condition is None or not condition.since:
            continue
        try:
            time = parse_time(condition.since)
        except ValueError:
            continue  # dumps may contain invalid times
        node = pod.spec.node_name
        if node:
            outcome = SCHEDULED
        else:
            outcome = UNSCHEDULABLE if condition.reason == REASON_UNSCHEDULABLE else ERROR
        yield time, key_of(pod.metadata), outcome, node, condition.message


def as_json(listed: Iterable[Listed], count: int) -> dict[str, Any]:
    return {"fields": FIELDS, "count": count, "rows": list(islice(listed, LIMIT))}


class Moments:
    """Views of the past. Blocking: call it in a thread, one call at a time."""

    def __init__(
        self,
        reader: Callable[[], RecordingReader],
        config: KubeSchedulerConfiguration,
        gates: FeatureGates,
    ) -> None:
        self.reader = reader

        @lru_cache(KEPT_MOMENTS)
        def view(wall_time: float | None, attempt: int | None) -> View:
            return view_of_state(reader().state_at(wall_time, attempt), config, gates)

        self._view = view

    def at(self, wall_time: float) -> View:
        """The cluster at a wall-clock time.

        Raises:
            RecordingError: the recording does not reach back that far, or is damaged.
        """
        return self._view(wall_time, None)

    def before_attempt(self, number: int) -> View:
        """The cluster right before an attempt of the last run.

        Raises RecordingError as `at` does.
        """
        return self._view(None, number)

    def attempts(self) -> list[Listed]:
        return from_recording(self.reader())

    def span(self) -> tuple[float, float]:
        """The first and last available time."""
        reader = self.reader()
        return reader.segments[0].header.wall_time, reader.end()
