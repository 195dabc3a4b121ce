"""Recorded decisions, one JSON object per line, plain or gzipped.

A *placement* is a cluster (namespaces, nodes, bound pods in order of arrival) and pending pods,
each judged independently on that state: feasible nodes, all scores, rejections of the other nodes.
It may include the objects that default spreading and volumes read, and a configuration other
than the default. A placement *with devices* also has resource slices, classes and claims, and its
pods may affect later ones. A *sequence* is a cluster that receives pods one by one (`sequences`),
or, with `aims`, one in which pod groups come and go.
Each of them may name the `version` of kube-scheduler that answered, and set feature `gates`.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from kubesched.api.apps_v1 import ReplicaSet, StatefulSet
from kubesched.api.core_v1 import (
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    ReplicationController,
    Service,
)
from kubesched.api.resource_v1 import (
    Device,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from kubesched.api.storage_v1 import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    StorageClass,
    VolumeAttachment,
)
from kubesched.base.errors import KubeschedError
from kubesched.lab.conformance.sequences import GroupSequence, Sequence, SimpleSequence

_GZIP_MAGIC = b"\x1f\x8b"


class RecordingError(KubeschedError):
    """A file is not a recording; the message says where and why."""


class Rejection(msgspec.Struct, frozen=True):
    """Why a node cannot take the pod; without a plugin the node was never filtered."""

    plugin: str
    code: str
    reasons: list[str] | None = None


class RecordedAnswer(msgspec.Struct, frozen=True):
    """The complete decision about one pod."""

    feasible: list[str]
    """Nodes that passed every filter, in the order found."""
    total: dict[str, int]
    scores: dict[str, dict[str, int]]
    """Node -> plugin -> weighted, normalised score; a plugin that skipped is absent."""
    rejected: dict[str, Rejection]
    message: str = ""
    """Message if no node fits."""
    error: str = ""
    """Set if the attempt ended in an error instead of a verdict."""


class Pending(msgspec.Struct, frozen=True):
    """A pending pod and its recorded answer."""

    pod: Pod
    expect: RecordedAnswer


class Placement(msgspec.Struct, frozen=True, rename="camel"):
    """A cluster and pending pods, each judged independently."""

    namespaces: dict[str, dict[str, str] | None]
    nodes: list[Node]
    pods: list[Pod]
    pending: list[Pending]
    services: list[Service] = []
    replication_controllers: list[ReplicationController] = []
    replica_sets: list[ReplicaSet] = []
    stateful_sets: list[StatefulSet] = []
    storage_classes: list[StorageClass] = []
    csi_drivers: list[CSIDriver] = []
    csi_nodes: list[CSINode] = []
    csi_storage_capacities: list[CSIStorageCapacity] = []
    persistent_volumes: list[PersistentVolume] = []
    persistent_volume_claims: list[PersistentVolumeClaim] = []
    volume_attachments: list[VolumeAttachment] = []
    configuration: msgspec.Raw = msgspec.Raw()
    """A `KubeSchedulerConfiguration`; the default if empty."""


JsonObject = dict[str, Any]


class DeviceAnswer(RecordedAnswer, frozen=True, rename="camel"):
    """The decision about a pod with resource claims, and its effects.

    `shareID` and `allocationTimestamp` of new allocations are `*`.
    """

    pre_enqueue: Rejection | None = None
    allocations: dict[str, list[JsonObject]] = {}
    """Feasible node -> claims with their allocation there, in order."""
    request_mappings: dict[str, list[JsonObject]] = {}
    """Feasible node -> which request serves which container's extended resource."""
    chosen: str = ""
    """The node used for the following fields."""
    writes: list[JsonObject] | None = None
    """API calls of PreBind on that node."""
    pre_bind: str = ""
    """PreBind's error."""
    waits_for_binding_conditions: bool = False
    post_filter: JsonObject = {}
    """DynamicResources' PostFilter: `code`, `message`, `writes`, `candidates` to deallocate."""


class DevicePending(msgspec.Struct, frozen=True):
    """A pending pod, its recorded answer, and whether later pods see its effects."""

    pod: Pod
    expect: DeviceAnswer
    commit: str = ""
    """`reserve`: devices are taken but not written; `bind`: written; empty: discarded."""


class DevicePlacement(msgspec.Struct, frozen=True, rename="camel"):
    """A cluster with devices and pending pods, placed in order."""

    namespaces: dict[str, dict[str, str] | None]
    nodes: list[Node]
    pods: list[Pod]
    pending: list[DevicePending]
    device_classes: list[DeviceClass]
    resource_slices: list[ResourceSlice]
    resource_claims: list[ResourceClaim]
    device_taint_rules: list[DeviceTaintRule] = []

    def without_devices(self) -> Placement:
        """The same cluster, without devices and without pending pods."""
        return Placement(self.namespaces, self.nodes, self.pods, [])


class SelectedDevice(Device):
    """A device and its driver, as seen by selectors."""

    driver: str = ""


class Selector(msgspec.Struct, frozen=True, rename="camel"):
    """A CEL expression and its results for devices, or its compile error."""

    expression: str
    devices: list[SelectedDevice] = []
    results: list[bool | str] = []
    """Per device the result, or an error message."""
    compile_error: str = ""


Content = Placement | DevicePlacement | Sequence | GroupSequence | Selector


class Recorded(NamedTuple):
    """A recording and where it is."""

    file: str
    line: int
    content: Content
    version: str = ""
    """Of the kube-scheduler that answered; if empty, the caller knows."""
    gates: Mapping[str, bool] = {}
    """What it set."""


class _Shape(msgspec.Struct, frozen=True):
    """The fields that tell the kind of a recording, and what every kind has."""

    version: str = ""
    gates: dict[str, bool] = {}
    aims: msgspec.Raw = msgspec.Raw()

    pending: msgspec.Raw = msgspec.Raw()
    resource_slices: msgspec.Raw = msgspec.field(name="resourceSlices", default=msgspec.Raw())
    steps: msgspec.Raw = msgspec.Raw()
    expression: msgspec.Raw = msgspec.Raw()


_Decode = Callable[[bytes], Content | SimpleSequence]
_shape_of = msgspec.json.Decoder(_Shape).decode
_KINDS: dict[str, tuple[str, _Decode]] = {
    "aims": ("recorded sequence of pod groups", msgspec.json.Decoder(GroupSequence).decode),
    "resource_slices": (
        "recorded placement with devices",
        msgspec.json.Decoder(DevicePlacement).decode,
    ),
    "pending": ("recorded placement", msgspec.json.Decoder(Placement).decode),
    "expression": ("recorded selector", msgspec.json.Decoder(Selector).decode),
    "steps": ("recorded sequence", msgspec.json.Decoder(Sequence).decode),
}
"""The field that tells the kind -> what it is, and how it is read."""
_SHORT_FORM: tuple[str, _Decode] = (
    "recorded sequence",
    msgspec.json.Decoder(SimpleSequence).decode,
)


def read_recordings(path: str | Path) -> Iterator[Recorded]:
    """Read the recordings of a file one by one.

    Raises:
        RecordingError: the file cannot be read or has other content.
    """
    for number, line in _lines(Path(path)):
        what = "recording"
        try:
            shape = _shape_of(line)
            told = (kind for field, kind in _KINDS.items() if bytes(getattr(shape, field)))
            what, decode = next(told, _SHORT_FORM)
            content = decode(line)
        except msgspec.DecodeError as error:
            raise RecordingError(f"{path}:{number}: not a {what}: {error}") from error
        if isinstance(content, SimpleSequence):
            content = content.as_sequence()
        yield Recorded(str(path), number, content, shape.version, shape.gates)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    try:
        with path.open("rb") as raw, _unpacked(raw) as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except OSError as error:
        reason = error.strerror or str(error)
        raise RecordingError(f"{path}: {reason}") from error
    except (EOFError, zlib.error) as error:
        raise RecordingError(f"{path}: damaged after line {number}: {error}") from error
    if number == 0:
        raise RecordingError(f"{path}: the file is empty")


def _unpacked(raw: BufferedReader) -> IO[bytes]:
    if raw.peek(2).startswith(_GZIP_MAGIC):
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]  # a binary file
    return raw
