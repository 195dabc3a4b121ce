"""Redacts the objects of a snapshot to what scheduling reads.

Records have few fields beyond that; the rest of an object is not decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import inspect, structs

from kubesched.api import apps_v1, meta, resource_v1, scheduling_v1, storage_v1
from kubesched.api.core_v1 import node, pod, references, storage
from kubesched.api.meta import ObjectMeta, Record
from kubesched.insight.state.cluster_state import ClusterState


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
