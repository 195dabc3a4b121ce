"""What recording and playing cost: `python benchmarks/recording.py [--pods N] [--replay [DIR]]`.

Plays the lives of pods to a recorder as the scheduler does (added, tried, decided, bound, running,
deleted) and prints the CPU time of the loop's thread for each, what each takes on disk, and how
other ways of packing compare.

With `--replay`, records a playground instead in which so many pods are created, run, and half of
them are deleted, and prints how many decisions are played per second of CPU; with DIR, plays the
recording that is there.
"""

from __future__ import annotations

import argparse
import asyncio
import time
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import structs
from state import _pod

from kubesched.api import codec
from kubesched.api.core_v1 import Pod
from kubesched.app.playground import PlaygroundSettings, playground
from kubesched.base.clock import SystemClock
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.insight.recording.reader import RecordingReader
from kubesched.insight.recording.recorder import Recorder
from kubesched.insight.recording.records import encode_entries
from kubesched.insight.recording.segments import FolderStorage, Header
from kubesched.insight.recording.writer import DEFAULT_LIMIT_BYTES, Limits, RecordingWriter
from kubesched.lab.traces.log_player import play

RATE_BLOCK = 100
"""Pods whose lives overlap."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=0, help="default: 20000, with --replay 2000")
    parser.add_argument("--replay", nargs="?", const="", metavar="DIR")
    args = parser.parse_args()
    if args.replay is None:
        measure_recording(args.pods or 20_000)
    elif args.replay:
        measure_playing(args.replay)
    else:
        with TemporaryDirectory() as folder:
            asyncio.run(record_playground(Path(folder), args.pods or 2_000))
            measure_playing(f"{folder}/recording")


def measure_recording(pods: int) -> None:
    lives = [_life(index) for index in range(pods)]
    with TemporaryDirectory() as folder:
        storage = FolderStorage(folder)
        storage.lock()
        clock = SystemClock()
        header = Header(
            number=0,
            run=0,
            made_by="benchmark",
            wall_time=clock.now(),
            time=clock.monotonic(),
            attempts=0,
            seed=1,
            config={},
            feature_gates={},
        )
        recorder = Recorder(RecordingWriter(storage, Limits(), header), clock)
        recorder.start()
        loop_s = _play(recorder, lives) - _play(_Nothing(), lives)
        recorder.stop()
        assert not recorder.stopped_reason, recorder.stopped_reason
        print(f"loop: {loop_s / pods * 1e6:.2f} us CPU per pod's life (8 records)")
        print(f"disk: {recorder.written_bytes / pods:.0f} bytes per pod's life")
        _compare_packing(folder, pods)


async def record_playground(folder: Path, pods: int, nodes: int = 100) -> None:
    """Record the lives of pods in `folder/recording`: all of them run in the end, then every other
    one is deleted.
    """
    settings = PlaygroundSettings(
        kubeconfig=folder / "kubeconfig",
        nodes=nodes,
        record=str(folder / "recording"),
        record_limit=DEFAULT_LIMIT_BYTES,
    )
    async with playground(settings) as running:
        api = running.cluster.api
        for index in range(pods):
            api.create("pods", _small_pod(index))
            if index % 20 == 0:
                await asyncio.sleep(0.01)
        async with asyncio.timeout(60 + pods / 10):
            while any(pod["status"].get("phase") != "Running" for pod in api.list("pods")[0]):  # noqa: ASYNC110 - a benchmark polls
                await asyncio.sleep(0.3)
            for index in range(0, pods, 2):
                api.delete("pods", "default", f"pod-{index}")
            while len(api.list("pods")[0]) > pods // 2:  # noqa: ASYNC110
                await asyncio.sleep(0.3)


def _small_pod(index: int) -> dict[str, Any]:
    resources = {"requests": {"cpu": "50m"}}
    return {
        "metadata": {
            "name": f"pod-{index}",
            "namespace": "default",
            "labels": {"app": f"app-{index % 7}"},
        },
        "spec": {"containers": [{"name": "main", "image": "image", "resources": resources}]},
    }


def measure_playing(folder: str) -> None:
    for run in RecordingReader.of_folder(folder).runs():
        if not run.is_complete:
            continue
        records = sum(1 for _ in run.entries())
        started = time.process_time()
        played = play(run)
        seconds = time.process_time() - started
        print(
            f"replay: {played.decisions} decisions, {records} records in {seconds:.2f} s CPU: "
            f"{played.decisions / seconds:.0f} decisions/s, {records / seconds:.0f} records/s"
        )
        if played.difference:
            raise SystemExit(played.difference)


class _Nothing:
    """A recorder that records nothing: what the calls themselves cost."""

    def tick(self) -> None: ...

    def attempt(self, info: QueuedPodInfo) -> None: ...

    def decided(self, info: QueuedPodInfo, node_name: str, status: None) -> None: ...

    def changed(self, resource: str, op: str, key: str, old: Any, new: Any) -> None: ...

    async def reach(self, point: str, uid: str) -> None: ...


def _play(recorder: Any, lives: list[Any]) -> float:
    """Seconds of this thread's CPU."""
    loop_s = 0.0
    for first in range(0, len(lives), RATE_BLOCK):
        batch = lives[first : first + RATE_BLOCK]
        started = time.thread_time()
        for step in range(4):
            for life in batch:
                _record(recorder, step, *life)
        loop_s += time.thread_time() - started
    return loop_s


def _life(index: int) -> tuple[QueuedPodInfo, Pod, Pod, Pod, Pod]:
    raw: dict[str, Any] = _pod(index, 5_000)
    running = codec.convert(raw, Pod)
    bound = structs.replace(running, status=structs.replace(running.status, phase="Pending"))
    spec = structs.replace(bound.spec, node_name="")
    added = structs.replace(bound, spec=spec)
    gone_meta = structs.replace(running.metadata, deletion_timestamp="2026-01-02T04:04:05Z")
    gone = structs.replace(running, metadata=gone_meta)
    return QueuedPodInfo(PodInfo(added), 0.0), added, bound, running, gone


def _record(
    recorder: Any,
    step: int,
    info: QueuedPodInfo,
    added: Pod,
    bound: Pod,
    running: Pod,
    gone: Pod,
) -> None:
    key = info.pod_info.key
    if step == 0:
        recorder.changed("pods", "a", key, None, added)
        recorder.tick()
        recorder.attempt(info)
        recorder.decided(info, bound.spec.node_name, None)
        _run(recorder.reach("binding", info.pod_info.uid))
    elif step == 1:
        recorder.changed("pods", "u", key, added, bound)
        _run(recorder.reach("bound", info.pod_info.uid))
    elif step == 2:
        recorder.changed("pods", "u", key, bound, running)
    else:
        recorder.changed("pods", "d", key, running, gone)


def _run(coroutine: Any) -> None:
    """Await something that does not suspend."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("it suspended")


def _compare_packing(folder: str, pods: int) -> None:
    [run] = RecordingReader.of_folder(folder).runs()
    entries = list(run.entries())
    blocks = [encode_entries(entries[i : i + 256]) for i in range(0, len(entries), 256)]
    raw = sum(len(block) for block in blocks)
    print(f"unpacked: {raw / pods:.0f} bytes")
    for level in (1, 6):
        started, size, window = time.process_time(), 0, b""
        for block in blocks:
            packer = zlib.compressobj(level, zlib.DEFLATED, -15, zdict=window)
            size += len(packer.compress(block) + packer.flush())
            window = (window + block)[-32768:]
        _print(f"zlib {level}", size, time.process_time() - started, pods)
    try:
        import zstandard
    except ImportError:
        print("zstandard is not installed")
        return
    for level in (1, 3):
        started, size, window = time.process_time(), 0, b" " * 64
        for block in blocks:
            dictionary = zstandard.ZstdCompressionDict(
                window, dict_type=zstandard.DICT_TYPE_RAWCONTENT
            )
            packer = zstandard.ZstdCompressor(level=level, dict_data=dictionary)
            size += len(packer.compress(block))
            window = (window + block)[-131072:]
        _print(f"zstandard {level}", size, time.process_time() - started, pods)


def _print(name: str, size: int, seconds: float, pods: int) -> None:
    print(f"{name}: {size / pods:.0f} bytes, {seconds / pods * 1e6:.1f} us")


if __name__ == "__main__":
    main()
