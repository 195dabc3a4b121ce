"""Recorded sequences of pod groups: the scheduler in memory does what was recorded.

`data/groups-1.37.jsonl.gz` holds 22 sequences of kube-scheduler 1.37, of every kind: gangs,
topology, trees, preemption.
"""

import gzip
import json
from pathlib import Path

import pytest

from kubesched.app.cli.main import main
from kubesched.lab.conformance.comparison import Aspect
from kubesched.lab.conformance.golden import evaluate

RECORDED = Path(__file__).parent / "data" / "groups-1.37.jsonl.gz"


def recorded():
    with gzip.open(RECORDED) as file:
        return [json.loads(line) for line in file]


def test_every_step_is_as_recorded():
    report = evaluate([RECORDED])
    assert report.disagreements == []
    assert report.group_sequences == report.group_sequences_in_agreement == 22
    assert report.steps == report.steps_in_agreement == 304


def test_the_sequences_are_worth_playing():
    steps = [step["expect"] for one in recorded() for step in one["steps"]]
    assert {gate for one in recorded() for gate in one["gates"]} == {
        "GenericWorkload",
        "TopologyAwareWorkloadScheduling",
        "CompositePodGroup",
        "PodGroupPreemptionPolicy",
    }
    assert sum(len(step.get("evicted", ())) for step in steps) > 20
    assert sum("nominated" in pod for step in steps for pod in step["pods"].values()) > 10
    told = {group["reason"] for step in steps for group in step.get("podGroups", {}).values()}
    assert told == {"Scheduled", "Unschedulable", "SchedulerError"}


def falsified(part, change):
    """The first sequence whose steps have that part, with the last such step changed."""
    for one in recorded():
        for step in reversed(one["steps"]):
            if step["expect"].get(part):
                step["expect"][part] = change(step["expect"][part])
                return one
    raise AssertionError(part)


@pytest.mark.parametrize(
    ("part", "change", "aspect"),
    [
        ("pods", lambda pods: {name: {"node": "other"} for name in pods}, Aspect.PODS),
        ("podGroups", lambda _groups: {}, Aspect.POD_GROUPS),
        ("evicted", lambda evicted: [*evicted, "other"], Aspect.EVICTIONS),
    ],
)
def test_a_wrong_recording_is_noticed(tmp_path, capsys, part, change, aspect):
    file = tmp_path / "wrong.jsonl"
    file.write_text(json.dumps(falsified(part, change)))
    assert main(["conformance", "golden", str(file)]) == 1
    printed = capsys.readouterr().out
    assert "0 of 1 sequences of pod groups agree" in printed
    assert "wrong.jsonl:1: step" in printed
    assert aspect.value in printed
    report = evaluate([file])
    assert {one.finding.aspect for one in report.disagreements} == {aspect}
    assert report.steps_in_agreement == report.steps - 1


@pytest.mark.parametrize("status", ["True", "False"])
def test_only_the_message_of_a_scheduled_group_may_be_an_older_one(tmp_path, status):
    for one in recorded():
        groups = [g for step in one["steps"] for g in step["expect"].get("podGroups", {}).values()]
        if any(group["status"] == status for group in groups):
            break
    for group in groups:
        if group["status"] == status:
            group["message"] = "older"
    file = tmp_path / "older.jsonl"
    file.write_text(json.dumps(one))
    report = evaluate([file])
    assert report.group_sequences_in_agreement == (status == "True")


def test_a_limit_counts_steps():
    report = evaluate([RECORDED], limit=30)
    assert report.steps == 30
    assert report.group_sequences < 22
