"""The last attempts, in memory: which pod was tried when, and the result.

Always enabled, so it must be cheap: the loop writes a tuple into a list of fixed length. Everything
else happens when the attempts are read, possibly on another thread: a reader copies the list in one
step and never sees a half-written entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from kubesched.framework.queued_pod import QueuedPodInfo

RING_SIZE = 10_000
MESSAGE_LIMIT = 4096
REASONS_LIMIT = 100
"""Limits per entry (characters, reasons): a pod may be rejected for thousands of reasons."""


class Outcome(Enum):
    """The result of an attempt, named as in the metric `scheduler_schedule_attempts_total`."""

    SCHEDULED = "scheduled"
    """A node was chosen and the binding started. A later failure is a separate entry."""
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


class Decision(NamedTuple):
    """One attempt."""

    number: int
    """Counts attempts since the start of the process, from 1."""
    time: float
    """When it ended, in seconds since the epoch."""
    seconds: float
    """How long it took."""
    namespace: str
    name: str
    uid: str
    profile: str
    attempt: int
    """Number of attempts for this pod, this one included."""
    outcome: Outcome
    node: str = ""
    """The chosen node; for other outcomes the nominated node, if any."""
    feasible_nodes: int = 0
    evaluated_nodes: int = 0
    message: str = ""
    reasons: Sequence[str] = ()
    """`<count> <reason>` per distinct reason, over the nodes."""
    plugins: Iterable[str] = ()
    """Plugins that rejected the pod."""
    queue: str = ""
    """The queue that the pod entered afterwards: active, backoff, unschedulable, gated."""
    backoff_s: float = 0.0
    """Remaining backoff, if it is in the backoff queue."""


class DecisionRing:
    """The last attempts, by number."""

    def __init__(self, size: int = RING_SIZE) -> None:
        self._size = size
        self._entries: list[Decision | None] = [None] * size
        self.count = 0
        """Attempts since the start of the process."""

    def add(
        self,
        info: QueuedPodInfo,
        profile: str,
        now: float,
        seconds: float,
        outcome: Outcome,
        node: str = "",
        feasible: int = 0,
        evaluated: int = 0,
        *,
        message: str = "",
        reasons: Sequence[str] = (),
        queue: str = "",
        backoff_s: float = 0.0,
    ) -> None:
        pod = info.pod_info
        number = self.count = self.count + 1
        if len(message) > MESSAGE_LIMIT:
            message = f"{message[:MESSAGE_LIMIT]} ..."
        self._entries[number % self._size] = Decision(
            number,
            now,
            seconds,
            pod.namespace,
            pod.pod.metadata.name,
            pod.uid,
            profile,
            info.attempts,
            outcome,
            node,
            feasible,
            evaluated,
            message,
            reasons[:REASONS_LIMIT],
            info.unschedulable_plugins,
            queue,
            backoff_s,
        )

    def newest(self) -> list[Decision]:
        """All stored attempts, newest first."""
        entries = [entry for entry in tuple(self._entries) if entry is not None]
        entries.sort(key=lambda decision: -decision.number)
        return entries

    def get(self, number: int) -> Decision | None:
        entry = self._entries[number % self._size]
        return entry if entry is not None and entry.number == number else None
