"""`kubesched bench run --mode end-to-end` as a user types it: the scheduler as a process against
the embedded API server.
"""

import asyncio
import os
import sys
from pathlib import Path

import msgspec
from processes import is_running, until

from kubesched.lab.benchmarking.results import Mode, Report


async def bench(*words):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "kubesched", "bench", "run", "--mode", "end-to-end", *words),
        *("--repeats", "1", "--warmup", "0", "-o", "json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out, err.decode()


async def test_workloads_of_every_sort_come_to_a_result():
    code, out, err = await bench("Basic/tiny", "Preemption/tiny", "SteadyState/tiny")
    assert code == 0, err
    basic, preemption, steady = msgspec.json.decode(out, type=Report).results
    assert [basic.pods, preemption.pods] == [100, 5]
    assert preemption.unschedulable_attempts >= 5
    assert steady.pods > 10
    for result in (basic, preemption, steady):
        assert (result.mode, result.control_plane) == (Mode.END_TO_END, "embedded")
        assert result.pods_per_s > 0
        assert result.scheduler.max_rss_bytes > 0
        assert result.sli_ms.p99 >= result.sli_ms.p50 > 0
    assert basic.scheduler.cpu_s > 0
    assert basic.api_server.cpu_s > 0


def children(pid):
    return [int(item) for item in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_a_bench_that_is_killed_leaves_nothing_running(tmp_path):
    killed = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "kubesched", "bench", "run", "--mode", "end-to-end", "SteadyState/tiny"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},  # what it cannot clear away any more
    )
    await until(lambda: len(children(killed.pid)) == 2)  # the API server and the scheduler
    started = children(killed.pid)
    killed.kill()
    await killed.wait()
    await until(lambda: not any(is_running(pid) for pid in started))
