"""Recordings of pod groups: a cycle is one attempt with a decision per member, and plays the
same.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from recorded_core import run_recorded

from kubesched.app.explaining import find_attempt
from kubesched.insight.recording import recorder
from kubesched.insight.recording.reader import RecordingReader, Run
from kubesched.insight.recording.recorded_dependencies import Recording, open_recording
from kubesched.insight.recording.records import Attempt, Decision, SavedScheduler
from kubesched.insight.recording.segments import RecordingError
from kubesched.insight.recording.writer import Limits
from kubesched.lab.benchmarking.workload_files import load
from kubesched.lab.traces.log_player import play
from kubesched.scheduler import scheduler
from kubesched.scheduler.groups.parts import GroupScheduler

POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: "{name}-{{{{.Index}}}}"}}
spec:
  priority: {priority}
  schedulingGroup: {{podGroupName: "{name}-{{{{DivideInt .Index 3}}}}"}}
  containers: [{{name: a, image: b, resources: {{requests: {{cpu: "1"}}}}}}]
"""
GROUP = """\
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {{name: "{name}-{{{{.Index}}}}"}}
spec:
  schedulingPolicy: {{gang: {{minCount: 3}}}}
  priority: {priority}
  disruptionMode: {{all: {{}}}}
"""
WORKLOAD = """\
- name: Gangs
  featureGates: {GenericWorkload: true}
  workloads: [{name: one}]
  workloadTemplate:
  - {opcode: createNodes, count: 4}
  - {opcode: createPodGroups, count: 5, namespace: a, templatePath: low-group.yaml}
  - {opcode: createPods, count: 15, namespace: a, podTemplatePath: low.yaml}
  - {opcode: createPods, count: 1, namespace: b, podTemplatePath: alone.yaml}
  - {opcode: createPodGroups, count: 4, namespace: a, templatePath: high-group.yaml}
  - {opcode: createPods, count: 12, namespace: a, podTemplatePath: high.yaml, collectMetrics: true}
"""
"""Four nodes of 4 CPU: five gangs of three and a pod fit, then four gangs evict others."""


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordingReader:
    monkeypatch.setattr(recorder, "BLOCK_RECORDS", 16)
    monkeypatch.setattr(scheduler, "CHECKPOINT_RETRY_S", 0.0)
    attempt = GroupScheduler.attempt

    def after_checkpoint(self: Any) -> Any:
        if self._flight.wants_checkpoint:  # core mode takes none by itself
            self._take_checkpoint(self._flight)
        return attempt(self)

    monkeypatch.setattr(GroupScheduler, "attempt", after_checkpoint)
    for name, priority in (("low", 0), ("high", 10)):
        settings = {"name": name, "priority": priority}
        (tmp_path / f"{name}.yaml").write_text(POD.format(**settings))
        alone = "".join(line for line in POD.splitlines(True) if "schedulingGroup" not in line)
        (tmp_path / "alone.yaml").write_text(alone.format(name="alone", priority=20))
        (tmp_path / f"{name}-group.yaml").write_text(GROUP.format(**settings))
    (tmp_path / "workloads.yaml").write_text(WORKLOAD)
    (workload,) = load(tmp_path / "workloads.yaml")
    made: list[Recording] = []

    def record(config: Any, gates: Any, clock: Any) -> Recording:
        limits = Limits(segment_bytes=1_000)
        made.append(
            open_recording(
                None,
                config,
                gates,
                limits=limits,
                random=Random(1),
                clock=clock,
                threaded=False,
                flush_at=16,
            )
        )
        return made[-1]

    run_recorded(workload, record)
    return RecordingReader(made[0].storage, "gangs")


def test_groups_are_decided_as_one_and_come_out_the_same(recorded: RecordingReader) -> None:
    (run,) = recorded.runs()
    entries = list(run.entries())
    played = play(run)
    assert played.difference == ""
    assert played.decisions == sum(isinstance(entry, Decision) for entry in entries) >= 27
    assert played.attempts == sum(isinstance(entry, Attempt) for entry in entries)
    members = Counter(entry.number for entry in entries if isinstance(entry, Decision))
    assert set(members.values()) == {1, 3}
    later = [Run(run.segments[at:]) for at in range(1, len(run.segments))]
    parts = [play(part) for part in later if part.is_playable]
    assert parts, "there are checkpoints while groups run"
    begins = [
        next(each for each in part.entries() if isinstance(each, SavedScheduler))
        for part in later
        if part.is_playable
    ]
    assert any(begin.state.queue.groups for begin in begins), "and while groups wait"
    assert {part.difference for part in parts} == {""}
    assert parts[0].decisions > 0


def test_every_member_has_the_attempt_of_its_group(recorded: RecordingReader) -> None:
    found = [find_attempt(recorded, f"a/high-{number}") for number in range(3)]
    assert len({attempt.number for attempt in found if attempt is not None}) == 1
    assert all(attempt is not None and attempt.node for attempt in found)
    number = found[0].number if found[0] is not None else 0
    with pytest.raises(RecordingError, match=rf"attempt {number} is about a/high-\d, not about"):
        find_attempt(recorded, "a/low-0", number=number)
