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
from collections.abc import Iterator, Mapping
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


class RecordedSelector(NamedTuple):
    """A selector and its location."""

    file: str
    line: int
    selector: Selector


class Setting(NamedTuple):
    """Which kube-scheduler answered; without a version, the caller knows."""

    version: str = ""
    gates: Mapping[str, bool] = {}


class RecordedDevicePlacement(NamedTuple):
    """A placement with devices and its location."""

    file: str
    line: int
    placement: DevicePlacement
    setting: Setting = Setting()


class RecordedPlacement(NamedTuple):
    """A placement and its location."""

    file: str
    line: int
    placement: Placement
    setting: Setting = Setting()


class RecordedSequence(NamedTuple):
    """A sequence and its location."""

    file: str
    line: int
    sequence: Sequence
    setting: Setting = Setting()


class RecordedGroups(NamedTuple):
    """A sequence of pod groups and its location."""

    file: str
    line: int
    sequence: GroupSequence


class _Shape(msgspec.Struct, frozen=True):
    """The fields that tell the kind of a recording, and what every kind has."""

    version: str = ""
    gates: dict[str, bool] = {}
    aims: msgspec.Raw = msgspec.Raw()

    pending: msgspec.Raw = msgspec.Raw()
    resource_slices: msgspec.Raw = msgspec.field(name="resourceSlices", default=msgspec.Raw())
    steps: msgspec.Raw = msgspec.Raw()
    expression: msgspec.Raw = msgspec.Raw()


_shape_of = msgspec.json.Decoder(_Shape).decode
_device_placement_of = msgspec.json.Decoder(DevicePlacement).decode
_groups_of = msgspec.json.Decoder(GroupSequence).decode
_placement_of = msgspec.json.Decoder(Placement).decode
_selector_of = msgspec.json.Decoder(Selector).decode
_sequence_of = msgspec.json.Decoder(Sequence).decode
_simple_sequence_of = msgspec.json.Decoder(SimpleSequence).decode


Recorded = (
    RecordedPlacement
    | RecordedDevicePlacement
    | RecordedSequence
    | RecordedGroups
    | RecordedSelector
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
            setting = Setting(shape.version, shape.gates)
            if bytes(shape.aims):
                what = "recorded sequence of pod groups"
                yield RecordedGroups(str(path), number, _groups_of(line))
                continue
            if bytes(shape.resource_slices):
                what = "recorded placement with devices"
                devices = _device_placement_of(line)
                yield RecordedDevicePlacement(str(path), number, devices, setting)
                continue
            if bytes(shape.pending):
                what = "recorded placement"
                yield RecordedPlacement(str(path), number, _placement_of(line), setting)
                continue
            if bytes(shape.expression):
                what = "recorded selector"
                yield RecordedSelector(str(path), number, _selector_of(line))
                continue
            what = "recorded sequence"
            if bytes(shape.steps):
                sequence = _sequence_of(line)
            else:
                sequence = _simple_sequence_of(line).as_sequence()
            yield RecordedSequence(str(path), number, sequence, setting)
        except msgspec.DecodeError as error:
            raise RecordingError(f"{path}:{number}: not a {what}: {error}") from error


def read_placements(path: str | Path) -> Iterator[RecordedPlacement]:
    """Read a file that holds only placements.

    Raises:
        RecordingError: the file cannot be read or has other content.
    """
    for recorded in read_recordings(path):
        if not isinstance(recorded, RecordedPlacement):
            other = _OTHER_KINDS[type(recorded)]
            raise RecordingError(
                f"{recorded.file}:{recorded.line}: not a recorded placement, but {other}"
            )
        yield recorded


_OTHER_KINDS: dict[type, str] = {
    RecordedSequence: "a sequence",
    RecordedGroups: "a sequence of pod groups",
    RecordedDevicePlacement: "one with devices",
    RecordedSelector: "a selector",
}


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
