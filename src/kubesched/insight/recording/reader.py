"""Reads a recording: its segments, its runs, and the cluster state at a given time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, BinaryIO

import msgspec

from kubesched.api.kinds import KINDS
from kubesched.api.names import key_of
from kubesched.api.times import format_time
from kubesched.insight.recording.records import (
    AnyEntry,
    Attempt,
    Changed,
    CheckpointEnd,
    SavedScheduler,
    Stored,
    patched,
    restored,
)
from kubesched.insight.recording.segments import (
    FolderStorage,
    Header,
    RecordingError,
    SegmentReader,
    Storage,
)
from kubesched.insight.state.cluster_state import ClusterState

_record_of: dict[str, type[Any]] = {kind.resource: kind.record for kind in KINDS if kind.has_record}


class Objects:
    """The objects of a recording, updated record by record."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._objects: dict[str, dict[str, Any]] = {}

    def __iter__(self) -> Iterator[Any]:
        for objects in self._objects.values():
            yield from objects.values()

    def store(self, entry: Stored) -> None:
        """Add an object of a checkpoint."""
        obj = self._made(entry.resource, lambda record: restored(record, entry.parts))
        self._objects.setdefault(entry.resource, {})[key_of(obj.metadata)] = obj

    def change(self, entry: Changed) -> Any:  # noqa: ANN401  # a record of any kind
        """Apply a change; returns the object's new or final state.

        Raises:
            RecordingError: the change does not match the known state, or its kind is unknown.
        """
        objects = self._objects.setdefault(entry.resource, {})
        old = objects.get(entry.key)
        if (old is None) != (entry.op == "a"):
            raise RecordingError(
                f'{self._name}: {entry.resource} "{entry.key}" is changed by "{entry.op}", '
                f"but it is {'not there' if old is None else 'there already'}"
            )
        if old is None:
            new = self._made(entry.resource, lambda record: restored(record, entry.parts))
        else:
            new = self._made(entry.resource, lambda _record: patched(old, entry.parts))
        if entry.op in "dt":
            del objects[entry.key]
        else:
            objects[entry.key] = new
        return new

    def _made(self, resource: str, make: Callable[[type[Any]], Any]) -> Any:  # noqa: ANN401  # as above
        record = _record_of.get(resource)
        if record is None:
            raise RecordingError(f"{self._name}: {resource} are not known to this kubesched")
        try:
            return make(record)
        except msgspec.ValidationError as error:
            raise RecordingError(f"{self._name}: {resource}: {error}") from None


@dataclass(slots=True)
class Segment:
    """One segment of a recording."""

    name: str
    header: Header
    _open: Callable[[], BinaryIO]
    torn_at: int | None = field(default=None, init=False)
    """Offset where it breaks off; known once it has been read."""

    def blocks(self) -> Iterator[list[AnyEntry]]:
        with self._open() as file:
            reader = SegmentReader.open(file, self.name)
            yield from reader.blocks()
            self.torn_at = reader.torn_at

    def entries(self) -> Iterator[AnyEntry]:
        return chain.from_iterable(self.blocks())

    def has_checkpoint(self) -> bool:
        """Whether its checkpoint is complete."""
        for entry in self.entries():
            if isinstance(entry, CheckpointEnd):
                return True
            if not isinstance(entry, Stored | SavedScheduler):
                break
        return False


@dataclass(frozen=True, slots=True)
class Run:
    """The remaining segments of one scheduler run, in order."""

    segments: list[Segment]

    @property
    def is_complete(self) -> bool:
        """Whether its beginning still exists."""
        return self.segments[0].header.is_origin

    @property
    def is_playable(self) -> bool:
        """Whether its first segment holds everything needed for replay."""
        first = self.segments[0].header
        return first.is_origin or first.is_playable

    def playable(self) -> Run | None:
        """The replayable part, from the first segment with scheduler state; None if none has it."""
        for index in range(len(self.segments)):
            rest = Run(self.segments[index:])
            if rest.is_playable:
                return rest
        return None

    def playable_before(self, attempt: int) -> Run:
        """The shortest part to replay to reach an attempt of this run."""
        index = 0
        for at, segment in enumerate(self.segments):
            if segment.header.is_playable and segment.header.attempts < attempt:
                index = at
        return Run(self.segments[index:])

    def entries(self) -> Iterator[AnyEntry]:
        """The log, see `blocks`."""
        return chain.from_iterable(self.blocks())

    def blocks(self) -> Iterator[list[AnyEntry]]:
        """The log from the first segment on; later checkpoints are skipped, as they repeat the log.

        Raises:
            RecordingError: a segment in the middle is damaged or missing.
        """
        for index, segment in enumerate(self.segments):
            if index and segment.header.number != self.segments[index - 1].header.number + 1:
                raise RecordingError(f"{segment.name}: the segment before it is missing")
            if index and self.segments[index - 1].torn_at is not None:
                raise RecordingError(
                    f"{self.segments[index - 1].name}: "
                    f"damaged at byte {self.segments[index - 1].torn_at}"
                )
            for block in segment.blocks():
                if index and isinstance(block[0], Stored | SavedScheduler | CheckpointEnd):
                    continue  # checkpoints have their own blocks
                yield block


class RecordingReader:
    """A recording, readable from the beginning of any segment."""

    def __init__(self, storage: Storage, name: str) -> None:
        """Raises RecordingError if there is no recording, or it cannot be read."""
        self.name = name
        self.segments: list[Segment] = []
        self._unreadable: dict[int, str] = {}
        """Segments that break off in their header, by number."""
        for number in storage.numbers():
            self._add(storage, number)
        if not self.segments:
            raise RecordingError(f"{name}: no recording there")

    @classmethod
    def of_folder(cls, folder: str) -> RecordingReader:
        return cls(FolderStorage(folder), folder)

    def _add(self, storage: Storage, number: int) -> None:
        name = storage.name(number)
        try:
            with storage.open(number) as file:
                header = SegmentReader.open(file, name).header
        except FileNotFoundError:
            return  # just deleted by an active recorder to stay within its limit
        except OSError as error:
            raise RecordingError(f"{name}: {error.strerror or error}") from None
        except RecordingError as error:
            if "broken off" not in str(error):
                raise
            self._unreadable[number] = name
            return
        self.segments.append(Segment(name, header, lambda: storage.open(number)))

    @property
    def notes(self) -> list[str]:
        """Gaps in the recording: unreadable segments."""
        notes = []
        for number, name in self._unreadable.items():
            # Expected after a crash for the last segment of a run; all others have a header.
            is_damaged = any(s.header.run <= number < s.header.number for s in self.segments)
            what = "is damaged in its header and left out" if is_damaged else "broke off at once"
            notes.append(f"{name} {what}")
        return notes

    def runs(self) -> list[Run]:
        by_run: dict[int, list[Segment]] = {}
        for segment in self.segments:
            by_run.setdefault(segment.header.run, []).append(segment)
        return [Run(segments) for segments in by_run.values()]

    def end(self) -> float:
        """The wall-clock time of the last record."""
        header = self.segments[-1].header
        last = header.time
        for entry in self.segments[-1].entries():
            last = entry.time
        return header.wall_time + (last - header.time)

    def state_at(self, wall_time: float | None = None, attempt: int | None = None) -> ClusterState:
        """The objects at a wall-clock time, before an attempt of the last run, or at the end.

        Raises:
            RecordingError: the recording does not reach back that far, or is damaged.
        """
        segments = self._segments_until(wall_time, attempt)
        while len(segments) > 1 and not segments[-1].has_checkpoint():
            segments.pop()  # breaks off in its checkpoint, where the previous log also ends
        segment = segments[-1]
        header = segment.header
        limit = None if wall_time is None else header.time + (wall_time - header.wall_time)
        objects = Objects(segment.name)
        last, attempts, is_whole = header.time, header.attempts, False
        for entry in segment.entries():
            if isinstance(entry, Stored):
                objects.store(entry)
                continue
            is_whole = is_whole or isinstance(entry, CheckpointEnd)
            if (limit is not None and entry.time > limit) or (
                attempt is not None and isinstance(entry, Attempt) and entry.number >= attempt
            ):
                break
            last = entry.time
            if isinstance(entry, Attempt):
                attempts = entry.number
            if isinstance(entry, Changed):
                objects.change(entry)
        else:
            if attempt is not None:
                raise RecordingError(
                    f"{self.name}: there is no attempt {attempt}; "
                    f"the last one of the last run is {attempts}"
                )
        if not is_whole:
            raise RecordingError(f"{segment.name}: broken off in its checkpoint, or damaged there")
        state = ClusterState(f"recording {self.name} at {_rfc3339(header, last)}")
        state.notes += self.notes
        for obj in objects:
            state.put(obj)
        if segment.torn_at is not None:
            state.notes.append(f"{segment.name} breaks off at byte {segment.torn_at}")
        return state

    def _segments_until(self, wall_time: float | None, attempt: int | None) -> list[Segment]:
        """The segments up to a point; reading starts with the last one."""
        if attempt is not None:
            last_run = self.segments[-1].header.run
            segments = [segment for segment in self.segments if segment.header.run == last_run]
            before = [segment for segment in segments if segment.header.attempts < attempt]
            what = f"attempt {attempt}"
        elif wall_time is not None:
            before = [segment for segment in self.segments if segment.header.wall_time <= wall_time]
            what = "that time"
        else:
            before = list(self.segments)
            what = "the end"
        if not before:
            first = self.segments[0].header
            raise RecordingError(
                f"{self.name}: does not reach back to {what}; "
                f"it begins at {_rfc3339(first, first.time)}"
            )
        return before


def _rfc3339(header: Header, time: float) -> str:
    return format_time(header.wall_time + (time - header.time))
