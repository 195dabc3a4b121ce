"""A recording played as a trace under its own configuration places every pod where it was placed then."""

import asyncio
import re
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from kubesched.app.recorded_simulation import record_simulation
from kubesched.benchmarking.catalogue import find
from kubesched.benchmarking.core_mode import CoreOptions, run_core
from kubesched.recording.reader import RecordingReader
from kubesched.recording.recorded_dependencies import open_recording
from kubesched.recording.storage import MemoryStorage
from kubesched.recording.writer import Limits
from kubesched.traces.player import Cell, play_trace
from kubesched.traces.recorded import of_reader


def recorded(name):
    recordings = []

    def record(config, gates, clock):
        begin = partial(open_recording, None, limits=Limits(), random=Random(1), threaded=False)
        recordings.append(begin(config, gates, clock=clock))
        return recordings[-1]

    (workload,) = find([f"{name}/tiny"])
    run_core(workload, replace(CoreOptions(repeats=1, warmup=0), record=record))
    return RecordingReader(recordings[0].storage, name)


@pytest.mark.parametrize(
    "name",
    [
        *("Basic", "PreferredAffinity", "Preemption", "PreemptionBeside", "Churn", "Gated"),
        *("RoomAfterDeletion", "BoundVolumes", "MixedTemplates", "Unschedulable", "SoftSpread"),
    ],
)
def test_own_configuration_gives_all_placements_back(name):
    trace = of_reader(recorded(name))
    logged = trace.own.placements
    placed = {}

    def bound(pod):
        placed[pod.metadata.uid] = pod.spec.node_name

    own = trace.own
    cell = Cell(name="own", config=own.config, gates=own.gates, seed=own.seed)
    outcome = asyncio.run(play_trace(trace, cell, on_bound=bound))
    # A pod that was still waiting when the recording ended may be placed afterwards.
    assert {uid: placed.get(uid) for uid in logged} == logged
    assert outcome.placed >= len(logged) > 0
    count = len(logged)
    assert outcome.notes == [f"own: {count} of {count} recorded placements were reproduced"]


@pytest.mark.parametrize(
    ("seed", "kinds"),
    [
        pytest.param(102, "answers of extenders|updates of device claims", id="answers"),
        pytest.param(103, "answers of extenders|bindings that failed", id="failures"),
    ],
)
def test_inputs_that_a_replay_leaves_out_are_counted(seed, kinds):
    _, runs = record_simulation(seed)
    notes = []
    for run in runs:
        storage = MemoryStorage()
        for segment in run.segments:
            with segment._open() as file:
                storage.create(segment.header.number).write(file.read())
        notes += of_reader(RecordingReader(storage, str(seed))).notes
    told = [note for note in notes if note.startswith("left out, so placements")]
    assert told
    assert all(note.endswith("; 'kubesched replay --verify' plays them too") for note in told)
    for kind in kinds.split("|"):
        assert any(re.search(rf"[1-9]\d* {kind}", note) for note in told), kind
