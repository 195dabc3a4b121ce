"""Snapshots: what is left out, and that decisions survive it."""

from __future__ import annotations

import gzip
import json
import os
import stat
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubesched.api import codec
from kubesched.api.apps_v1 import ReplicaSet
from kubesched.api.core_v1 import Node, Pod
from kubesched.api.storage_v1 import StorageClass
from kubesched.app.cli.main import main
from kubesched.client.informers.sharing import Sharing
from kubesched.insight.state.archive import redact, redacted_state
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.dumps import load_dumps
from kubesched.insight.state.memory import in_memory_scheduler
from kubesched.scheduler.scheduler import QUEUE_EMPTY
from kubesched.scheduler.scheduling_cycle import Assumed
from kubesched.testing import make_node, make_pod

ZONE = "topology.kubernetes.io/zone"
SECRET = "s3cret"


def secretive_pod() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "a",
            "namespace": "default",
            "uid": "u",
            "annotations": {"note": SECRET, "pv.kubernetes.io/bind-completed": "yes"},
            "managedFields": [{"manager": SECRET}],
            "finalizers": [SECRET],
        },
        "spec": {
            "serviceAccountName": SECRET,
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "command": [SECRET],
                    "env": [{"name": "X", "value": SECRET}],
                }
            ],
            "volumes": [
                {"name": "v", "secret": {"secretName": SECRET}},
                {"name": "w", "configMap": {"name": SECRET}},
                {
                    "name": "x",
                    "csi": {
                        "driver": "d",
                        "volumeAttributes": {"password": SECRET},
                        "nodePublishSecretRef": {"name": SECRET},
                    },
                },
                {"name": "y", "rbd": {"image": "i", "keyring": SECRET, "user": SECRET}},
            ],
        },
        "status": {"podIP": SECRET, "conditions": [{"type": "Ready", "message": SECRET}]},
    }


def test_what_scheduling_does_not_read_is_left_out() -> None:
    pod = codec.convert(secretive_pod(), Pod)
    template = {"spec": {"containers": [{"env": [{"value": SECRET}]}]}}
    replica_set = codec.convert(
        {"metadata": {"name": "r"}, "spec": {"template": template}}, ReplicaSet
    )
    storage_class = codec.convert(
        {"metadata": {"name": "s"}, "parameters": {"key": SECRET}}, StorageClass
    )
    for obj in (pod, replica_set, storage_class):
        assert SECRET.encode() not in codec.encode(redact(obj))
    kept = redact(pod)
    assert kept.metadata.annotations == {"pv.kubernetes.io/bind-completed": "yes"}
    assert [volume.name for volume in kept.spec.volumes] == ["v", "w", "x", "y"]
    assert kept.spec.volumes[2].csi.driver == "d"
    assert kept.status.conditions[0].type == "Ready"


def random_state(random: Random) -> ClusterState:
    """Nodes, placed and pending pods with rules about labels, taints, names, zones and images."""
    state = ClusterState("test")
    zones = ("za", "zb", "zc")
    for index in range(8):
        node = make_node(f"node-{index}").capacity(cpu="4", memory="8Gi", pods="20")
        node.zone(random.choice(zones)).label("kubernetes.io/hostname", f"node-{index}")
        node.label("disk", random.choice(("ssd", "hdd"))).label("rank", str(index))
        node.image(f"repo/app-{index % 3}:1", size_bytes=500_000_000)
        if random.random() < 0.3:
            node.taint("dedicated", random.choice(("x", "y")))
        state.put(node.build())
    for index in range(24):
        pod = make_pod(f"pod-{index:02}", random.choice(("default", "other")))
        pod.cpu(random.choice(("500m", "1", "2"))).label("app", random.choice(("web", "db")))
        pod.spec(preemptionPolicy="Never").priority(random.choice((0, 0, 10))).image(
            f"repo/app-{index % 3}:1"
        )
        match random.randrange(6):
            case 0:
                pod.node_selector(disk=random.choice(("ssd", "hdd")))
            case 1:
                pod.pod_anti_affinity("kubernetes.io/hostname", app="web")
            case 2:
                pod.pod_affinity(ZONE, app="db")
            case 3:
                pod.spread(1, ZONE, selector={"matchLabels": {"app": "web"}})
            case 4:
                pod.tolerates("dedicated", value="x")
            case _:
                pod.host_port(8080)
        if index < 10:
            pod.on(f"node-{random.randrange(8)}")
        state.put(pod.build())
    return state


def decisions(state: ClusterState) -> list[tuple[str, str]]:
    """What the scheduler decides about every pending pod, one after the other."""
    scheduler = in_memory_scheduler(state, random=Random(7)).assembly.scheduler
    decided: list[tuple[str, str]] = []
    while (outcome := scheduler.attempt()) is not QUEUE_EMPTY:
        if isinstance(outcome, Assumed):
            decided.append((outcome.pod.pod.metadata.name, outcome.node_name))
    return decided


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_decisions_over_a_snapshot_are_those_of_the_cluster(seed: int) -> None:
    state = random_state(Random(seed))
    plain = decisions(state)
    assert decisions(redacted_state(state)) == plain


@given(st.integers(0, 2**32))
def test_shared_pods_equal_the_original(seed: int) -> None:
    sharing = Sharing()
    for pod in random_state(Random(seed)).of(Pod):
        shared = codec.decode(codec.encode(pod), Pod)
        sharing.share(shared)
        assert shared == pod


def test_equal_parts_are_shared() -> None:
    sharing = Sharing()
    first, second = (
        codec.decode(codec.encode(make_pod(name).cpu("1").label("a", "b").build()), Pod)
        for name in ("p", "q")
    )
    sharing.share(first)
    sharing.share(second)
    assert first.spec.containers is second.spec.containers
    assert first.metadata.labels is second.metadata.labels


# -- the command ---------------------------------------------------------------------------------


def dump(tmp_path: Path) -> str:
    path = tmp_path / "dump.json"
    items = [secretive_pod(), msgspec.to_builtins(make_node("n").build())]
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    return str(path)


def test_an_archive_loads_like_a_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.jsonl.gz"
    assert main(["snapshot", "--from", dump(tmp_path), "-o", str(out)]) == 0
    assert "1 pods, 1 nodes" in capsys.readouterr().err
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    state = load_dumps([str(out)])
    assert (state.count(Pod), state.count(Node)) == (1, 1)
    assert "snapshot of" in state.source
    again = tmp_path / "again.jsonl.gz"
    assert main(["snapshot", "--from", str(out), "-o", str(again)]) == 0
    assert (
        gzip.decompress(again.read_bytes()).splitlines()[1:]
        == (gzip.decompress(out.read_bytes()).splitlines()[1:])
    )


def test_an_archive_of_a_newer_format_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new.jsonl"
    header = {"apiVersion": "snapshot.kubesched.io/v2", "kind": "Snapshot", "madeBy": "9.0"}
    path.write_text(json.dumps(header) + "\n")
    assert main(["snapshot", "--from", str(path), "-o", str(tmp_path / "o")]) == 1
    assert "made by kubesched 9.0; kubesched" in capsys.readouterr().err


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    target.mkdir()
    assert main(["snapshot", "--from", dump(tmp_path), "-o", str(target)]) == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["dump.json", "folder"]


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    dump, pipe = tmp_path / "dump.json", tmp_path / "pipe"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": []}))
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)
    try:
        assert main(["snapshot", "--from", str(dump), "-o", str(pipe)]) == 0
        assert b"Snapshot" in gzip.decompress(os.read(reader, 65536))
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_two_kinds_of_sources_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snapshot", "--from", "x", "--context", "y"]) == 2
    assert "choose one" in capsys.readouterr().err
