"""Snapshot archives: a header, then one object per line, compressed.

An archive is JSON lines in gzip. The header is a line like any other object, of the kind
`Snapshot`; the objects follow as the API would return them. So `zcat`, `jq` and `kubectl apply
--dry-run` can read it, and it loads like any other dump (`documents`).

Objects are redacted to what scheduling reads. Records have few fields beyond that; the rest of an
object is not decoded.
"""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

import msgspec
from msgspec import inspect, structs

from kubesched.api import apps_v1, codec, meta, resource_v1, scheduling_v1, storage_v1
from kubesched.api.core_v1 import node, pod, references, storage
from kubesched.api.meta import ObjectMeta, Record
from kubesched.api.times import format_time
from kubesched.base.version import __version__
from kubesched.insight.state.cluster_state import ClusterState, StateError

API_GROUP = "snapshot.kubesched.io"
VERSION = 1
KIND = "Snapshot"

_COMPRESSION = 6


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The first line."""

    api_version: str
    kind: str = msgspec.field(default_factory=lambda: KIND)  # a plain default would not be written
    made_by: str = ""
    made_at: str = ""
    source: str = ""
    resource_versions: dict[str, str] = {}
    missing: list[str] = []
    notes: list[str] = []
    finished_pods: int = 0


def is_header(api_version: str, kind: str) -> bool:
    return kind == KIND and api_version.startswith(f"{API_GROUP}/")


def read_header(raw: Any, state: ClusterState) -> None:  # noqa: ANN401  # any buffer
    """Store an archive's metadata in the state.

    Raises:
        StateError: a newer kubesched wrote it, or the header is invalid.
    """
    try:
        header = msgspec.json.decode(raw, type=Header)
    except codec.DECODE_ERRORS as error:
        raise StateError(f"not a valid snapshot header: {codec.reworded(error)}") from None
    version = header.api_version.removeprefix(f"{API_GROUP}/v")
    if not version.isdecimal() or int(version) > VERSION:
        raise StateError(
            f"this snapshot has format {header.api_version}, made by kubesched {header.made_by}; "
            f"kubesched {__version__} reads {API_GROUP}/v{VERSION} and older"
        )
    state.resource_versions.update(header.resource_versions)
    state.missing = {one: "" for one in state.missing if one in header.missing}
    state.notes += header.notes
    state.finished_count += header.finished_pods
    made = f"snapshot of {header.source}" if header.source else "snapshot"
    state.source = f"{state.source} ({made}, {header.made_at})"


def write_archive(state: ClusterState, file: BinaryIO, *, now: float) -> None:
    """Write an archive of an already redacted state."""
    header = Header(
        api_version=f"{API_GROUP}/v{VERSION}",
        made_by=__version__,
        made_at=format_time(now),
        source=state.source,
        resource_versions=state.resource_versions,
        missing=list(state.missing),
        notes=state.notes,
        finished_pods=state.finished_count,
    )
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_COMPRESSION, mtime=0) as packed:
        packed.write(codec.encode(header) + b"\n")
        for obj in state:
            packed.write(codec.encode(obj) + b"\n")


def save_archive(state: ClusterState, path: str, *, now: float) -> None:
    """Write an archive that only its owner can read; replaces an existing file atomically.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as device:  # never in place of /dev/null
            write_archive(state, device, now=now)
        return
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".snapshot-")  # with mode 0600
    try:
        with open(handle, "wb") as file:
            write_archive(state, file, now=now)
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def redacted_state(state: ClusterState) -> ClusterState:
    """A state of redacted objects."""
    redacted = ClusterState(state.source)
    redacted.missing = dict(state.missing)
    redacted.notes = list(state.notes)
    redacted.resource_versions = dict(state.resource_versions)
    redacted.finished_count = state.finished_count
    for obj in state:
        redacted.put(redact(obj))
    return redacted


def redact(obj: Any) -> Any:  # noqa: ANN401  # any record
    """The record with every field treated; the same object if nothing changes."""
    new: dict[str, Any] = {}
    for name, change in _changes_of(type(obj)).items():
        value = getattr(obj, name)
        if value is not None and (changed := change(value)) is not value:
            new[name] = changed
    return structs.replace(obj, **new) if new else obj


Change = Callable[[Any], Any]


_changes: dict[type[Any], dict[str, Change]] = {}


def _changes_of(record: type[Any]) -> dict[str, Change]:
    """The fields of a record that may change, and how."""
    known = _changes.get(record)
    if known is not None:
        return known
    dropped = DROPPED.get(record, "").split()
    changes: dict[str, Change] = {}
    for field in structs.fields(record):
        if field.name in dropped:
            changes[field.name] = _default(field)
        elif nested_records(record, field.name):
            changes[field.name] = _nested
    if record is ObjectMeta:
        changes["annotations"] = _annotations
    _changes[record] = changes
    return changes


def _default(field: structs.FieldInfo) -> Change:
    made = field.default_factory
    default = field.default if not callable(made) else made()
    return lambda _value: default


def _nested(value: Any) -> Any:  # noqa: ANN401  # a record, or a list or dictionary of records
    if isinstance(value, Record):
        return redact(value)
    if isinstance(value, list):
        return [_nested(item) for item in value]
    if isinstance(value, dict):
        return {key: _nested(item) for key, item in value.items()}
    return value


def _annotations(annotations: dict[str, str]) -> dict[str, str] | None:
    return {key: annotations[key] for key in annotations if key in ANNOTATIONS_READ} or None


def nested_records(record: type[Any], name: str) -> list[type[Any]]:
    """The record types reachable from a field."""
    info = inspect.type_info(record)
    assert isinstance(info, inspect.StructType), "a record"
    return next(_nested_records(field.type) for field in info.fields if field.name == name)


def _nested_records(kind: inspect.Type) -> list[type[Any]]:
    if isinstance(kind, inspect.StructType):
        return [kind.cls]
    if isinstance(kind, inspect.ListType):
        return _nested_records(kind.item_type)
    if isinstance(kind, inspect.DictType):
        return _nested_records(kind.value_type)
    if isinstance(kind, inspect.UnionType):
        return [nested for member in kind.types for nested in _nested_records(member)]
    return []


ANNOTATIONS_READ = frozenset(
    (
        "pv.kubernetes.io/bind-completed",
        "pv.kubernetes.io/bound-by-controller",
        "pv.kubernetes.io/provisioned-by",
        "storage.alpha.kubernetes.io/migrated-plugins",
        "storageclass.kubernetes.io/is-default-class",
        "volume.beta.kubernetes.io/storage-class",
        "volume.kubernetes.io/selected-node",
        "volume.kubernetes.io/storage-provisioner",
        "resource.kubernetes.io/extended-resource-claim",
        "resource.kubernetes.io/pod-claim-name",
    )
)
"""The annotations that are kept."""

DROPPED: dict[type[Any], str] = {
    meta.ObjectMeta: "generate_name finalizers",
    meta.Condition: "message",
    pod.PodCondition: "message",
    node.NodeCondition: "message",
    storage.PersistentVolumeClaimCondition: "message",
    apps_v1.ControllerCondition: "message",
    pod.ContainerStateWaiting: "message",
    storage.PersistentVolumeStatus: "message",
    storage_v1.StorageClass: "parameters mount_options",
    scheduling_v1.PriorityClass: "description",
    references.ObjectReference: "field_path",
    pod.PodSpec: "service_account_name",
    pod.ContainerPort: "name",
    pod.PodStatus: "message host_ip pod_ip",
    pod.HostIP: "ip",
    pod.PodIP: "ip",
    pod.ContainerStateTerminated: "message container_id",
    node.NodeSpec: "pod_cidr pod_cidrs provider_id",
    node.NodeStatus: "volumes_in_use",
    node.NodeAddress: "type address",
    node.NodeSystemInfo: "machine_id system_uuid boot_id"
    " kernel_version os_image container_runtime_version kube_proxy_version",
    node.AttachedVolume: "name device_path",
    resource_v1.OpaqueDeviceConfiguration: "parameters",
    resource_v1.AllocatedDeviceStatus: "data",
    resource_v1.NetworkDeviceData: "interface_name ips hardware_address",
}
"""Record -> names of the fields that are left out."""
