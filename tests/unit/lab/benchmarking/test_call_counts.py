"""Counting: the same twice, blind to what is not ours, and budgets that only bound from above."""

import sys
import time

import call_counts
import pytest
from call_counts import Counts, count, excesses

from kubesched.lab.benchmarking import core_cluster
from kubesched.lab.benchmarking.catalogue import find


def counts(calls=100.0, opcodes=1000.0, peak_bytes=5000.0, **functions):
    return Counts(calls=calls, opcodes=opcodes, peak_bytes=peak_bytes, functions=functions)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [True, False], ids=["with classes", "without classes"])
def test_counting_twice_gives_the_same_and_leaves_nothing_hooked_in(classes, monkeypatch):
    # Only CPU time passes: on a busy machine, more timers would come due per pod.
    monkeypatch.setattr(core_cluster, "perf_counter", time.thread_time)
    trace = sys.gettrace(), sys.getprofile()
    (workload,) = find(["Basic/tiny"], params={"measurePods": 30})
    first, second = (count(workload, classes=classes) for _ in range(2))
    assert (sys.gettrace(), sys.getprofile()) == trace
    assert second.calls == pytest.approx(first.calls, rel=0.01)
    assert second.opcodes == pytest.approx(first.opcodes, rel=0.01)
    assert second.peak_bytes == pytest.approx(first.peak_bytes, abs=call_counts.SLACK_BYTES)
    assert first.opcodes > first.calls > 10
    assert any(name.startswith("scheduler.") for name in first.functions)
    assert not any(name.startswith(("lab.", "insight.")) for name in first.functions)


@pytest.mark.parametrize(
    ("measured", "what"),
    [
        pytest.param(counts(calls=106.0), ["calls"], id="more calls"),
        pytest.param(counts(opcodes=1051.0), ["opcodes"], id="more instructions"),
        pytest.param(counts(peak_bytes=6000.0), ["peak_bytes"], id="more memory"),
        pytest.param(counts(calls=200.0, opcodes=2000.0), ["calls", "opcodes"], id="more of both"),
        pytest.param(counts(calls=104.0, opcodes=1049.0, peak_bytes=5300.0), [], id="tolerated"),
        pytest.param(counts(calls=10.0, opcodes=10.0, peak_bytes=0.0), [], id="much less"),
    ],
)
def test_only_what_is_clearly_above_its_budget_counts(measured, what):
    assert [excess.what for excess in excesses({"Basic": counts()}, {"Basic": measured})] == what


def test_an_excess_says_which_functions_grew_most():
    before = counts(**{"queue:pop": 100.0, "cache:assume": 50.0, "cycle:run": 20.0})
    after = counts(
        opcodes=1300.0, **{"queue:pop": 90.0, "cache:assume": 150.0, "cycle:run": 30.0, "new:f": 60}
    )
    (excess,) = excesses({"Basic": before}, {"Basic": after})
    assert [name for name, *_ in excess.grown] == ["cache:assume", "new:f", "cycle:run"]
    assert str(excess).splitlines() == [
        "Basic: opcodes per pod 1,300.0, budget 1,000.0 (+30.0%)",
        "    cache:assume: 50.0 -> 150.0 opcodes",
        "    new:f: 0.0 -> 60.0 opcodes",
        "    cycle:run: 20.0 -> 30.0 opcodes",
    ]


def test_a_workload_without_budget_exceeds_none():
    assert excesses({}, {"Basic": counts()}) == []
