"""Writes a recording: successive segments, each with a checkpoint, within a size limit.

`RecordingWriter` does the slow work: encoding, compressing, writing, deleting. It keeps a mirror of
the stores (the same frozen records, one dictionary entry per object) and creates checkpoints from
it, so the scheduling loop never iterates over the cluster. It runs in the caller's thread:
`recorder`'s, or in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from msgspec import structs

from kubesched.api.meta import Record
from kubesched.insight.recording.records import (
    ATTEMPT,
    CALL_DONE,
    CHANGED,
    CHECKPOINTED,
    SCHEDULER,
    STORED,
    CheckpointEnd,
    Entry,
    difference,
    encode_entries,
    whole,
)
from kubesched.insight.recording.segments import Header, SegmentWriter, Storage

DEFAULT_LIMIT_BYTES = 1 << 30
SEGMENT_BYTES = 64 << 20
PATIENCE = 2
"""A segment may grow to this many times its size while waiting for an idle scheduler."""
CHECKPOINT_BLOCK = 2_000
"""Objects per block of a checkpoint."""


Handed = tuple[Any, ...]
"""An entry from the loop: tag and fields. A change holds the old and new object, not parts."""


@dataclass(slots=True)
class Limits:
    """Size limits of a recording."""

    total_bytes: int = DEFAULT_LIMIT_BYTES
    segment_bytes: int = 0
    """0 means an eighth of the total, at most 64 MiB."""

    @property
    def per_segment(self) -> int:
        return self.segment_bytes or max(1, min(SEGMENT_BYTES, self.total_bytes // 8))


class RecordingWriter:
    """Writes entries in order. Raises OSError if the storage fails; the caller then stops.

    The first write creates the first segment, so that a full disk does not prevent a scheduler
    from starting.
    """

    def __init__(self, storage: Storage, limits: Limits, header: Header) -> None:
        """`header` describes the run; number, time and attempts are set for each segment."""
        self._storage = storage
        self._limits = limits
        self._mirror: dict[str, dict[str, Any]] = {}
        self._attempts = 0
        self._checkpoint_bytes = 0
        self.checkpoints = 0
        """Number of scheduler checkpoints written."""
        self.wants_checkpoint = False
        """The segment is full or not replayable: start the next once the scheduler is idle."""
        self._number = 0
        self._is_playable = True
        self._header = header
        self._total = 0
        self._file: BinaryIO | None = None
        self._segment: SegmentWriter

    @property
    def started_at(self) -> float:
        """The scheduler's clock at the start of the run."""
        return self._header.time

    @property
    def total_bytes(self) -> int:
        return self._total + (self._segment.size if self._number else 0)

    def begin(self) -> None:
        """Create the first segment, if not done yet."""
        if self._file is not None:
            return
        numbers = self._storage.numbers()
        self._total = sum(self._storage.size(number) for number in numbers)
        number = (numbers[-1] if numbers else 0) + 1
        self._header = structs.replace(self._header, number=number, run=number, is_playable=True)
        self._begin_segment(self._header)
        self._segment.write_block(encode_entries([CheckpointEnd(self._header.time, 0)]))

    def _begin_segment(self, header: Header) -> None:
        self._file = self._storage.create(header.number)
        self._segment = SegmentWriter(self._file, header)
        self._number = header.number

    def write(self, entries: Sequence[Handed]) -> None:
        """Write entries as one block; it survives a process crash, after `sync` a machine crash."""
        if not entries:
            return
        self.begin()
        block: list[Handed] = []
        for entry in entries:
            if entry[0] == CHANGED:
                block.append(self._encoded(*entry))
            elif entry[0] == CHECKPOINTED:
                _tag, time, timers, state = entry
                block.append((CHECKPOINTED, time, state.seed))
                self._write_log(block)
                block = []
                self._rotate(time, (SCHEDULER, time, timers, state))
                self.checkpoints += 1
            elif entry[0] == CALL_DONE and isinstance(entry[-1], Record):
                block.append((*entry[:-1], whole(entry[-1])))
            else:
                self._attempts += entry[0] == ATTEMPT
                block.append(entry)
        self._write_log(block)
        if self._is_full(PATIENCE):
            self._rotate(entries[-1][1])
        self.wants_checkpoint = self._is_full() or not self._is_playable
        if self.total_bytes > self._limits.total_bytes:
            self._keep_within_limit()

    def _write_log(self, block: list[Handed]) -> None:
        if block:
            self._segment.write_block(encode_entries(block))

    def sync(self) -> None:
        self.begin()
        assert self._file is not None
        self._storage.sync(self._file)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _is_full(self, times: int = 1) -> bool:
        """Whether to rotate: a checkpoint is followed by at least as much log, so logs dominate."""
        wanted_bytes = times * max(self._limits.per_segment, 2 * self._checkpoint_bytes)
        return self._segment.size >= wanted_bytes

    def _encoded(
        self,
        tag: int,
        time: float,
        resource: str,
        op: str,
        key: str,
        old: Any,  # noqa: ANN401  # a record of any kind
        new: Any,  # noqa: ANN401  # as above
    ) -> Handed:
        """The change in its written form; also updates the mirror."""
        objects = self._mirror.setdefault(resource, {})
        if op == "a":
            parts = whole(new)
        elif op == "t":
            parts = {}
        else:
            parts = difference(old, new)
        if op in "dt":
            objects.pop(key, None)
        else:
            objects[key] = new
        return tag, time, resource, op, key, parts

    def _rotate(self, time: float, scheduler: Handed | None = None) -> None:
        """Start the next segment, which must be readable before old ones are deleted.

        Without the scheduler's state, it cannot be replayed from its beginning.
        """
        self._is_playable = scheduler is not None
        self.sync()
        self.close()
        size = self._segment.size
        wall_time = self._header.wall_time + (time - self._header.time)
        header = structs.replace(
            self._header,
            number=self._number + 1,
            time=time,
            wall_time=wall_time,
            attempts=self._attempts,
            is_playable=self._is_playable,
        )
        self._begin_segment(header)
        self._total += size
        self._write_checkpoint(time, scheduler)

    def _write_checkpoint(self, time: float, scheduler: Handed | None) -> None:
        block: list[Handed | Entry] = []
        count = 0
        for resource, objects in self._mirror.items():
            for obj in objects.values():
                block.append((STORED, time, resource, whole(obj)))
                count += 1
                if len(block) == CHECKPOINT_BLOCK:
                    self._segment.write_block(encode_entries(block))
                    block.clear()
        if scheduler is not None:
            block.append(scheduler)
        self._segment.write_block(encode_entries([*block, CheckpointEnd(time, count)]))
        self.sync()
        self._checkpoint_bytes = self._segment.size

    def _keep_within_limit(self) -> None:
        """Delete the oldest segments, never the one being written."""
        numbers = self._storage.numbers()
        while self.total_bytes > self._limits.total_bytes and numbers[0] != self._number:
            number = numbers.pop(0)
            self._total -= self._storage.size(number)
            self._storage.delete(number)
