"""`kubesched bench run --record`: every decision of a workload comes out the same when its
recording is played.
"""

from dataclasses import replace
from functools import partial
from random import Random

import pytest

from kubesched.app.cli.main import main
from kubesched.insight.recording.reader import RecordingReader
from kubesched.insight.recording.recorded_dependencies import open_recording
from kubesched.insight.recording.recorder import Recorder
from kubesched.insight.recording.records import Decision
from kubesched.insight.recording.writer import Limits
from kubesched.lab.benchmarking.catalogue import find
from kubesched.lab.benchmarking.core_mode import CoreOptions, run_core
from kubesched.lab.traces.log_player import play

QUICK = ("--repeats", "1", "--warmup", "0")


def run(capsys, *words):
    code = main(["bench", "run", *map(str, words)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.slow
@pytest.mark.parametrize("classes", [True, False], ids=["with classes", "without classes"])
@pytest.mark.parametrize(
    "name",
    ["Basic", "PreferredAffinity", "Preemption", "Churn", "RoomAfterDeletion", "BoundVolumes"],
)
def test_every_decision_of_a_workload_comes_out_the_same(name, classes):
    recordings = []

    def record(config, gates, clock):
        begin = partial(open_recording, None, limits=Limits(), random=Random(1), threaded=False)
        recordings.append(begin(config, gates, clock=clock, classes=classes))
        return recordings[-1]

    (workload,) = find([f"{name}/tiny"])
    options = CoreOptions(repeats=1, warmup=0, classes=classes)
    (result, *_) = run_core(workload, replace(options, record=record))
    (recording,) = recordings
    (logged,) = RecordingReader(recording.storage, name).runs()
    played = play(logged)
    assert played.difference == ""
    decisions = sum(isinstance(entry, Decision) for entry in logged.entries())
    assert played.decisions == decisions >= result.pods > 0


@pytest.mark.slow
def test_recordings_are_kept_by_workload_and_played(capsys, tmp_path):
    words = ("Basic/tiny", "Gated/tiny", *QUICK, "--record", tmp_path)
    code, out, err = run(capsys, *words)
    assert code == 0
    assert "Basic/tiny" in out
    *_, last = err.splitlines()
    assert last.endswith(" decisions of 2 recorded workloads came out the same when played")
    assert len(RecordingReader.of_folder(str(tmp_path / "Gated" / "tiny")).runs()) == 1
    code, _, err = run(capsys, *words)
    assert code == 1
    assert f"{tmp_path / 'Basic' / 'tiny'} is not empty" in err


def test_a_decision_that_comes_out_differently_fails_the_workload(capsys, tmp_path, monkeypatch):
    decided = Recorder.decided
    monkeypatch.setattr(
        Recorder,
        "decided",
        lambda self, info, node, status: decided(self, info, "elsewhere", status),
    )
    code, _, err = run(capsys, "Basic/tiny", *QUICK, "--record", tmp_path)
    assert code == 1
    assert "played differently: attempt 1 at " in err
    assert "logged node elsewhere; played node " in err
    assert err.endswith("0 decisions of 0 recorded workloads came out the same when played\n")


def test_end_to_end_runs_are_not_recorded_here(capsys, tmp_path):
    code, _, err = run(capsys, "Basic/tiny", "--mode", "end-to-end", "--record", tmp_path)
    assert code == 1
    assert "--record needs core mode" in err
