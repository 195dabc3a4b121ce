"""What a recording leaves out: manifests in annotations, templates; and that changes of them are
still seen.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import structs
from recording_headers import HEADER

from kubesched.api.apps_v1 import ReplicaSet, StatefulSet
from kubesched.api.core_v1 import Node, PersistentVolumeClaim, Pod
from kubesched.api.meta import ObjectMeta
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.insight.recording.reader import RecordingReader
from kubesched.insight.recording.records import CALL_DONE, CHANGED, OTHERS, CallDone
from kubesched.insight.recording.segments import MemoryStorage
from kubesched.insight.recording.writer import Limits, RecordingWriter
from kubesched.testing import make_node, make_pod

SECRET = "PASSWORD=hunter2"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
SELECTED = "volume.kubernetes.io/selected-node"
ANNOTATIONS = {LAST_APPLIED: SECRET, "example.com/other": SECRET, SELECTED: "n1"}
META = ObjectMeta(name="x", namespace="default", uid="u", annotations=ANNOTATIONS)
TEMPLATE = {"spec": {"containers": [{"name": "c", "command": [SECRET]}]}}


def written(*entries: tuple[Any, ...]) -> tuple[bytes, MemoryStorage]:
    storage = MemoryStorage()
    writer = RecordingWriter(storage, Limits(segment_bytes=1), HEADER)
    for entry in entries:
        writer.write([entry])
    segments = RecordingReader(storage, "test").segments
    data = msgspec.msgpack.encode([list(segment.entries()) for segment in segments])
    assert b"metadata" in data
    return data, storage


def pod_with_claim_template() -> Pod:
    template = {"metadata": {"annotations": ANNOTATIONS}, "spec": {}}
    pod = make_pod("x").annotation(LAST_APPLIED, SECRET)
    volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": template}}
    return pod.spec(volumes=[volume]).build()


def decoded(kind: type[Any], **spec: Any) -> Any:
    """A workload as the watch brings it, templates included."""
    metadata = {"name": "x", "namespace": "default", "uid": "u", "annotations": ANNOTATIONS}
    return msgspec.convert({"metadata": metadata, "spec": spec}, kind)


OBJECTS = {
    "pods": pod_with_claim_template(),
    "nodes": make_node("x").annotation(LAST_APPLIED, SECRET).build(),
    "persistentvolumeclaims": PersistentVolumeClaim(metadata=META),
    "replicasets": decoded(ReplicaSet, template=TEMPLATE),
    "statefulsets": decoded(
        StatefulSet, template=TEMPLATE, volumeClaimTemplates=[{"spec": SECRET}]
    ),
}


@pytest.mark.parametrize("resource", OBJECTS)
def test_manifests_and_templates_are_not_recorded(resource: str) -> None:
    obj: Any = OBJECTS[resource]
    newer = structs.replace(obj, metadata=structs.replace(obj.metadata, resource_version="2"))
    data, storage = written(
        (CHANGED, 1.0, resource, "a", "default/x", None, obj),
        (CHANGED, 2.0, resource, "u", "default/x", obj, newer),
        (CHANGED, 3.0, resource, "u", "default/x", newer, obj),
        (CALL_DONE, 4.0, "create", "x", None, obj),
    )
    assert len(storage.numbers()) > 1, "checkpoints are written, too"
    assert SECRET.encode() not in data


def test_the_annotations_that_scheduling_reads_are_kept() -> None:
    claim = PersistentVolumeClaim(metadata=META)
    _, storage = written((CHANGED, 1.0, "persistentvolumeclaims", "a", "default/x", None, claim))
    [read] = RecordingReader(storage, "test").state_at().of(PersistentVolumeClaim)
    kept = read.metadata.annotations
    assert kept is not None
    assert kept.keys() == {SELECTED, OTHERS}
    assert kept[SELECTED] == "n1"


def test_a_change_of_other_annotations_is_still_a_change() -> None:
    nodes = [
        make_node("x").annotation("example.com/a", value).build() for value in ("1", "2", "2", "1")
    ]
    _, storage = written(
        (CHANGED, 0.0, "nodes", "a", "x", None, nodes[0]),
        *((CHANGED, float(n), "nodes", "u", "x", nodes[n - 1], nodes[n]) for n in (1, 2, 3)),
    )
    reader = RecordingReader(storage, "test")
    seen = []
    for n in range(4):
        [node] = reader.state_at(wall_time=1_000_000.0 + n + 0.5).of(Node)
        seen.append(node.metadata.annotations)
    assert seen[0] == seen[3] != seen[1] == seen[2]


def test_results_of_calls_are_read_back() -> None:
    claim = ResourceClaim(metadata=META)
    data, storage = written((CALL_DONE, 1.0, "create", "x", None, claim))
    assert SECRET.encode() not in data
    segments = RecordingReader(storage, "test").segments
    entries = [entry for segment in segments for entry in segment.entries()]
    [done] = [entry for entry in entries if isinstance(entry, CallDone)]
    assert done.result["metadata"]["name"] == "x"
