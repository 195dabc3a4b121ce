"""A sweep of replays on a real Dask cluster of two worker processes, one of which is killed in the
middle.
"""

import os
import signal

import psutil
import pytest
from dask_cluster import dask_cluster
from traces import SAMPLES, strategy

from kubesched.lab.sweeps.executors import InProcess
from kubesched.lab.sweeps.store import ResultStore
from kubesched.lab.sweeps.sweep import run_sweep
from kubesched.lab.traces.cells import keyed, play_cell
from kubesched.lab.traces.outcome import decode
from kubesched.lab.traces.player import Cell
from kubesched.lab.traces.reading import read_trace
from kubesched.lab.traces.report import make_report, to_json

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def workers():
    return [
        process.pid
        for process in psutil.Process().children(recursive=True)
        if "spawn_main" in " ".join(process.cmdline())
    ]


@pytest.mark.slow
def test_a_killed_worker_does_not_change_a_byte_of_the_report():
    trace = read_trace([str(SAMPLES / "openb")])
    cells = [
        keyed(trace, Cell(name=kind, config=strategy(kind), seed=seed))
        for kind in ("LeastAllocated", "MostAllocated")
        for seed in range(6)
    ]
    killed = []

    def kill_one_worker(progress):
        if progress.done == 3 and not killed:
            killed.append(workers()[0])
            os.kill(killed[0], signal.SIGKILL)

    def report(executor, watch):
        results = run_sweep(play_cell, trace, cells, executor, ResultStore(None), watch)
        outcomes = [decode(result.data) for result in results]
        return to_json(make_report(trace, outcomes, []))

    with dask_cluster() as executor:
        on_dask = report(executor, kill_one_worker)
    assert killed, "the cluster had worker processes"
    assert on_dask == report(InProcess(), lambda _progress: None)
