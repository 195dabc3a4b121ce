"""ClusterState: typed records by kind and key, with their origin.

Holds objects, resolves duplicates and reports consistency. The sources (`dumps`, `live`, `archive`)
fill it; what they cannot read they report as problems, by file, line, object and field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec import structs

from kubesched.api.apps_v1 import ReplicaSet, StatefulSet
from kubesched.api.core_v1 import (
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    ReplicationController,
    Service,
)
from kubesched.api.kinds import Kind, kind_of
from kubesched.api.meta import CustomObject, ObjectMeta
from kubesched.api.names import object_key
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.api.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from kubesched.api.scheduling_v1 import PriorityClass
from kubesched.api.scheduling_v1alpha3 import CompositePodGroup
from kubesched.api.scheduling_v1beta1 import PodGroup, Workload
from kubesched.api.storage_v1 import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    StorageClass,
    VolumeAttachment,
)
from kubesched.base.errors import KubeschedError

T = TypeVar("T")

KINDS: tuple[Kind[Any], ...] = tuple(
    kind_of(record)
    for record in (
        Pod,
        Node,
        Namespace,
        PersistentVolume,
        PersistentVolumeClaim,
        StorageClass,
        CSINode,
        CSIDriver,
        CSIStorageCapacity,
        VolumeAttachment,
        PodDisruptionBudget,
        PriorityClass,
        Service,
        ReplicationController,
        ReplicaSet,
        StatefulSet,
        ResourceClaim,
        ResourceSlice,
        DeviceClass,
        CompositePodGroup,
        PodGroup,
        Workload,
    )
)
"""Kinds that scheduling reads. Pods come first: other kinds are listed at their revision."""

_RECORDS = frozenset(kind.record for kind in KINDS)
_NAMESPACED = frozenset(kind.record for kind in KINDS if kind.namespaced)

FINISHED = frozenset({"Succeeded", "Failed"})
"""Phases of pods that use no resources. The scheduler does not watch them; a state omits them."""

DEFAULT_SCHEDULER = "default-scheduler"


class ClusterState:
    """Objects by kind and `namespace/name`, in order of arrival."""

    def __init__(self, source: str) -> None:
        self.source = source
        """Readable origin of the objects."""
        self.resource_versions: dict[str, str] = {}
        """Revision of each resource's list, if the source has it: `pods` -> `4711`."""
        self.missing: dict[str, str] = {}
        """Resources that the source may have and the state has not, and why: forbidden, if known.

        Dumps do not tell kinds without objects from kinds that were not asked for."""
        self.notes: list[str] = []
        """Limits of the state: missing kinds, lists with different revisions."""
        self.skipped: Counter[str] = Counter()
        """Objects that scheduling does not read, counted by `apiVersion kind`."""
        self.finished_count = 0
        """Number of omitted finished pods."""
        self.duplicate_count = 0
        """Objects that occurred more than once; the newest revision was kept."""
        self._objects: dict[type[Any], dict[str, Any]] = {}

    def put(self, obj: Any) -> None:  # noqa: ANN401  # a record of `KINDS` or a custom one
        """Add an object; of two versions the newer is kept.

        Objects that never passed an API server get a namespace, a uid and a pod's scheduler name.
        """
        record = type(obj)
        if record not in _RECORDS and not issubclass(record, CustomObject):
            kind = kind_of(record)
            self.skip(kind.api_version, kind.kind)
            return
        if record is Pod and obj.status.phase in FINISHED:
            self.finished_count += 1
            return
        obj = completed(obj)
        metadata: ObjectMeta = obj.metadata
        by_key = self._objects.get(record)
        if by_key is None:
            by_key = self._objects[record] = {}
        key = object_key(metadata.namespace, metadata.name)
        old = by_key.get(key)
        if old is not None:
            self.duplicate_count += 1
            if _revision(old) > _revision(obj):
                return
        by_key[key] = obj

    def skip(self, api_version: str, kind: str) -> None:
        """Count an object of a kind that scheduling does not read."""
        self.skipped[f"{api_version} {kind}"] += 1

    def remove(self, kind: type[Any], namespace: str, name: str) -> bool:
        """Remove an object; returns whether it existed."""
        by_key = self._objects.get(kind, {})
        return by_key.pop(object_key(namespace, name), None) is not None

    def get(self, kind: type[T], namespace: str, name: str) -> T | None:
        """The object, or None. Cluster-scoped kinds use an empty namespace."""
        return self._objects.get(kind, {}).get(object_key(namespace, name))

    def of(self, kind: type[T]) -> list[T]:
        """All objects of a kind, in order of arrival."""
        return list(self._objects.get(kind, {}).values())

    def count(self, kind: type[Any]) -> int:
        return len(self._objects.get(kind, ()))

    def __iter__(self) -> Iterator[Any]:
        """Every object, kind by kind in the order of `KINDS`, then custom resources."""
        for kind in self._kinds():
            yield from self._objects.get(kind.record, {}).values()

    def __len__(self) -> int:
        return sum(len(by_key) for by_key in self._objects.values())

    def describe(self) -> str:
        """One readable line with source and counts."""
        counts = ", ".join(
            f"{self.count(kind.record)} {kind.resource}"
            for kind in self._kinds()
            if self.count(kind.record)
        )
        return f"{self.source}: {counts or 'no objects'}"

    def _kinds(self) -> tuple[Kind[Any], ...]:
        return (*KINDS, *(kind_of(record) for record in self._objects if record not in _RECORDS))


def completed(obj: T) -> T:
    """The object with API server defaults: a namespace, a uid and a pod's scheduler name."""
    record: Any = obj
    metadata: ObjectMeta = record.metadata
    is_namespaced = type(obj) in _NAMESPACED
    if not metadata.uid or (is_namespaced and not metadata.namespace):
        namespace = metadata.namespace or ("default" if is_namespaced else "")
        uid = metadata.uid or f"{type(obj).__name__.lower()}/{object_key(namespace, metadata.name)}"
        metadata = structs.replace(metadata, namespace=namespace, uid=uid)
        record = structs.replace(record, metadata=metadata)
    if isinstance(record, Pod) and not record.spec.scheduler_name:
        spec = structs.replace(record.spec, scheduler_name=DEFAULT_SCHEDULER)
        record = structs.replace(record, spec=spec)
    whole: T = record
    return whole


def _revision(obj: Any) -> int:  # noqa: ANN401  # as above
    """The resource version as a number, as guaranteed by Kubernetes 1.35 and newer."""
    text: str = obj.metadata.resource_version
    return int(text) if text.isdecimal() else 0


SHOWN = 20
"""Number of problems listed in an error message; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One malformed document or object."""

    file: str
    line: int
    message: str
    """Starts with the object, if known: `Pod default/a: spec.containers: expected array`."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class StateError(KubeschedError):
    """A state cannot be loaded; lists all problems."""

    def __init__(self, problems: list[Problem] | str) -> None:
        self.problems = [] if isinstance(problems, str) else problems
        super().__init__(problems if isinstance(problems, str) else _text(problems))


def _text(problems: list[Problem]) -> str:
    if len(problems) == 1:
        return str(problems[0])
    lines = [f"  {problem}" for problem in problems[:SHOWN]]
    if more := len(problems) - SHOWN:
        lines += [f"  and {more} more"] if more > 0 else []
    return f"{len(problems)} objects cannot be read:\n" + "\n".join(lines)
