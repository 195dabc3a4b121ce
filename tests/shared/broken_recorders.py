"""Schedulers whose recordings are broken on purpose, each with the promise that it breaks."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from kubesched.app.simulated import SimulatedProcess
from kubesched.lab.simulation.options import NO_FAULTS, ONE_SEGMENT_BYTES, DiskOptions, Rates
from kubesched.lab.simulation.processes import ProcessParts

GOOD = DiskOptions(segment_bytes=ONE_SEGMENT_BYTES, total_bytes=1 << 30, flush_at=8)


def _calm(disk: DiskOptions) -> dict[str, Any]:
    """A small world without other faults."""
    return {
        "instances": 1,
        "nodes": 3,
        "pods": 20,
        "rates": NO_FAULTS,
        "mixes": ("plain",),
        "extras": (),
        "mischief": 0.0,
        "disk": disk,
        **dict.fromkeys(
            ("crash_every_s", "partition_every_s", "jump_every_s", "change_every_s"), 0.0
        ),
    }


class BrokenRecorder(SimulatedProcess):
    """Breaks its recorder when it is made."""

    def __init__(self, parts: ProcessParts) -> None:
        super().__init__(parts)
        assert self.recorder is not None
        self.spoil(self.recorder, parts.random)

    def spoil(self, recorder: Any, random: Random) -> None:
        raise NotImplementedError


class CutsBlocks(BrokenRecorder):
    """The last byte of a block is not written."""

    def spoil(self, recorder: Any, random: Random) -> None:
        segment = recorder._writer._segment
        write: Callable[[bytes], None] = segment._write
        segment._write = lambda data: write(data[:-1])


class LogsAnotherNode(BrokenRecorder):
    """The log names another node than the one that was chosen."""

    def spoil(self, recorder: Any, random: Random) -> None:
        decided = recorder.decided
        recorder.decided = lambda info, node_name, status: decided(info, f"{node_name}x", status)


class EndsWithoutReason(BrokenRecorder):
    """The reason why recording ends is not told."""

    def spoil(self, recorder: Any, random: Random) -> None:
        give_up = recorder._give_up
        recorder._give_up = lambda _reason: give_up("something went wrong")


class CaresAboutTheDisk(BrokenRecorder):
    """An error of the disk uses up a random number that the scheduler would have had."""

    def spoil(self, recorder: Any, random: Random) -> None:
        give_up = recorder._give_up

        def disturb(reason: str) -> None:
            random.random()
            give_up(reason)

        recorder._give_up = disturb


class ForgetsInCheckpoints(BrokenRecorder):
    """A checkpoint lacks the object that changed last."""

    def spoil(self, recorder: Any, random: Random) -> None:
        writer = recorder._writer
        rotate = writer._rotate

        def forget(*arguments: Any) -> None:
            next(iter(writer._mirror.values())).popitem()
            rotate(*arguments)

        writer._rotate = forget


_FAILING = DiskOptions(
    segment_bytes=ONE_SEGMENT_BYTES, total_bytes=1 << 30, flush_at=8, fail=0.2, fail_sync=0.2
)
_SMALL_SEGMENTS = DiskOptions(segment_bytes=2_000, total_bytes=1 << 30, flush_at=8)

BROKEN_RECORDERS: list[tuple[type[SimulatedProcess], dict[str, Any], tuple[str, ...]]] = [
    (CutsBlocks, _calm(GOOD), ("what was synced can be read",)),
    (LogsAnotherNode, _calm(GOOD), ("what is left of a recording is played as it was",)),
    (EndsWithoutReason, _calm(_FAILING), ("a recording that ends says why",)),
    (
        CaresAboutTheDisk,
        {**_calm(_FAILING), "rates": Rates(refuse=0.3, cut_watch=0.2)},
        ("scheduling does not depend on the disk",),
    ),
    (
        ForgetsInCheckpoints,
        _calm(_SMALL_SEGMENTS),
        ("the state at the end of a recording is that of its log",),
    ),
]
