"""Recordings as traces: as they were they place every pod where it was placed then; under other settings they are modelled."""

import pickle
import re
import time
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from kubesched.app.recorded_simulation import playing_registry, record_simulation
from kubesched.config.load import default_config
from kubesched.insight.recording.reader import RecordingReader, Run
from kubesched.insight.recording.recorded_dependencies import open_recording
from kubesched.insight.recording.records import Decision
from kubesched.insight.recording.storage import MemoryStorage
from kubesched.insight.recording.writer import Limits
from kubesched.lab.benchmarking import core_cluster
from kubesched.lab.benchmarking.catalogue import find
from kubesched.lab.benchmarking.core_mode import CoreOptions, run_core
from kubesched.lab.traces import player
from kubesched.lab.traces.cells import keyed, with_recorded
from kubesched.lab.traces.outcome import decode
from kubesched.lab.traces.play import play_cell, play_outcome
from kubesched.lab.traces.player import Cell, play_trace
from kubesched.lab.traces.recorded import of_reader
from kubesched.lab.traces.report import make_report


@pytest.fixture(autouse=True)
def cpu_time(monkeypatch):
    """Only CPU time passes, so that a busy machine plays workloads as an idle one does."""
    monkeypatch.setattr(core_cluster, "perf_counter", time.thread_time)


def recorded(name):
    recordings = []

    def record(config, gates, clock):
        begin = partial(open_recording, None, limits=Limits(), random=Random(1), threaded=False)
        recordings.append(begin(config, gates, clock=clock))
        return recordings[-1]

    (workload,) = find([f"{name}/tiny"])
    run_core(workload, replace(CoreOptions(repeats=1, warmup=0), record=record))
    return RecordingReader(recordings[0].storage, name)


WORKLOADS = pytest.mark.parametrize(
    "name",
    [
        *("Basic", "PreferredAffinity", "Preemption", "PreemptionBeside", "Churn", "Gated"),
        *("RoomAfterDeletion", "BoundVolumes", "MixedTemplates", "Unschedulable", "SoftSpread"),
    ],
)


def own_cell(trace, **more):
    own = trace.own
    return Cell(name="own", config=own.config, gates=own.gates, seed=own.seed, **more)


@pytest.mark.slow
@WORKLOADS
def test_a_model_gives_placements_back_where_bindings_take_no_time(name):
    trace = of_reader(recorded(name))
    logged = trace.own.placements
    placed = {}

    def bound(pod):
        placed[pod.metadata.uid] = pod.spec.node_name

    outcome = play_trace(trace, own_cell(trace), on_bound=bound)
    # A pod that was still waiting when the recording ended may be placed afterwards.
    assert {uid: placed.get(uid) for uid in logged} == logged
    assert outcome.placed >= len(logged) > 0
    count = len(logged)
    same = f"own: modelled; {count} of {count} placements are those of the recording"
    assert outcome.notes == [same]


@pytest.mark.slow
@WORKLOADS
def test_a_recording_as_it_was_has_the_figures_of_a_model_in_which_nothing_takes_time(name):
    trace = of_reader(recorded(name))
    count = len(trace.own.placements)
    played = play_outcome(trace, own_cell(trace, as_recorded=True))
    assert played.notes == [f"own: {count} of {count} recorded placements were reproduced"]
    modelled = play_trace(trace, own_cell(trace))
    assert (played.submitted, played.evictions) == (modelled.submitted, modelled.evictions)
    assert count <= played.placed <= modelled.placed
    assert len(played.series.at_s) == len(modelled.series.at_s)


def test_a_model_says_why_pods_are_elsewhere():
    """Of a log that has been changed: what the model does is right, and the log's nodes are not."""
    trace = of_reader(recorded("Basic"))
    nodes = sorted(set(trace.own.placements.values()))
    uids = list(trace.own.placements)
    other = {uid: nodes[(nodes.index(trace.own.placements[uid]) + 1) % len(nodes)] for uid in uids}
    changed = {**other, uids[0]: "gone"}
    trace = replace(trace, own=replace(trace.own, placements=changed))
    notes = play_trace(trace, own_cell(trace)).notes
    assert notes[0] == f"own: modelled; 0 of {len(uids)} placements are those of the recording"
    assert len(notes) == 2 + player.MOST_TOLD
    assert notes[1].endswith(", not to gone: gone is not there")
    reasons = ("lacks ", "both score the same, and the lot fell differently", "scores ")
    for note in notes[2:-1]:
        assert any(reason in note for reason in reasons), note
    assert f"own: {len(uids) - player.MOST_TOLD} more pods are elsewhere" in notes[-1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [35, 102])
def test_asking_why_changes_nothing(seed, monkeypatch):
    for trace in traces_of_simulation(seed):
        told = play_trace(trace, own_cell(trace), playing_registry())
        monkeypatch.setattr(player, "MOST_TOLD", 0)
        untold = play_trace(trace, own_cell(trace), playing_registry())
        monkeypatch.undo()
        assert told.placements == untold.placements
        assert told.series == untold.series


def traces_of_simulation(seed):
    """A trace for every scheduler process of a simulation with faults."""
    _, runs = record_simulation(seed)
    for run in runs:
        storage = MemoryStorage()
        for segment in run.segments:
            with segment._open() as file:
                storage.create(segment.header.number).write(file.read())
        yield of_reader(RecordingReader(storage, str(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [35, 102, 103, 115, 30010, 30043])
def test_failed_calls_extenders_and_claims_are_played_as_they_were(seed):
    """Lost answers, refused bindings, extenders, devices, leader changes: every placement comes out again."""
    counts = []
    for trace in traces_of_simulation(seed):
        logged = trace.own.placements
        outcome = play_outcome(trace, own_cell(trace, as_recorded=True), playing_registry())
        same = f"own: {len(logged)} of {len(logged)} recorded placements were reproduced"
        assert outcome.notes == [same]
        counts.append(len(logged))
    assert sum(counts) > 0


def test_a_recording_that_is_not_played_to_its_end_is_modelled():
    trace = of_reader(recorded("Basic"))
    run = trace.own.run

    class Tampered(Run):
        def entries(self):
            for entry in run.entries():
                if isinstance(entry, Decision) and entry.number == 5:
                    entry.node = "elsewhere"
                yield entry

    own = replace(trace.own, run=Tampered(run.segments))
    outcome = play_outcome(replace(trace, own=own), own_cell(trace, as_recorded=True))
    count = len(own.placements)
    assert outcome.notes[0].startswith(f"own: modelled; {count} of {count} placements")
    assert "cannot be played to its end: attempt 5" in outcome.notes[1]
    assert "logged node elsewhere; played node " in outcome.notes[1]


@pytest.mark.slow
def test_a_recording_stands_beside_the_models_it_is_compared_with():
    trace = of_reader(recorded("Basic"))
    own = own_cell(trace)
    (alone,) = with_recorded(trace, [own])
    assert (alone.name, alone.as_recorded) == ("own", True)
    other = replace(own, name="other", config=default_config())
    assert with_recorded(trace, [replace(own, seed=own.seed + 1)])[0].as_recorded is False
    further = replace(own, seed=own.seed + 1)
    beside = with_recorded(trace, [own, further])
    assert [(cell.name, cell.as_recorded) for cell in beside] == [
        ("recorded", True),
        ("own", False),
        ("own", False),
    ]
    assert len({keyed(trace, cell).key for cell in (alone, *beside)}) == 4
    outcomes = [decode(play_cell(trace, cell)) for cell in with_recorded(trace, [own, other])]
    report = make_report(trace, outcomes, [])
    assert [each.name for each in report.configurations] == ["recorded", "own", "other"]
    assert [(each.first, each.other) for each in report.comparisons] == [("own", "other")]


@pytest.mark.slow
def test_a_recording_can_be_played_in_another_process():
    trace = of_reader(recorded("Churn"))
    cell = own_cell(trace, as_recorded=True)
    assert play_cell(pickle.loads(pickle.dumps(trace)), cell) == play_cell(trace, cell)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "kinds"),
    [
        pytest.param(103, "answers of extenders", id="answers"),
        pytest.param(102, "answers of extenders|bindings that failed", id="failures"),
    ],
)
def test_inputs_that_a_model_leaves_out_are_counted(seed, kinds):
    told = [trace.own.left_out for trace in traces_of_simulation(seed)]
    for kind in kinds.split("|"):
        assert any(re.search(rf"[1-9]\d* {kind}", counted) for counted in told), kind
