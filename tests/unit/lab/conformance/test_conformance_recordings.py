"""Recordings: what is read, and how unusable files are refused."""

import gzip
import json

import pytest

from kubesched.lab.conformance.comparison import Aspect, Finding
from kubesched.lab.conformance.golden import evaluate
from kubesched.lab.conformance.recordings import RecordingError, read_recordings

NODE = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "1", "pods": "10"}}}
POD = {"metadata": {"name": "p", "namespace": "default", "uid": "1"}, "spec": {}}
ANSWER = {"feasible": ["n1"], "total": {}, "scores": {}, "rejected": {}, "message": ""}


def placement(**changes):
    made = {
        "namespaces": {"default": {}},
        "nodes": [NODE],
        "pods": [],
        "pending": [{"pod": POD, "expect": ANSWER}],
    }
    return json.dumps(made | changes).encode()


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "recorded.jsonl"
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize(
    "pack", [pytest.param(bytes, id="plain"), pytest.param(gzip.compress, id="gzipped")]
)
def test_placements_are_read_line_by_line(write, pack):
    path = write(pack(placement() + b"\n\n" + placement() + b"\n"))
    results = list(read_recordings(path))
    assert [(item.file, item.line) for item in results] == [(str(path), 1), (str(path), 3)]
    assert results[0].content.pending[0].pod.metadata.name == "p"


SEQUENCE = {"namespaces": {}, "nodes": [NODE], "pods": [{"pod": POD, "expect": {"node": "n1"}}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "the file is empty", id="an empty file"),
        pytest.param(b"{oops", ":1: not a recording: JSON is malformed", id="no JSON"),
        pytest.param(b"[]\n", ":1: not a recording: Expected `object`", id="JSON of another kind"),
        pytest.param(
            placement() + b"\n" + placement(nodes=[{"metadata": {"name": 7}}]),
            ":2: not a recorded placement: Expected `str`, got `int` - at "
            "`\\$.nodes\\[0\\].metadata.name`",
            id="a node with a wrong field",
        ),
        pytest.param(
            placement(pending=[{"pod": POD}]),
            "missing required field `expect`",
            id="a pod without an answer",
        ),
        pytest.param(
            json.dumps(SEQUENCE).encode(),
            ":1: not a recorded sequence: Expected `array`",
            id="a sequence whose namespaces are no list",
        ),
        pytest.param(
            placement(gates={"Unheard": True}),
            ":1: gates: there is no feature gate Unheard",
            id="an unknown gate",
        ),
        pytest.param(
            placement(version="1.1"), ":1: version: there is no behaviour of 1.1", id="an old one"
        ),
        pytest.param(
            b'{"aims": "gang", "gates": {}, "steps": [{"op": "wait", "expect": {}}]}',
            ":1: not a recorded sequence of pod groups: Invalid enum value 'wait'",
            id="pod groups and an unknown step",
        ),
        pytest.param(
            b'{"aims": "gang", "gates": {"X": true}, "steps": []}',
            ":1: --feature-gates: unrecognized feature gate: X",
            id="pod groups and an unknown gate",
        ),
        pytest.param(
            b'{"aims": "gang", "gates": {}, "steps": '
            b'[{"op": "patch", "kind": "Node", "name": "n", "expect": {}}]}',
            ":1: Node n is patched and does not exist",
            id="pod groups and an object that does not exist",
        ),
        pytest.param(
            gzip.compress(placement())[:-9], "damaged after line", id="a truncated archive"
        ),
        pytest.param(
            placement(nodes=[{**NODE, "status": {"allocatable": {"cpu": "1 core"}}}]),
            ":1: node n1: status.allocatable\\[cpu\\]: '1 core'",
            id="an amount that cannot be read",
        ),
        pytest.param(
            placement(pods=[POD]),
            ":1: pod default/p among the bound ones names no node",
            id="a bound pod that is nowhere",
        ),
    ],
)
def test_unusable_files_are_refused_with_place_and_reason(write, content, message):
    path = write(content)
    with pytest.raises(RecordingError, match=message) as refusal:
        evaluate([path])
    assert str(refusal.value).startswith(str(path))


def test_a_placement_can_bring_its_own_configuration(write):
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"score": {"disabled": [{"name": "*"}]}}}],
    }
    path = write(placement(configuration=config))
    assert evaluate([path]).disagreements == []


def test_a_recording_can_set_gates(write):
    needs_a_feature = {**POD, "spec": {"hostNetwork": True, "hostUsers": False}}
    pending = [{"pod": needs_a_feature, "expect": ANSWER}]
    for gates, fits in (({"NodeDeclaredFeatures": False}, True), ({}, False)):
        report = evaluate([write(placement(pending=pending, gates=gates))], limit=1)
        findings = [d.finding.aspect for d in report.disagreements]
        assert (Aspect.FEASIBLE not in findings) is fits


def test_a_recording_says_which_version_answered(write):
    named = {**POD, "spec": {"nodeName": "n2"}}
    message = "node(s) didn't match the requested node name"
    said = f"0/1 nodes are available: 1 {message}."
    answer = ANSWER | {"feasible": [], "message": said}
    rejected = {"plugin": "NodeName", "code": "UnschedulableAndUnresolvable", "reasons": [message]}
    pending = [{"pod": named, "expect": answer | {"rejected": {"n1": rejected}}}]
    for version, agrees in (("1.36", True), ("1.37", False), ("", False)):
        report = evaluate([write(placement(pending=pending, version=version))])
        assert (report.disagreements == []) is agrees


def test_a_placement_can_have_storage(write):
    waits = {"metadata": {"name": "c", "namespace": "default"}, "spec": {"storageClassName": "w"}}
    late = {
        "metadata": {"name": "w"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    pending = [{"pod": {**POD, "spec": {"volumes": volumes}}, "expect": ANSWER}]
    given = placement(pending=pending, storageClasses=[late], persistentVolumeClaims=[waits])
    (finding, *_) = [d.finding for d in evaluate([write(given)]).disagreements]
    assert finding == Finding(Aspect.FEASIBLE, ["n1"], []), "there is no volume to bind"


def test_a_configuration_that_makes_no_sense_is_refused_with_its_problem(write):
    path = write(placement(configuration={"kind": "KubeSchedulerConfiguration"}))
    with pytest.raises(RecordingError, match=r":1: configuration: .*apiVersion"):
        evaluate([path])


def test_a_pod_of_an_unknown_scheduler_is_refused(write):
    stranger = {**POD, "spec": {"schedulerName": "other"}}
    path = write(placement(pending=[{"pod": stranger, "expect": ANSWER}]))
    with pytest.raises(RecordingError, match="pod default/p wants the unknown scheduler other"):
        evaluate([path])


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(RecordingError, match=r"nowhere\.jsonl: No such file"):
        evaluate([tmp_path / "nowhere.jsonl"])


def test_evaluation_stops_after_so_many_pods(write):
    path = write(placement(pending=[{"pod": POD, "expect": ANSWER}] * 3) + b"\n" + placement())
    assert evaluate([path], limit=2).pods == 2
    assert evaluate([path], limit=100).pods == 4
