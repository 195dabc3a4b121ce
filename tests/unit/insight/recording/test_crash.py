"""A recording process that is killed, or runs out of room, at many points."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import msgspec
import pytest

from kubesched.insight.recording.reader import RecordingReader

WRITER = """
import sys
from random import Random
from kubesched.base.clock import SystemClock
from kubesched.insight.recording.recorder import Recorder
from kubesched.insight.recording.segments import Header
from kubesched.insight.recording.segments import FolderStorage
from kubesched.insight.recording.writer import Limits, RecordingWriter
from kubesched.testing import make_pod

limits = Limits(total_bytes=1 << 30, segment_bytes=4_000)
header = Header(
    number=0, run=0, made_by="t", wall_time=0, time=0, attempts=0, seed=1, config={},
    feature_gates={},
)
storage = FolderStorage(sys.argv[1])
storage.lock()
recorder = Recorder(RecordingWriter(storage, limits, header), SystemClock())
random, known = Random(1), {}
for number in range(int(sys.argv[2])):
    name = f"p{random.randrange(50)}"
    pod = make_pod(name).uid(name).label("number", str(number)).build()
    change = "a" if name not in known else "u"
    recorder.changed("pods", change, f"default/{name}", known.get(name), pod)
    known[name] = pod
    if number % 10 == 9:
        recorder.flush()
        print(number + 1, recorder.stopped_reason, flush=True)
"""


def numbers(folder: Path) -> list[int]:
    """The labels of all changes in the log, over all segments."""
    [run] = RecordingReader.of_folder(str(folder)).runs()
    entries = [entry for entry in run.entries() if hasattr(entry, "op")]
    return [
        int(msgspec.msgpack.decode(entry.parts)["metadata"]["labels"]["number"])
        for entry in entries
    ]


@pytest.mark.slow
@pytest.mark.parametrize("point", range(12))
def test_everything_flushed_before_the_kill_is_there(tmp_path: Path, point: int) -> None:
    wanted = Random(point).randrange(10, 1_500)
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path), "1000000"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    flushed = 0
    for line in process.stdout:
        flushed = int(line.split()[0])
        if flushed >= wanted:
            break
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()
    if rest.strip():
        flushed = int(rest.split()[-1])
    logged = numbers(tmp_path)
    assert logged == list(range(len(logged)))
    assert len(logged) >= flushed


def test_a_limit_on_the_size_of_files_ends_the_recording_only(tmp_path: Path) -> None:
    limited = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, 3_000))\n" + WRITER
    )
    process = subprocess.run(
        [sys.executable, "-c", limited, str(tmp_path), "2000"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    last = process.stdout.splitlines()[-1]
    assert last == f"2000 [Errno 27] {os.strerror(27)}"
    assert process.stderr.count("Recording has stopped") == 1
    logged = numbers(tmp_path)
    assert logged == list(range(len(logged)))
    assert logged
