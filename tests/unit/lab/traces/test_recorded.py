"""Recordings as traces: modelled under their own settings they place pods where they were placed
then.
"""

import pickle
import re
import time
from dataclasses import replace
from functools import cache, partial
from random import Random

import pytest
from recorded_core import run_recorded

from kubesched.app.recorded_simulation import playing_registry, record_simulation
from kubesched.insight.recording.reader import RecordingReader
from kubesched.insight.recording.recorded_dependencies import open_recording
from kubesched.insight.recording.segments import MemoryStorage
from kubesched.insight.recording.writer import Limits
from kubesched.lab.benchmarking import core_cluster
from kubesched.lab.benchmarking.catalogue import find
from kubesched.lab.traces import player
from kubesched.lab.traces.cells import play_cell
from kubesched.lab.traces.player import Cell, play_trace
from kubesched.lab.traces.recorded import of_reader
from kubesched.lab.traces.trace import CallReturned, Flush, Turn


@pytest.fixture(autouse=True)
def cpu_time(monkeypatch):
    """Only CPU time passes, so that a busy machine plays workloads as an idle one does."""
    monkeypatch.setattr(core_cluster, "perf_counter", time.thread_time)


@cache
def recorded(name):
    recordings = []

    def record(config, gates, clock):
        begin = partial(open_recording, None, limits=Limits(), random=Random(1), threaded=False)
        recordings.append(begin(config, gates, clock=clock))
        return recordings[-1]

    (workload,) = find([f"{name}/tiny"])
    run_recorded(workload, record)
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


@cache
def traces_of_simulation(seed):
    """A trace for every scheduler process of a simulation with faults."""
    _, runs = record_simulation(seed)
    traces = []
    for run in runs:
        storage = MemoryStorage()
        for segment in run.segments:
            with segment._open() as file:
                storage.create(segment.header.number).write(file.read())
        traces.append(of_reader(RecordingReader(storage, str(seed))))
    return traces


@pytest.mark.slow
@pytest.mark.parametrize("seed", [35, 103, 115, 30010])
def test_what_takes_time_is_modelled_with_its_recorded_duration(seed):
    """Lost answers, refused bindings, extenders and leader changes: what is not modelled is
    counted.
    """
    same, logged = 0, 0
    for trace in traces_of_simulation(seed):
        notes = play_trace(trace, own_cell(trace), playing_registry()).notes
        (told,) = re.findall(r"own: modelled; (\d+) of (\d+) placements", "\n".join(notes))
        same, logged = same + int(told[0]), logged + int(told[1])
        assert set(trace.own.usual_s) <= {"bind", "patch", "delete"}
        assert all(took_s >= 0 for took_s in trace.own.usual_s.values())
        assert int(told[1]) == len(trace.own.placements)
    assert 0 < same <= logged


def test_calls_that_were_not_recorded_take_the_usual_time():
    trace = of_reader(recorded("Basic"))
    events = [event for event in trace.events if not isinstance(event, CallReturned | Turn)]
    events.append(Flush(trace.ends_s + 60.0))
    slow = replace(trace.own, usual_s={"bind": 30.0})
    outcome = play_trace(replace(trace, events=events, own=slow), own_cell(trace))
    assert outcome.waits.p50 >= 30.0
    at_once = play_trace(
        replace(trace, events=events, own=replace(slow, usual_s={})), own_cell(trace)
    )
    assert at_once.waits.p50 == 0.0


@pytest.mark.slow
def test_a_recording_can_be_played_in_another_process():
    trace = of_reader(recorded("Churn"))
    cell = own_cell(trace)
    assert play_cell(pickle.loads(pickle.dumps(trace)), cell) == play_cell(trace, cell)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "kinds"),
    [
        pytest.param(103, "answers of extenders", id="answers"),
        pytest.param(107, "answers of extenders|bindings that failed", id="failures"),
    ],
)
def test_inputs_that_a_model_leaves_out_are_counted(seed, kinds):
    told = [trace.own.left_out for trace in traces_of_simulation(seed)]
    for kind in kinds.split("|"):
        assert any(re.search(rf"[1-9]\d* {kind}", counted) for counted in told), kind
