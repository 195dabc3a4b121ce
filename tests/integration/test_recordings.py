"""`kubesched replay` and `--recording`: over a recording of the playground's scheduler, in real
time.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from pathlib import Path

import pytest
from crowded_playground import record_crowd

from kubesched.api.core_v1 import Pod
from kubesched.app import demo
from kubesched.app.cli.main import main
from kubesched.app.playground import PlaygroundSettings, playground
from kubesched.insight.explain import Explainer
from kubesched.insight.recording.reader import RecordingReader
from kubesched.insight.recording.records import Attempt, Decision
from kubesched.lab.traces.log_player import play
from kubesched.scheduler.factory import Assembly


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    settings = PlaygroundSettings(
        kubeconfig=folder / "kubeconfig", nodes=3, record=str(folder / "recording")
    )

    async def record() -> None:
        async with playground(settings) as running:
            expected = demo.create(running.cluster.api)
            await demo.wait_until_running(running.cluster.api, expected, 60.0)

    asyncio.run(record())
    return folder / "recording"


def test_every_decision_of_a_playground_is_the_same_when_played(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "--verify", str(recording)]) == 0
    out = capsys.readouterr().out
    assert "all as logged" in out
    assert "run of 20" in out


RELEASES = sorted((Path(__file__).parent / "data").glob("recording-*.rec"))
"""Segments of `kubesched up --record DIR`, one of each release: preemption, a volume and a device
claim on two nodes.
"""


@pytest.mark.parametrize("segment", RELEASES, ids=lambda path: path.name)
def test_a_recording_of_an_earlier_release_is_played(
    segment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the kube-scheduler release that was stood in for then."""
    (tmp_path / "00000001.rec").write_bytes(segment.read_bytes())
    assert main(["replay", "--verify", str(tmp_path)]) == 0
    assert "all as logged" in capsys.readouterr().out
    out = tmp_path / "state.gz"
    assert main(["snapshot", "-o", str(out), "--recording", str(tmp_path)]) == 0
    assert counts(out) == (2, 7)


def counts(path: Path) -> tuple[int, int]:
    """Nodes, and pods that have one."""
    found = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    placed = [each for each in found if each["kind"] == "Pod" and each["spec"].get("nodeName")]
    return sum(each["kind"] == "Node" for each in found), len(placed)


def test_a_recording_is_a_source_of_states(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "state.gz"
    source = ["snapshot", "-o", str(out), "--recording", str(recording)]
    assert main(source) == 0
    assert counts(out) == (3, 12)
    assert main([*source, "--at", "1"]) == 0
    assert counts(out) == (3, 0)
    assert main([*source, "--at", "-1ms"]) == 0
    assert main([*source, "--at", "2001-01-01T00:00:00Z"]) == 1
    assert "does not reach back to that time" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--at", "5"], "--at needs --recording"),
        (["--recording", "x", "--from", "y"], "choose one"),
    ],
)
def test_sources_that_contradict_each_other_are_wrong_usage(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["snapshot", *words]) == 2
    assert message in capsys.readouterr().err


def test_times_that_make_no_sense_are_wrong_usage(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["snapshot", "--recording", str(recording), "--at", "soon"]) == 2
    assert '--at: cannot parse "soon"' in capsys.readouterr().err


def test_a_folder_without_recording_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "--verify", str(tmp_path)]) == 1
    assert f"{tmp_path}: no recording there" in capsys.readouterr().err


def test_a_damaged_end_is_said(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = (recording / "00000001.rec").read_bytes()
    (tmp_path / "00000001.rec").write_bytes(whole[:-7])
    assert main(["replay", "--verify", str(tmp_path)]) == 0
    assert "breaks off at byte" in capsys.readouterr().err
    assert len(RecordingReader.of_folder(str(tmp_path)).segments) == 1


def test_every_recorded_decision_is_explained_and_explaining_changes_none(recording: Path) -> None:
    """At each attempt the scheduler is asked to explain it; the chosen node is the best, and the
    play goes on as logged.
    """
    (run,) = RecordingReader.of_folder(str(recording)).runs()
    entries = list(run.entries())
    pods = {each.number: each.pod for each in entries if isinstance(each, Attempt)}
    nodes = {each.number: each.node for each in entries if isinstance(each, Decision)}
    explained: list[int] = []

    def look(number: int, assembly: Assembly) -> bool:
        namespace, _, name = pods[number].partition("/")
        framework = assembly.frameworks["default-scheduler"]
        pod = framework.handle.listers.of(Pod).get(namespace, name)
        told = Explainer(assembly).explain(pod, decided=nodes[number], fix=True)
        if nodes[number]:
            assert (told.chosen.node, told.chosen.rank) == (nodes[number], 1)
        else:
            assert told.nodes.feasible == 0
        explained.append(number)
        return False

    played = play(run, before_attempt=look)
    assert played.difference == ""
    assert explained == sorted(pods)
    assert len(explained) >= 12


def test_a_recorded_attempt_is_explained_on_the_command_line(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = RecordingReader.of_folder(str(recording)).runs()
    attempts = [each for each in run.entries() if isinstance(each, Attempt)]
    first, last = attempts[0], attempts[-1]
    words = ["explain", "pod", last.pod, "--recording", str(recording)]
    assert main([*words, "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["verdict"], told["chosen"]["rank"]) == ("Placed", 1)
    assert f"before attempt {last.number}" in told["notes"][0]
    assert main([*words, "--at", str(last.number)]) == 0
    assert capsys.readouterr().out.startswith(f"{last.pod}: placed on ")
    if first.pod != last.pod:
        assert main([*words, "--at", str(first.number)]) == 1
        about = f"attempt {first.number} is about {first.pod}, not about {last.pod}"
        assert about in capsys.readouterr().err
    assert main(["explain", "attempts", last.pod, "--recording", str(recording)]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["ATTEMPT", "TIME", "POD", "TRY", "OUTCOME", "NODE"]
    assert rows[-1].split()[0] == str(last.number)
    assert {row.split()[2] for row in rows} == {last.pod}
    assert main(["explain", "attempts", f"{last.pod}x", "--recording", str(recording)]) == 1
    assert f"no attempt of pod {last.pod}x; did you mean" in capsys.readouterr().err
    assert main(["explain", "pod", "nope", "--recording", str(recording)]) == 1
    assert 'pod "default/nope" not found in recording' in capsys.readouterr().err


@pytest.fixture(scope="module")
def rotated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A playground's recording whose first segments were deleted."""
    folder = tmp_path_factory.mktemp("rotated")
    return record_crowd(folder, 5, claims=False, until=_is_rotated, record_limit=120_000)


def _is_rotated(folder: str) -> bool:
    """Whether the beginning is gone, and a segment can be played that is neither the first nor the
    last.
    """
    (run,) = RecordingReader.of_folder(folder).runs()
    middle = run.segments[1:-1]
    return not run.is_complete and any(each.header.is_playable for each in middle)


def test_a_rotated_recording_is_played_from_the_first_segment_that_is_left(
    rotated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "--verify", str(rotated)]) == 0
    assert "all as logged" in capsys.readouterr().out
    (run,) = RecordingReader.of_folder(str(rotated)).runs()
    part = run.playable()
    assert part is not None
    assert not part.is_complete
    attempts = [each for each in part.entries() if isinstance(each, Attempt)]
    words = ["explain", "pod", attempts[0].pod, "--recording", str(rotated), "-o", "json"]
    assert main([*words, "--at", str(attempts[0].number)]) == 0
    assert f"before attempt {attempts[0].number}" in capsys.readouterr().out


def test_a_rotated_recording_is_replayed_from_its_checkpoint(
    rotated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = RecordingReader.of_folder(str(rotated)).runs()
    part = run.playable()
    assert part is not None
    assert main(["replay", str(rotated), "-o", "json"]) == 0
    out = capsys.readouterr().out
    assert f"begins with attempt {part.segments[0].header.attempts + 1}" in out
    assert_most_come_out_again(out)


def assert_most_come_out_again(report: str) -> None:
    """The note of the report counts placements. One that differs moves those after it."""
    (same, logged) = re.findall(r"own: modelled; (\d+) of (\d+) placements", report)[0]
    assert int(logged) > 5
    assert int(same) > int(logged) / 4


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_crowded_playground_is_played_decision_by_decision_and_modelled(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pods that wait are deleted, evicted and preempt others; volumes, devices, cordons; bindings
    take their time.
    """
    recording = record_crowd(tmp_path, seed)
    assert main(["replay", str(recording), "--verify"]) == 0
    assert "all as logged" in capsys.readouterr().out
    assert main(["replay", str(recording), "-o", "json"]) == 0
    out = capsys.readouterr().out
    assert_most_come_out_again(out)
    (figures,) = json.loads(out)["cells"]
    # How many of either depends on the machine; with none the playground was not crowded.
    assert figures["unplaced"] + figures["evictions"] > 0
