"""Writing in turns: checkpoints, limits, permissions, and what happens when the disk says no."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from random import Random
from typing import Any, BinaryIO, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from recording_headers import HEADER

from kubesched.api.core_v1 import Pod
from kubesched.api.names import key_of
from kubesched.base.clock import ManualClock
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.insight.recording import recorder as recorder_module
from kubesched.insight.recording.reader import RecordingReader
from kubesched.insight.recording.recorder import Recorder
from kubesched.insight.recording.records import ATTEMPT, CHANGED
from kubesched.insight.recording.segments import FolderStorage, MemoryStorage, RecordingError
from kubesched.insight.recording.writer import Limits, RecordingWriter
from kubesched.lab.traces.recorded import of_reader
from kubesched.lab.traces.trace import TraceError
from kubesched.testing import make_pod


class Change(NamedTuple):
    """A change as the loop hands it over."""

    tag: int
    time: float
    resource: str
    op: str
    key: str
    old: Any
    new: Any


def changes(random: Random, count: int) -> list[tuple[Change, dict[str, Pod]]]:
    """Random changes, each with the model of what is there afterwards."""
    model: dict[str, Pod] = {}
    made: list[tuple[Change, dict[str, Pod]]] = []
    for index in range(count):
        name = f"p{random.randrange(8)}"
        key = f"default/{name}"
        old = model.get(key)
        new = make_pod(name).uid(key).label("n", str(index)).cpu(str(index % 3)).build()
        op = "a" if old is None else random.choice("uuudt")
        if op in "dt":
            del model[key]
        else:
            model[key] = new
        made.append((Change(CHANGED, float(index), "pods", op, key, old, new), dict(model)))
    return made


def pods(state: Any) -> dict[str, Pod]:
    return {key_of(pod.metadata): pod for pod in state.of(Pod)}


@given(st.integers(0, 2**32), st.sampled_from((300, 2_000, 1 << 20)))
def test_the_state_at_any_time_is_that_of_the_store(seed: int, segment_bytes: int) -> None:
    storage = MemoryStorage()
    writer = RecordingWriter(storage, Limits(segment_bytes=segment_bytes), HEADER)
    made = changes(Random(seed), 60)
    for change, _ in made:
        writer.write([change])
    reader = RecordingReader(storage, "test")
    assert pods(reader.state_at()) == made[-1][1]
    for index in (0, 17, 31, 59):
        assert pods(reader.state_at(wall_time=1_000_000.0 + index + 0.5)) == made[index][1]
    with pytest.raises(RecordingError, match="does not reach back"):
        reader.state_at(wall_time=999_999.0)


def test_the_state_before_an_attempt() -> None:
    storage = MemoryStorage()
    writer = RecordingWriter(storage, Limits(segment_bytes=200), HEADER)
    made = changes(Random(1), 30)
    for number, (change, _) in enumerate(made, start=1):
        writer.write([change, (ATTEMPT, change.time + 0.1, number, "default/x", "u")])
    reader = RecordingReader(storage, "test")
    assert len(reader.segments) > 1
    for number in (1, 2, 15, 30):
        assert pods(reader.state_at(attempt=number)) == made[number - 1][1]
    with pytest.raises(RecordingError, match="no attempt 31; the last one of the last run is 30"):
        reader.state_at(attempt=31)


def test_old_segments_go_when_the_limit_is_reached() -> None:
    storage = MemoryStorage()
    writer = RecordingWriter(storage, Limits(total_bytes=8_000, segment_bytes=1_000), HEADER)
    made = changes(Random(1), 400)
    for change, _ in made:
        writer.write([change])
        assert writer.total_bytes <= 8_000 + 1_000
        assert writer.total_bytes == sum(storage.size(number) for number in storage.numbers())
    assert storage.numbers()[0] > 1
    reader = RecordingReader(storage, "test")
    assert pods(reader.state_at()) == made[-1][1]
    [run] = reader.runs()
    assert not run.is_complete


def test_the_log_of_a_run_is_that_of_all_its_segments() -> None:
    storage = MemoryStorage()
    writer = RecordingWriter(storage, Limits(segment_bytes=500), HEADER)
    made = changes(Random(2), 100)
    for change, _ in made:
        writer.write([change])
    [run] = RecordingReader(storage, "test").runs()
    assert len(run.segments) > 2
    logged = [entry for entry in run.entries() if hasattr(entry, "op")]
    assert [entry.key for entry in logged] == [change.key for change, _ in made]


# -- folders -------------------------------------------------------------------------------------


def folder(path: Path) -> FolderStorage:
    storage = FolderStorage(str(path))
    storage.lock()
    return storage


def test_only_the_owner_can_read(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        path = tmp_path / "new"
        writer = RecordingWriter(folder(path), Limits(), HEADER)
        writer.begin()
        writer.close()
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for each in path.iterdir():
        assert stat.S_IMODE(each.stat().st_mode) == 0o600


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    first = folder(tmp_path)
    with pytest.raises(RecordingError, match="another process records there"):
        folder(tmp_path)
    first.close()
    folder(tmp_path).close()


def test_another_run_in_the_same_folder_leaves_the_first_alone(tmp_path: Path) -> None:
    for _ in range(2):
        storage = folder(tmp_path)
        writer = RecordingWriter(storage, Limits(segment_bytes=300), HEADER)
        for change, _ in changes(Random(3), 20):
            writer.write([change])
        writer.close()
        storage.close()
    runs = RecordingReader.of_folder(str(tmp_path)).runs()
    assert len(runs) == 2
    assert all(run.is_complete for run in runs)
    first, second = ([entry for entry in run.entries() if hasattr(entry, "op")] for run in runs)
    assert first == second


def test_a_folder_without_a_recording_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="no recording there"):
        RecordingReader.of_folder(str(tmp_path))
    with pytest.raises(RecordingError, match="No such file or directory"):
        RecordingReader.of_folder(str(tmp_path / "none"))


# -- the disk is full ----------------------------------------------------------------------------


class FullDisk(MemoryStorage):
    """Takes a number of bytes; a write that would pass it is cut short, as a real one is."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def create(self, number: int) -> BinaryIO:
        storage, file = self, super().create(number)
        write = file.write

        def limited(data: Any) -> int:
            taken = min(storage.room, len(data))
            if not taken and len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            storage.room -= taken
            return write(bytes(data[:taken]))

        file.write = limited  # type: ignore[method-assign]  # on purpose
        return file


@pytest.mark.parametrize("room", range(400, 2_400, 97))
def test_a_full_disk_ends_the_recording_and_keeps_what_was_written(
    room: int, caplog: pytest.LogCaptureFixture
) -> None:
    storage = FullDisk(room)
    clock = ManualClock()
    recorder = Recorder(RecordingWriter(storage, Limits(segment_bytes=700), HEADER), clock)
    made = changes(Random(4), 200)
    for change, _ in made:
        clock.advance(1)
        recorder.changed("pods", change.op, change.key, change.old, change.new)
        recorder.flush()
    assert "No space left on device" in recorder.stopped_reason
    lines = [each for each in caplog.records if "Recording has stopped" in each.message]
    assert len(lines) == 1
    storage.room = 1 << 20
    recorder.changed("pods", *[getattr(made[0][0], name) for name in ("op", "key", "old", "new")])
    recorder.stop()
    state = RecordingReader(storage, "test").state_at()
    assert any(pods(state) == model for _, model in [*made, (None, {})])


def test_a_disk_that_cannot_keep_up_ends_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "MAX_PENDING", 10)
    recorder = Recorder(RecordingWriter(MemoryStorage(), Limits(), HEADER), ManualClock())
    info = QueuedPodInfo(PodInfo(make_pod("a").build()), 0.0)
    for change, _ in changes(Random(4), 20):
        recorder.changed("pods", change.op, change.key, change.old, change.new)
        recorder.attempt(info)
    assert recorder.stopped_reason == "10 records wait to be written"


def test_the_thread_writes_what_is_left_when_it_is_stopped(tmp_path: Path) -> None:
    storage = folder(tmp_path)
    recorder = Recorder(RecordingWriter(storage, Limits(), HEADER), ManualClock(), flush_s=60.0)
    recorder.start()
    made = changes(Random(5), 50)
    for change, _ in made:
        recorder.changed("pods", change.op, change.key, change.old, change.new)
    recorder.stop()
    assert pods(RecordingReader.of_folder(str(tmp_path)).state_at()) == made[-1][1]
    storage.close()


def flipped(storage: MemoryStorage, number: int, offset: int) -> MemoryStorage:
    """The recording with one bit of a segment changed."""
    copy = MemoryStorage()
    for each in storage.numbers():
        with storage.open(each) as file:
            data = bytearray(file.read())
        if each == number:
            data[offset] ^= 1 << offset % 8
        with copy.create(each) as file:
            file.write(bytes(data))
    return copy


def told(storage: MemoryStorage, wall_time: float | None) -> tuple[dict[str, Pod] | None, bool]:
    """The pods at a time, and whether anything is said about damage."""
    try:
        state = RecordingReader(storage, "test").state_at(wall_time)
    except RecordingError:
        return None, True
    return pods(state), bool(state.notes)


@pytest.mark.parametrize("segments", [1, 3])
def test_a_flipped_bit_anywhere_in_the_first_segment_is_told(segments: int) -> None:
    storage = MemoryStorage()
    size = 1 << 20 if segments == 1 else 300
    writer = RecordingWriter(storage, Limits(segment_bytes=size), HEADER)
    made = changes(Random(4), 25)
    for change, _ in made:
        writer.write([change])
        if len(storage.numbers()) > segments:
            break
    first = storage.numbers()[0]
    times = (None, 1_000_000.5, 1_000_000.0 + change.time)
    unharmed = [told(storage, time) for time in times]
    assert not any(damage for _, damage in unharmed)
    for offset in range(storage.size(first)):
        damaged = flipped(storage, first, offset)
        for time, (expected, _) in zip(times, unharmed, strict=True):
            found, is_told = told(damaged, time)
            assert is_told or found == expected, f"bit flipped in byte {offset}, time {time}"


def test_a_damaged_header_in_the_middle_is_not_taken_for_a_crash() -> None:
    storage = MemoryStorage()
    writer = RecordingWriter(storage, Limits(segment_bytes=300), HEADER)
    for change, _ in changes(Random(4), 40):
        writer.write([change])
    first, last = storage.numbers()[0], storage.numbers()[-1]
    [note] = RecordingReader(flipped(storage, first, 40), "test").notes
    assert note == f"{storage.name(first)} is damaged in its header and left out"
    [note] = RecordingReader(flipped(storage, last, 40), "test").notes
    assert note == f"{storage.name(last)} broke off at once"


def test_a_flipped_bit_is_told_when_a_recording_is_read_as_a_trace() -> None:
    storage = MemoryStorage()
    config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    writer = RecordingWriter(storage, Limits(), structs.replace(HEADER, config=config))
    for change, _ in changes(Random(4), 25):
        writer.write([change])

    def read(recording: MemoryStorage) -> tuple[str, bool]:
        try:
            trace = of_reader(RecordingReader(recording, "test"))
        except (RecordingError, TraceError):
            return "", True
        return trace.digest, bool(trace.notes)

    digest, has_notes = read(storage)
    assert not has_notes
    for offset in range(storage.size(1)):
        found, is_told = read(flipped(storage, 1, offset))
        assert is_told or found == digest, f"bit flipped in byte {offset}"
