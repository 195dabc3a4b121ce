"""Recorded and generated placements: the production code decides as recorded, and as the scalar
twins do.

All recordings under `data` are of generated clusters:

    placements   default configuration; the answers are the twins' and equal kube-scheduler 1.36.4's
    configured   other plugin arguments and weights, Services and owners of pods
    unreadable   selectors that cannot be read, down to the wording of errors
    devices      resource claims, classes and slices; devices, writes and reasons
    devices-1.37 the same of 1.37; most of them differ from 1.36, or have taint rules
    placements-1.37, volumes-1.37   default configuration, with resized pods and storage

The answers are kube-scheduler 1.36.4's, or 1.37.0's where the name ends in -1.37.
"""

import gzip
import json
from functools import cache
from pathlib import Path
from random import Random

import generated_placements
import msgspec
import pytest
from faster_forms import without_faster_forms
from record_placements import answered

from kubesched.config.features import defaults
from kubesched.lab.conformance.comparison import Aspect, compare
from kubesched.lab.conformance.golden import evaluate
from kubesched.lab.conformance.placements import Cluster
from kubesched.lab.conformance.recordings import Placement, read_recordings

DATA = Path(__file__).parent / "data"
RECORDED = DATA / "placements.jsonl.gz"
RECORDED_FROM = defaults("1.36")
OF_DEVICES = {
    Aspect.PRE_ENQUEUE,
    Aspect.DEVICES,
    Aspect.MAPPINGS,
    Aspect.POST_FILTER,
    Aspect.PRE_BIND,
    Aspect.WRITES,
}
OF_SELECTORS = {Aspect.COMPILATION, Aspect.SELECTION}
OF_SEQUENCES = {
    Aspect.NODE,
    Aspect.UNSCHEDULABLE,
    Aspect.NOMINATED,
    Aspect.VICTIMS,
    Aspect.VOLUMES,
    Aspect.ASKED,
    Aspect.PODS,
    Aspect.POD_GROUPS,
    Aspect.EVICTIONS,
}


OF_BOTH = ["placements", "configured", "unreadable", "placements-1.37", "volumes-1.37"]


@cache
def report_of(name):
    return evaluate([DATA / f"{name}.jsonl.gz"], RECORDED_FROM)


@pytest.mark.parametrize("name", [*OF_BOTH, "devices"])
def test_every_recorded_placement_is_decided_as_recorded(name):
    report = report_of(name)
    assert report.disagreements == []
    assert report.pods == report.pods_in_agreement > 100


def test_devices_are_allocated_as_1_37_does_it():
    report = evaluate([DATA / "devices-1.37.jsonl.gz"], defaults("1.37"))
    assert report.disagreements == []
    assert report.pods == report.pods_in_agreement > 150


@pytest.mark.parametrize("name", OF_BOTH)
def test_every_recorded_pod_is_explained_as_recorded(name):
    report = evaluate([DATA / f"{name}.jsonl.gz"], RECORDED_FROM, explained=True)
    assert report.disagreements == []
    assert report.pods == report.pods_in_agreement > 100


def test_placements_are_decided_as_recorded_without_faster_forms():
    for recorded in read_recordings(DATA / "placements-1.37.jsonl.gz"):
        cluster = Cluster(recorded.content, defaults(recorded.version))
        for pending in recorded.content.pending:
            without_faster_forms(cluster.framework_for(pending.pod))
            found = compare(pending.expect, cluster.place(pending.pod))
            assert [finding for finding in found if not finding.agrees] == []


def test_the_recordings_exercise_every_aspect():
    report = report_of("placements")
    compared = {a for a, tally in report.agreement.by_aspect.items() if tally.compared > 300}
    assert compared == set(Aspect) - OF_SEQUENCES - OF_DEVICES - OF_SELECTORS


def test_the_recordings_of_devices_exercise_every_aspect_of_them():
    report = report_of("devices")
    compared = {a for a, tally in report.agreement.by_aspect.items() if tally.compared > 20}
    assert compared == set(Aspect) - OF_SEQUENCES - OF_SELECTORS


def test_a_device_that_is_gone_is_noticed(tmp_path):
    """The comparison of devices can fail: without its last slice a cluster gives other ones."""
    with gzip.open(DATA / "devices.jsonl.gz", "rt") as lines:
        clusters = [json.loads(line) for line in lines]
    for cluster in clusters:
        del cluster["resourceSlices"][-1:]
    changed = tmp_path / "changed.jsonl"
    changed.write_text("".join(json.dumps(cluster) + "\n" for cluster in clusters))
    report = evaluate([changed], RECORDED_FROM)
    assert 0 < report.pods_in_agreement < report.pods


def test_some_recorded_attempts_end_in_errors():
    recorded = read_recordings(DATA / "unreadable.jsonl.gz")
    errors = [p.expect.error for item in recorded for p in item.content.pending]
    assert sum(1 for error in errors if error) > 10


def test_the_recordings_are_what_the_twins_say():
    with gzip.open(RECORDED, "rt") as lines:
        for line in lines:
            assert answered(json.loads(line)) == json.loads(line)


@pytest.mark.parametrize("malformed", [False, True], ids=["as an API server admits", "malformed"])
@pytest.mark.parametrize("version", ["1.37", "1.36"])
@pytest.mark.parametrize("seed", range(6))
def test_generated_placements_are_decided_as_the_twins_decide(seed, version, malformed):
    gates, random = defaults(version), Random(f"twins {seed} {version}")
    made = answered(generated_placements.placement(random, malformed=malformed), gates)
    placement = msgspec.json.decode(json.dumps(made), type=Placement)
    cluster = Cluster(placement, gates)
    for pending in placement.pending:
        result = [f for f in compare(pending.expect, cluster.place(pending.pod)) if not f.agrees]
        assert result == []
