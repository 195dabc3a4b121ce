"""`kubesched bench run --mode end-to-end` as a user types it: the scheduler as a process against the embedded API server."""

import asyncio
import sys

from kubesched.benchmarking.results import Mode, decode


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
    basic, preemption, steady = decode(out).results
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
