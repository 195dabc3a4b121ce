"""What a disk may do to a recording: no room at the start, power that fails in a checkpoint, writes
that take nothing.

The simulation draws such faults from seeds (`kubesched simulate --faults --with disk`); these are
the single cases.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

import pytest
from recording_headers import HEADER

from kubesched.base.clock import ManualClock
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.load import load
from kubesched.insight.recording import segments as storage_module
from kubesched.insight.recording.reader import RecordingReader
from kubesched.insight.recording.recorded_dependencies import open_recording
from kubesched.insight.recording.recorder import Recorder
from kubesched.insight.recording.records import CHANGED
from kubesched.insight.recording.segments import FolderStorage, MemoryStorage, RecordingError
from kubesched.insight.recording.writer import Limits, RecordingWriter
from kubesched.testing import make_pod

PODS = 30


def recorded() -> MemoryStorage:
    """Several segments with all pods of the log."""
    storage = MemoryStorage()
    writer = RecordingWriter(storage, Limits(segment_bytes=500), HEADER)
    for index in range(PODS):
        pod = make_pod(f"p{index}").uid(str(index)).label("text", "x" * index).build()
        writer.write([(CHANGED, float(index), "pods", "a", f"default/p{index}", None, pod)])
    assert len(storage.numbers()) > 1
    return storage


def cut(storage: MemoryStorage, number: int, size: int) -> None:
    file: Any = storage._segments[number]
    file.truncate(size)


def pod_count(reader: RecordingReader) -> int:
    return sum(1 for _ in reader.state_at().of(type(make_pod("any").build())))


def test_half_a_checkpoint_is_not_the_state_of_the_cluster() -> None:
    storage = recorded()
    last = storage.numbers()[-1]
    before = pod_count(_without(storage, last))
    assert 0 < before < PODS
    whole = storage.size(last)
    counts = []
    for size in range(0, whole, 40):
        cut_storage = recorded()
        cut(cut_storage, last, size)
        counts.append(pod_count(RecordingReader(cut_storage, "test")))
    # As far as the segment before goes, until there is a checkpoint and a log after it.
    assert counts == sorted(counts)
    assert counts[0] == before


def _without(storage: MemoryStorage, number: int) -> RecordingReader:
    shorter = recorded()
    shorter.delete(number)
    return RecordingReader(shorter, "test")


def test_a_segment_of_zeros_is_left_out() -> None:
    storage = recorded()
    last = storage.numbers()[-1]
    file: Any = storage._segments[last]
    file.seek(0)
    file.write(bytes(storage.size(last)))
    reader = RecordingReader(storage, "test")
    assert reader.notes == [f"{storage.name(last)} broke off at once"]
    assert pod_count(reader) == pod_count(_without(storage, last))


def test_other_files_are_still_refused() -> None:
    storage = recorded()
    file: Any = storage._segments[1]
    file.seek(0)
    file.write(b"something else")
    with pytest.raises(RecordingError, match="not a segment of a recording"):
        RecordingReader(storage, "test")


class FullDisk(MemoryStorage):
    """No file can be made."""

    def create(self, number: int) -> BinaryIO:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_does_not_keep_a_scheduler_from_starting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = load(
        b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n",
        "test",
        DEFAULT_GATES,
    )
    recording = open_recording(
        None,
        config,
        DEFAULT_GATES,
        limits=Limits(),
        clock=ManualClock(),
        random=Random(1),
        storage=FullDisk(),
    )
    assert "No space left on device" in recording.recorder.stopped_reason
    assert not recording.recorder.wants_checkpoint
    assert recording.recorder.written_bytes == 0
    recording.close()
    lines = [line for line in caplog.records if "Recording has stopped" in line.message]
    assert len(lines) == 1


class TakesNothing(MemoryStorage):
    """Every write returns zero."""

    def create(self, number: int) -> BinaryIO:
        file: Any = super().create(number)
        file.write = lambda _data: 0
        return file  # type: ignore[no-any-return]  # a file with another method


def test_a_disk_that_takes_no_data_is_not_asked_for_ever() -> None:
    recorder = Recorder(RecordingWriter(TakesNothing(), Limits(), HEADER), ManualClock())
    recorder.flush()
    assert "the disk takes no data" in recorder.stopped_reason


# Python 3.14 closes the file once more when it is finalized, and tells that this fails, too.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_error_while_the_file_is_closed_is_told() -> None:
    class FailsToClose(MemoryStorage):
        def create(self, number: int) -> BinaryIO:
            file: Any = super().create(number)

            def close() -> None:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

            file.close = close
            return file  # type: ignore[no-any-return]  # as above

    recorder = Recorder(RecordingWriter(FailsToClose(), Limits(), HEADER), ManualClock())
    recorder.stop()
    assert "Input/output error" in recorder.stopped_reason


def test_the_name_of_a_new_segment_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def note(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))

    monkeypatch.setattr(storage_module.os, "fsync", note)
    storage = FolderStorage(str(tmp_path))
    storage.lock()
    storage.create(1).close()
    storage.close()
    assert synced == [str(tmp_path)]


def test_a_segment_that_is_deleted_while_a_recording_is_opened_is_left_out() -> None:
    storage = recorded()
    first, *others = storage.numbers()

    class Deleted(MemoryStorage):
        def numbers(self) -> list[int]:
            return [first, *others]

        def open(self, number: int) -> BinaryIO:
            if number == first:
                raise FileNotFoundError
            return storage.open(number)

    assert len(RecordingReader(Deleted(), "memory").segments) == len(others)
