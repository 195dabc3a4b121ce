"""Replays: byte-identical when played twice, the known differences between strategies, evictions,
withdrawals.
"""

import pytest
from traces import SAMPLES, strategy, write_openb

from kubesched.config import features
from kubesched.config.load import default_config
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.lab.traces.cells import play_cell
from kubesched.lab.traces.gpu_share import GPU_MILLI, WHOLE
from kubesched.lab.traces.objects import PodMaker, node
from kubesched.lab.traces.outcome import decode
from kubesched.lab.traces.player import Cell, play_trace
from kubesched.lab.traces.reading import read_trace
from kubesched.lab.traces.report import (
    Figure,
    difference,
    interval,
    make_report,
    shown_number,
    to_json,
)
from kubesched.lab.traces.trace import Arrival, Put, Remove, Trace


def cell(config=None, **more):
    return Cell(name="default", config=config or default_config(), **more)


def trace_of(*events, nodes=1, cpu="4"):
    state = ClusterState("test")
    for number in range(nodes):
        state.put(node(f"n-{number}", {"cpu": cpu, "memory": "16Gi"}, {}))
    return Trace(name="test", format="test", digest="", state=state, events=list(events))


def pod(name, cpu="4", priority=0):
    return PodMaker().pod(name, {"cpu": cpu}, priority=priority)


def play(trace, config=None, **more):
    return play_trace(trace, cell(config, **more))


@pytest.mark.parametrize("sample", ["openb", "borg"])
def test_playing_twice_gives_the_same_bytes(sample):
    reports = []
    for _ in range(2):
        trace = read_trace([str(SAMPLES / sample)])
        outcomes = [decode(play_cell(trace, cell(seed=seed))) for seed in range(2)]
        reports.append(to_json(make_report(trace, outcomes, [])))
    assert reports[0] == reports[1]


def test_packing_uses_fewer_nodes_and_fragments_less_than_spreading(tmp_path):
    trace = read_trace(write_openb(tmp_path, seed=7, nodes=20, pods=60))
    outcomes = [
        decode(play_cell(trace, Cell(name=kind, config=strategy(kind), seed=seed)))
        for kind in ("LeastAllocated", "MostAllocated")
        for seed in range(4)
    ]
    (comparison,) = make_report(trace, outcomes, []).comparisons
    figures = comparison.figures
    assert figures["nodesUsed"].shown
    assert figures["nodesUsed"].mean < -2
    assert figures["fragmentation/cpu"].shown
    assert figures["fragmentation/cpu"].mean < -0.1
    assert not comparison.same_placements


def test_the_same_configuration_twice_shows_nothing(tmp_path):
    trace = read_trace(write_openb(tmp_path, seed=7))
    outcomes = [
        decode(play_cell(trace, Cell(name=name, config=default_config(), seed=seed)))
        for name in ("a", "b")
        for seed in range(3)
    ]
    (comparison,) = make_report(trace, outcomes, []).comparisons
    assert comparison.same_placements
    for outcome in outcomes:
        assert len(outcome.placements) == outcome.placed
        assert all(key.startswith("trace/") for key in outcome.placements)
        assert "" not in outcome.placements.values()
    assert not any(figure.shown for figure in comparison.figures.values())


@pytest.mark.parametrize(
    ("unit", "value", "signed", "shown"),
    [
        ("count", -0.04, True, "0"),
        ("share", -0.0004, True, "0.0 %"),
        ("s", -0.04, True, "0 s"),
        ("count", 0.04, True, "0"),
        ("count", 1234.5, True, "+1,234.5"),
        ("share", 0.125, False, "12.5 %"),
        ("s", 90.0, True, "+90 s"),
        ("s", -600.0, False, "-10 min"),
        ("s", 180_000.0, False, "2.1 d"),
    ],
)
def test_a_number_as_it_is_shown(unit, value, signed, shown):
    """A difference that rounds to nothing has no sign."""
    figure = Figure("f", "f", unit, lambda _outcome: value)
    assert shown_number(figure, value, signed=signed) == shown


def test_a_pod_waits_until_another_has_lived_its_life():
    trace = trace_of(
        Arrival(0.0, pod("a"), lifetime_s=100.0), Arrival(10.0, pod("b"), lifetime_s=50.0)
    )
    outcome = play(trace)
    assert outcome.placed == 2
    assert outcome.waits.longest == 90.0
    assert outcome.series.pending[0] == 0, "placed at once"
    assert outcome.nodes_used_most == 1


def test_a_pod_that_is_withdrawn_while_waiting_is_unplaced():
    trace = trace_of(
        Arrival(0.0, pod("a"), lifetime_s=100.0), Arrival(10.0, pod("b"), leaves_s=20.0)
    )
    outcome = play(trace)
    assert (outcome.placed, outcome.unplaced) == (1, 1)
    assert outcome.series.pending[-1] == 0


def test_an_evicted_pod_comes_back_and_lives_its_whole_life():
    trace = trace_of(
        Arrival(0.0, pod("low"), lifetime_s=100.0),
        Arrival(50.0, pod("high", priority=10), lifetime_s=30.0),
        Arrival(300.0, pod("last"), lifetime_s=1.0),
    )
    outcome = play(trace)
    assert (outcome.placed, outcome.evictions) == (3, 1)
    # low: 0 to 50, high: 50 to 80, low again: 80 to 180, last: 300 to 301
    assert outcome.nodes_used == pytest.approx(181 / 301, abs=1e-6)


def test_a_node_that_leaves_takes_its_pods_with_it():
    gone = node("n-1", {"cpu": "4", "memory": "16Gi"}, {})
    trace = trace_of(
        Put(1.0, gone),
        Arrival(2.0, pod("a"), lifetime_s=100.0),
        Arrival(3.0, pod("b"), lifetime_s=100.0),
        Remove(50.0, gone),
    )
    outcome = play(trace)
    assert (outcome.placed, outcome.evictions) == (2, 1)


def test_backoffs_that_must_expire_pass_in_virtual_time():
    """Without the gate that lets an idle scheduler take pods out of backoff."""
    trace = trace_of(
        Arrival(0.0, pod("a"), lifetime_s=100.0),
        Arrival(10.0, pod("b"), lifetime_s=50.0),
        Arrival(10.0, pod("c"), lifetime_s=50.0),
        Arrival(99.5, pod("d"), lifetime_s=500.0),
    )
    gates = features.parse("SchedulerPopFromBackoffQ=false")
    outcome = play_trace(trace, cell(gates=gates))
    assert outcome.placed == 4


def test_everything_at_once_and_for_ever():
    outcome = play(trace_of(Arrival(0.0, pod("a")), Arrival(0.0, pod("b"))))
    assert (outcome.placed, outcome.unplaced, outcome.nodes_used) == (1, 1, 1.0)


def test_intervals_and_verdicts():
    assert interval([3.0]).low is None
    two = interval([1.0, 3.0])
    assert (two.mean, round(two.low, 2), round(two.high, 2)) == (2.0, -10.71, 14.71)
    assert not difference([1.0]).shown, "one seed shows nothing"
    assert not difference([1.0, -1.0, 0.5]).shown
    assert difference([1.0, 1.1, 0.9]).shown
    assert not difference([0.0, 0.0]).shown


def gpu_pod(name, milli, priority=0):
    return PodMaker().pod(name, {"cpu": "1", GPU_MILLI: milli}, priority=priority)


def gpu_trace(*events, gpus=2):
    state = ClusterState("test")
    state.put(node("g", {"cpu": "64", "memory": "16Gi", GPU_MILLI: gpus * WHOLE}, {}))
    return Trace(
        name="test", format="test", digest="", state=state, events=list(events), shares_gpus=True
    )


def test_parts_of_two_devices_do_not_make_a_whole_one():
    trace = gpu_trace(
        Arrival(0.0, gpu_pod("a", 600), lifetime_s=100.0),
        Arrival(1.0, gpu_pod("b", 600), lifetime_s=200.0),
        Arrival(2.0, gpu_pod("whole", 1000), lifetime_s=10.0),
        Arrival(3.0, gpu_pod("small", 400), lifetime_s=10.0),
    )
    outcome = play(trace)
    assert outcome.placed == 4
    # 800 units are free in sum, 400 on each device: the whole one waits until `a` has gone.
    assert outcome.waits.longest == 98.0
    assert outcome.waits.p50 == 0.0


def test_preemption_frees_a_device_not_just_units():
    trace = gpu_trace(
        Arrival(0.0, gpu_pod("a", 600), lifetime_s=1000.0),
        Arrival(1.0, gpu_pod("b", 600), lifetime_s=1000.0),
        Arrival(2.0, gpu_pod("urgent", 1000, priority=10), lifetime_s=50.0),
    )
    outcome = play(trace)
    assert outcome.placed == 3
    assert outcome.evictions == 1, "one victim is enough: its device is free then"
    assert outcome.waits.longest < 5.0
