"""The recorder on the scheduling loop: passes records to a thread that encodes and writes them.

Per record, the loop reads the clock and appends once. Objects are passed without copying, since
records are frozen. The thread writes every half second. A failure there ends the recording, with
one log line and a metric, but never the scheduler.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from kubesched.base.clock import Clock
from kubesched.base.errors import ApiError
from kubesched.base.logs import get_logger
from kubesched.framework.diagnosis import FitError
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.status import Status
from kubesched.insight.recording.records import (
    ATTEMPT,
    CALL_DONE,
    CHANGED,
    CHECKPOINTED,
    DECISION,
    QUEUE_FLUSHED,
    REACHED,
    SCHEDULING_BEGAN,
    SCHEDULING_ENDED,
    TIMER_FIRED,
)
from kubesched.insight.recording.writer import Handed, RecordingWriter
from kubesched.scheduler.checkpoint import SchedulerState
from kubesched.scheduler.flight import BINDING_BEGINS, WORK_GOES_ON

log = get_logger(__name__)

FLUSH_S = 0.5
BLOCK_RECORDS = 256
"""Maximum number of records in one block."""
MAX_PENDING = 500_000
"""Maximum number of pending records. Beyond this the disk is too slow, and recording ends."""


TASKS = (BINDING_BEGINS, WORK_GOES_ON)
actor: ContextVar[str] = ContextVar("actor", default="")
"""The binding or task that makes a call; several may make the same call concurrently."""


class LatchedClock:
    """The queue's clock: the time of the last record."""

    def __init__(self, time: float, wall: Callable[[], float]) -> None:
        self.time = time
        self.now = wall

    def monotonic(self) -> float:
        return self.time


class Recorder:
    """A `scheduler.flight.FlightRecorder`. Call `start` and `stop` on the loop's thread."""

    def __init__(
        self,
        writer: RecordingWriter,
        clock: Clock,
        *,
        flush_s: float = FLUSH_S,
        flush_at: int | None = None,
    ) -> None:
        """With `flush_at`, writes in place once that many records are pending (no thread)."""
        self.clock = LatchedClock(writer.started_at, clock.now)
        self.stopped_reason = ""
        """Why recording ended before the scheduler did."""
        self._monotonic = clock.monotonic
        self._writer = writer
        self._flush_s = flush_s
        self._is_in_place = flush_at is not None
        self._max_pending = flush_at or MAX_PENDING
        self._checkpoints = 0
        self._pending: deque[Handed] = deque()
        self._append: Callable[[Handed], None] = self._pending.append
        self._attempts = 0
        self._timers = 0
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()

    # -- on the loop: cheap ------------------------------------------------------------------------
    #
    # Entries are passed as tuples of tag and fields, the form in which they are encoded.

    def _add(self, tag: int, *fields: object) -> None:
        self.clock.time = time = self._monotonic()
        self._append((tag, time, *fields))

    def tick(self) -> None:
        self.clock.time = self._monotonic()

    def changed(self, resource: str, op: str, key: str, old: Any, new: Any) -> None:  # noqa: ANN401  # records of any kind
        """An informer is about to change its store."""
        self._add(CHANGED, resource, op, key, old, new)

    def attempt(self, info: QueuedPodInfo) -> None:
        self._attempts = number = self._attempts + 1
        pod = info.pod_info
        self._append((ATTEMPT, self.clock.time, number, pod.key, pod.uid))
        if len(self._pending) > self._max_pending:
            self._too_many_pending()

    def decided(self, info: QueuedPodInfo, node_name: str, status: Status | None) -> None:
        pod = info.pod_info
        code = digest = ""
        if status is not None:
            code, digest = status.code.upstream_name, digest_of(status)
        self._add(DECISION, self._attempts, pod.key, pod.uid, node_name, code, digest)

    def flushed(self) -> None:
        self._add(QUEUE_FLUSHED)

    async def reach(self, point: str, uid: str, status: Status | None = None) -> Status | None:
        if point in TASKS:
            actor.set(uid)
        self._add(REACHED, point, uid, None if status is None else outcome_of(status))
        return status

    def passed(self, point: str, uid: str) -> None:
        self._add(REACHED, point, uid, None)

    @property
    def wants_checkpoint(self) -> bool:
        writer = self._writer
        if self.stopped_reason:
            return False
        return writer.wants_checkpoint and writer.checkpoints == self._checkpoints

    def checkpoint(self, state: SchedulerState) -> None:
        self._checkpoints += 1
        self._add(CHECKPOINTED, self._timers, state)

    def began(self) -> None:
        self._add(SCHEDULING_BEGAN)

    def ended(self) -> None:
        self._add(SCHEDULING_ENDED)

    def call_done(self, verb: str, key: str, error: Exception | None, result: object) -> None:
        """A plugin's call returned."""
        what = None if error is None else error_of(error)
        self._add(CALL_DONE, verb, f"{actor.get()} {key}", what, result)

    def new_timer(self) -> int:
        """The number of the scheduler's next timer."""
        self._timers += 1
        return self._timers

    def timer_fired(self, number: int) -> None:
        self._add(TIMER_FIRED, number)

    # -- the thread --------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Write remaining records and stop, within a time limit."""
        if self._thread is None:
            self.flush()
        else:
            self._ending.set()
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                self._give_up("the disk did not answer in time")
                return
        try:
            self._writer.close()
        except OSError as error:  # some file systems report write errors only here
            self._give_up(str(error))

    def _run(self) -> None:
        while not self._ending.wait(self._flush_s):
            self.flush()
        self.flush()

    def flush(self) -> None:
        """Write all pending records."""
        pending = self._pending
        try:
            while pending and not self.stopped_reason:
                few = min(len(pending), BLOCK_RECORDS)
                self._writer.write([pending.popleft() for _ in range(few)])
            if not self.stopped_reason:
                self._writer.sync()
        except (Exception, SystemExit) as error:  # thread boundary: scheduling continues
            self._give_up(str(error) or type(error).__name__)

    def _too_many_pending(self) -> None:
        if self._is_in_place:
            self.flush()
        else:
            self._give_up(f"{self._max_pending} records wait to be written")

    def _give_up(self, reason: str) -> None:
        if not self.stopped_reason:
            self.stopped_reason = reason
            self._append = _drop
            self._pending.clear()
            log.error("Recording has stopped; scheduling goes on", reason)

    @property
    def written_bytes(self) -> int:
        return self._writer.total_bytes


def _drop(_entry: Handed) -> None:
    """Used after recording has ended."""


def digest_of(status: Status) -> str:
    """A short hash of a failed attempt's complete status."""
    text = "\n".join(outcome_of(status))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def outcome_of(status: Status) -> list[str]:
    """Code, plugin, message of a status; for a FitError also `fit`, rejecting, pending plugins."""
    error = status.error
    fit = ["", "", ""]
    if isinstance(error, FitError):
        diagnosis = error.diagnosis
        fit = [
            "fit",
            ",".join(sorted(diagnosis.unschedulable_plugins)),
            ",".join(sorted(diagnosis.pending_plugins)),
        ]
    return [status.code.upstream_name, status.plugin, status.message, *fit]


def error_of(error: Exception) -> list[str]:
    """An exception as texts: type, message, and code and reason of an API error."""
    said = [type(error).__name__, str(error)]
    return [*said, str(error.code), error.reason] if isinstance(error, ApiError) else said
