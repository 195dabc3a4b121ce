"""The performance gate: what one pod costs in calls, instructions and memory stays within its
budget.

Machine and load do not matter to these counts. When this fails, the message names the functions
that grew; if the growth is worth it, `KUBESCHED_RECORD=1 scripts/test
tests/perf/test_perf_budgets.py` writes new budgets for this Python, to be committed with the
change.
"""

import os
import time
from pathlib import Path

import msgspec
import pytest
from call_counts import Budgets, count_named, excesses, names
from call_counts import python_version as this_python

from kubesched.lab.benchmarking import core_cluster

FILE = Path(__file__).parent / "budgets.json"
BUDGETS = msgspec.json.decode(FILE.read_bytes(), type=Budgets)
RECORD = "KUBESCHED_RECORD"


@pytest.mark.parametrize("name", names())
def test_a_pod_costs_no_more_than_its_budget(name, monkeypatch):
    # Only CPU time passes: on a busy machine, more timers would come due per pod.
    monkeypatch.setattr(core_cluster, "perf_counter", time.thread_time)
    results = {name: count_named(name)}
    if os.environ.get(RECORD):
        BUDGETS.by_python.setdefault(this_python(), {}).update(results)
        FILE.write_bytes(msgspec.json.format(msgspec.json.encode(BUDGETS), indent=1) + b"\n")
        return
    # Instructions differ between versions of Python; one without budgets of its own is only
    # counted.
    over = excesses(BUDGETS.by_python.get(this_python(), {}), results)
    assert not over, "\n".join(["", *map(str, over), f"to accept this: {RECORD}=1"])


def test_budgets_cover_every_workload_of_the_gate():
    assert set(BUDGETS.by_python) == {"3.11", "3.12", "3.13"}
    for version, budgets in BUDGETS.by_python.items():
        assert set(budgets) == set(names()), version
        assert all(budget.calls > 0 and budget.opcodes > 0 for budget in budgets.values())
