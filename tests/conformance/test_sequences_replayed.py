"""Recorded sequences: the production scheduler in memory decides as recorded, and a wrong recording
is noticed.

The files in `data` hold answers of kube-scheduler 1.36.4, written by `kubesched conformance run
--record FILE`: `sequences.jsonl.gz` with `--seed 7 --sequences 6` (generator 1),
`sequences-volumes.jsonl.gz` with `--seed 101` (generator 2): sequences 5, 17, 23, 31 and 39, which
bind volumes on demand and have two profiles. What comes with the program are sequences 3, 7, 10 and
11 of `--seed 301` (generator 3), with extenders, resizes and pod-level resources, and 168 of
`--seed 101` (generator 2), in which it shows whether nodes are marked; and answers of
kube-scheduler 1.37.0 to sequences 0, 1 and 3 of `--seed 3700`, with preemption and resizes.
`sequences-1.37.jsonl.gz` has 2, 4 and 5 of them and two runs without preemption. Recordings of
several versions say which one answered.
"""

import gzip
import json
from pathlib import Path

import pytest
from faster_forms import without_faster_forms

from kubesched.app.cli.main import main
from kubesched.config.features import defaults
from kubesched.framework.runtime import Framework
from kubesched.lab.conformance.comparison import Aspect
from kubesched.lab.conformance.golden import SHIPPED, evaluate
from kubesched.lab.conformance.recordings import RecordingError, read_recordings

DATA = Path(__file__).parent / "data"
RECORDED = DATA / "sequences.jsonl.gz"
WITH_VOLUMES = DATA / "sequences-volumes.jsonl.gz"
OF_1_37 = DATA / "sequences-1.37.jsonl.gz"


@pytest.mark.parametrize(
    ("file", "decisions"),
    [
        pytest.param(RECORDED, 900, id="of the first generator"),
        pytest.param(WITH_VOLUMES, 729, id="of the second generator"),
        pytest.param(OF_1_37, 505, id="of 1.37"),
        pytest.param(SHIPPED, 987, id="that come with kubesched"),
    ],
)
def test_every_recorded_sequence_is_decided_as_recorded(file, decisions):
    report = evaluate([file], defaults("1.36"))
    assert report.disagreements == []
    assert report.pods == report.pods_in_agreement == decisions


def test_sequences_are_decided_as_recorded_without_faster_forms(monkeypatch):
    """What plugins give beside the contract makes decisions faster, and nothing else."""
    stripped = []
    build = Framework.__init__

    def without(self, *arguments, **options):
        build(self, *arguments, **options)
        without_faster_forms(self)
        stripped.append(self)

    monkeypatch.setattr(Framework, "__init__", without)
    report = evaluate([OF_1_37])
    assert report.disagreements == []
    assert report.pods == report.pods_in_agreement == 505
    assert len(stripped) == report.clusters


def recorded_steps(file):
    return [
        step for read_recording in read_recordings(file) for step in read_recording.content.steps
    ]


def test_the_recorded_sequences_are_worth_replaying():
    steps = recorded_steps(RECORDED)
    decisions = [step.expect for step in steps if step.expect is not None]
    assert sum(bool(decision.victims) for decision in decisions) > 50
    assert sum(bool(decision.unschedulable) for decision in decisions) > 300
    assert {(step.action, step.kind) for step in steps} >= {
        (action, kind) for action in ("create", "patch", "delete") for kind in ("Node", "Pod")
    }


def test_the_recorded_sequences_with_volumes_are_worth_replaying():
    steps = recorded_steps(WITH_VOLUMES)
    decisions = [step.expect for step in steps if step.expect is not None]
    assert sum(len(decision.volumes) for decision in decisions) > 15
    assert sum(len(decision.victims) > 1 for decision in decisions) > 5
    told = "\n".join(decision.unschedulable for decision in decisions)
    for reason in (
        "exceed max volume count",
        "ReadWriteOncePod access mode already in-use",
        "didn't match PersistentVolume's node affinity",
        "no available volume zone",
        "did not have enough free storage",
        "didn't find available persistent volumes to bind",
        "waiting for ephemeral volume controller",
    ):
        assert reason in told
    asked = {step.object.get("spec", {}).get("schedulerName") for step in steps}
    assert {"default-scheduler", "other-scheduler"} <= asked
    objects = [item for one in read_recordings(WITH_VOLUMES) for item in one.content.objects]
    assert sum(item["kind"] == "PodDisruptionBudget" for item in objects) > 10


def test_the_sequences_that_come_with_kubesched_are_worth_replaying():
    sequences = [read_recording.content for read_recording in read_recordings(SHIPPED)]
    steps = [step for one in sequences for step in one.steps]
    asked = [item for step in steps if step.expect is not None for item in step.expect.asked]
    assert {item.split()[1] for item in asked} == {"filter", "prioritize", "preempt", "bind"}
    assert {len(one.extenders) for one in sequences} == {0, 1, 2, 3}
    resized = [step for step in steps if step.subresource == "resize"]
    taken = [step for step in resized if step.expect is None or not step.expect.refused]
    assert len(taken) > 30
    assert any("resources" in step.patch["spec"] for step in taken)
    told = "\n".join(step.expect.unschedulable for step in steps if step.expect is not None)
    assert "with extender at URL http://extender.example/" in told
    assert "does not want it" in told
    assert "will never have it" in told


def node(name, **labels):
    allocatable = {"cpu": "1", "memory": "4Gi", "pods": "10"}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }


def pod(name, cpu="600m", **spec):
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **spec},
    }


def create(document, **expect):
    step = {"action": "create", "object": document}
    return {**step, "expect": expect} if expect else step


def typed(document):
    return {"apiVersion": "v1", "kind": "Node", **document}


PRIORITY = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 1000,
}
FULL = (
    "0/1 nodes are available: 1 Insufficient cpu. preemption: "
    "0/1 nodes are available: 1 No preemption victims found for incoming pod."
)


@pytest.fixture
def recording(tmp_path):
    def write(*lines):
        path = tmp_path / "sequences.jsonl.gz"
        path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
        return path

    return write


SHORT = {
    "seed": 7,
    "namespaces": ["default"],
    "nodes": [node("n1")],
    "pods": [
        {"pod": pod("a"), "expect": {"node": "n1"}},
        {"pod": pod("b"), "expect": {"unschedulable": FULL}},
        {"pod": pod("c", cpu="400m"), "expect": {"node": "n1"}},
    ],
}


def test_pods_that_found_no_node_are_out_of_the_way_of_those_that_follow(recording):
    report = evaluate([recording(SHORT)])
    assert report.disagreements == []
    assert (report.clusters, report.pods, report.pods_in_agreement) == (1, 3, 3)


def test_steps_change_nodes_and_pods_between_decisions(recording):
    gated = pod("gated", schedulingGates=[{"name": "example.com/wait"}])
    meant = {"apiVersion": "v1", "kind": "Pod", "metadata": gated["metadata"]}
    first = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    sequence = {
        "objects": [PRIORITY],
        "steps": [
            create(typed(node("n1"))),
            create(typed(node("n2", disk="ssd"))),
            create(pod("a", nodeSelector={"disk": "ssd"}), node="n2"),
            {
                "action": "patch",
                "object": first,
                "patch": {"metadata": {"labels": {"disk": "ssd"}}},
            },
            create(pod("b", nodeSelector={"disk": "ssd"}), node="n1"),
            create(gated),
            {"action": "delete", "object": {**meant, "metadata": pod("a")["metadata"]}},
            {
                "action": "patch",
                "object": meant,
                "patch": {"spec": {"schedulingGates": []}},
                "expect": {"node": "n2"},
            },
        ],
    }
    assert evaluate([recording(sequence)]).disagreements == []


def test_preemption_is_followed_to_its_end(recording):
    sequence = {
        "objects": [PRIORITY],
        "steps": [
            create(typed(node("n1"))),
            create(typed(node("n2"))),
            create(pod("a"), node="n1"),
            create(pod("b"), node="n2"),
            create(pod("vip", priorityClassName="high"), node="n2", nominated="n2"),
        ],
    }
    report = evaluate([recording(sequence)])
    told = {
        disagreement.finding.aspect: disagreement.finding.got
        for disagreement in report.disagreements
    }
    # The youngest pod goes; the recording leaves out the message and the victim.
    assert told[Aspect.VICTIMS] == ("default/b",)
    assert set(told) == {Aspect.VICTIMS, Aspect.UNSCHEDULABLE}


def patch(document, change, subresource=""):
    meant = {name: document[name] for name in ("apiVersion", "kind", "metadata")}
    return {"action": "patch", "object": meant, "patch": change, "subresource": subresource}


def container_patch(cpu):
    return {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}


def kubelet_report(cpu, reason):
    reported = {
        "name": "c",
        "allocatedResources": {"cpu": cpu},
        "resources": {"requests": {"cpu": cpu}},
    }
    condition = {"type": "PodResizePending", "status": "True", "reason": reason}
    return {"status": {"containerStatuses": [reported], "conditions": [condition]}}


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        pytest.param([], True, id="there is room"),
        pytest.param([("resize", container_patch("800m"))], False, id="more is asked for"),
        pytest.param(
            [
                ("resize", container_patch("800m")),
                ("status", kubelet_report("600m", "Deferred")),
            ],
            False,
            id="it has to wait",
        ),
        pytest.param(
            [
                ("resize", container_patch("800m")),
                ("status", kubelet_report("600m", "Infeasible")),
            ],
            True,
            id="it will never come",
        ),
        pytest.param(
            [
                ("resize", container_patch("100m")),
                ("status", kubelet_report("900m", "Deferred")),
            ],
            False,
            id="less is asked for, but not given back yet",
        ),
    ],
)
def test_resized_pods_take_what_counts(recording, changes, fits):
    expect = {"node": "n1"} if fits else {"unschedulable": FULL}
    sequence = {
        "steps": [
            create(typed(node("n1"))),
            create(pod("a"), node="n1"),
            *(patch(pod("a"), change, subresource) for subresource, change in changes),
            create(pod("b", cpu="400m"), **expect),
        ]
    }
    assert evaluate([recording(sequence)]).disagreements == []


EXTENDED = {
    "extenders": [
        {
            "urlPrefix": "http://extender.example/x0",
            "nodeCacheCapable": True,
            "filterVerb": "filter",
            "bindVerb": "bind",
        }
    ]
}


def test_extenders_are_part_of_a_sequence(recording):
    sequence = {
        "configuration": EXTENDED,
        "extenders": [{"name": "x0", "salt": "s", "rejects": 100, "chooses_victims": True}],
        "steps": [create(typed(node("n1"))), create(pod("a"), node="n1", asked=["x0 bind n1"])],
    }
    told = {
        disagreement.finding.aspect: disagreement.finding.got
        for disagreement in evaluate([recording(sequence)]).disagreements
    }
    assert set(told) == {Aspect.NODE, Aspect.UNSCHEDULABLE, Aspect.ASKED}
    assert told[Aspect.ASKED] == ("x0 filter n1",)
    assert told[Aspect.UNSCHEDULABLE].startswith("0/1 nodes are available: 1 x0 ")


def test_an_extender_binds_in_a_replay(recording):
    sequence = {
        "configuration": EXTENDED,
        "extenders": [{"name": "x0", "salt": "s"}],
        "steps": [
            create(typed(node("n1"))),
            create(pod("a"), node="n1", asked=["x0 bind n1", "x0 filter n1"]),
        ],
    }
    assert evaluate([recording(sequence)]).disagreements == []


def storage_class(name, provisioner):
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def claim(name, storage_class_name, size="1Gi"):
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            "storageClassName": storage_class_name,
        },
    }


def volume(name, size):
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "late",
            "csi": {"driver": "csi.example", "volumeHandle": name},
        },
        "status": {"phase": "Available"},
    }


def pod_with(name, *claims):
    volumes = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": item}}
        for number, item in enumerate(claims)
    ]
    return pod(name, cpu="100m", volumes=volumes)


def test_volumes_are_bound_and_made_when_their_first_pod_is_placed(recording):
    sequence = {
        "objects": [
            storage_class("late", "kubernetes.io/no-provisioner"),
            storage_class("made", "csi.example"),
            volume("big", "9Gi"),
            volume("fitting", "2Gi"),
            volume("small", "500Mi"),
            claim("data", "late"),
            claim("logs", "made"),
        ],
        "steps": [
            create(typed(node("n1"))),
            create(
                pod_with("a", "data", "logs"),
                node="n1",
                volumes=["data=fitting", "logs=made-default-logs"],
            ),
            create(pod_with("b", "data"), node="n1"),
        ],
    }
    assert evaluate([recording(sequence)]).disagreements == []


def test_another_volume_is_noticed(recording):
    sequence = {
        "objects": [
            storage_class("late", "kubernetes.io/no-provisioner"),
            volume("small", "1Gi"),
            claim("data", "late"),
        ],
        "steps": [
            create(typed(node("n1"))),
            create(pod_with("a", "data"), node="n1", volumes=["data=big"]),
        ],
    }
    told = evaluate([recording(sequence)]).disagreements
    assert [(item.finding.aspect, item.finding.got) for item in told] == [
        (Aspect.VOLUMES, ("data=small",))
    ]


def test_pods_placed_by_others_take_room_until_they_finish(recording):
    theirs = pod("theirs", cpu="900m", nodeName="n1")
    meant = {"apiVersion": "v1", "kind": "Pod", "metadata": theirs["metadata"]}
    finished = {"status": {"phase": "Succeeded"}}
    sequence = {
        "steps": [
            create(typed(node("n1"))),
            create(theirs),
            create(pod("a"), unschedulable=FULL),
            {"action": "patch", "object": meant, "patch": finished, "subresource": "status"},
            create(pod("b"), node="n1"),
        ],
    }
    assert evaluate([recording(sequence)]).disagreements == []


def test_pods_are_placed_by_the_profile_they_ask_for(recording):
    packing = {
        "schedulerName": "packing",
        "pluginConfig": [
            {
                "name": "NodeResourcesFit",
                "args": {
                    "scoringStrategy": {
                        "type": "MostAllocated",
                        "resources": [{"name": "cpu", "weight": 1}],
                    }
                },
            }
        ],
        "plugins": {"score": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]}},
    }
    sequence = {
        "configuration": {"profiles": [{"schedulerName": "default-scheduler"}, packing]},
        "steps": [
            create(typed(node("n1"))),
            create(typed(node("n2"))),
            create(pod("a", cpu="300m", nodeName="n1")),
            create(pod("b", cpu="300m", schedulerName="packing"), node="n1"),
            create(pod("c", cpu="300m"), node="n2"),
        ],
    }
    assert evaluate([recording(sequence)]).disagreements == []


@pytest.mark.parametrize(
    ("at", "expect", "aspect"),
    [
        pytest.param(0, {"node": "n2"}, Aspect.NODE, id="another node"),
        pytest.param(1, {"unschedulable": "no"}, Aspect.UNSCHEDULABLE, id="another message"),
    ],
)
def test_a_wrong_answer_is_noticed_and_told(recording, capsys, at, expect, aspect):
    pods = [dict(item) for item in SHORT["pods"]]
    pods[at]["expect"] = expect
    path = recording({**SHORT, "pods": pods})
    assert [disagreement.finding.aspect for disagreement in evaluate([path]).disagreements] == [
        aspect
    ]
    assert main(["conformance", "golden", str(path)]) == 1
    shown = capsys.readouterr().out
    assert f"{path}:1: pod default/{'ab'[at]}: {aspect.value}" in shown
    assert f"expected  {next(iter(expect.values()))}" in shown


def test_a_limit_ends_within_a_sequence(recording):
    assert evaluate([recording(SHORT, SHORT)], limit=4).pods == 4


def test_unknown_kinds_are_refused(recording):
    steps = [create(pod("a"), node="n1")]
    strange = {"apiVersion": "v9", "kind": "Thing", "metadata": {"name": "x"}}
    with pytest.raises(RecordingError, match="unknown kind v9 Thing"):
        evaluate([recording({"objects": [strange], "steps": steps})])
