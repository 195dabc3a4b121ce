"""The kinds we speak about: their API names, paths and records.

One table for everyone who turns a record type into a URL or back. It says what exists in the API,
not what a particular server serves.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import quote

from kubesched.api import (
    apps_v1,
    batch_v1,
    coordination_v1,
    core_v1,
    events_v1,
    policy_v1,
    resource_v1,
    scheduling_v1,
    scheduling_v1alpha2,
    storage_v1,
)
from kubesched.api.meta import Record

R = TypeVar("R", bound=Record)


@functools.lru_cache(maxsize=1024)
def _segment(namespace: str) -> str:
    """A namespace as part of a path; there are few of them and many requests."""
    return quote(namespace, safe="")


@dataclass(frozen=True, slots=True)
class Kind(Generic[R]):
    """A kind of object and where it lives in the API."""

    group: str
    version: str
    plural: str
    record: type[R]
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return self.record.__name__

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The plural with its group: `pods`, `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def collection_path(self, namespace: str = "") -> str:
        """The path of all objects, or of those in one namespace."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if namespace and self.namespaced:
            return f"{root}/namespaces/{_segment(namespace)}/{self.plural}"
        return f"{root}/{self.plural}"

    def object_path(self, name: str, namespace: str = "", subresource: str = "") -> str:
        """The path of one object, or of a subresource of it."""
        if not name:
            raise ValueError(f"{self.plural}: an object needs a name")
        if self.namespaced and not namespace:
            raise ValueError(f'{self.plural} "{name}": a namespaced object needs a namespace')
        path = f"{self.collection_path(namespace)}/{quote(name, safe='')}"
        return f"{path}/{subresource}" if subresource else path


_STATUS = ("status",)
_STATUS_SCALE = ("status", "scale")

PODS = Kind(
    "",
    "v1",
    "pods",
    core_v1.Pod,
    short_names=("po",),
    subresources=("status", "binding", "eviction", "ephemeralcontainers", "resize"),
)
NODES = Kind("", "v1", "nodes", core_v1.Node, False, ("no",), _STATUS)
NAMESPACES = Kind("", "v1", "namespaces", core_v1.Namespace, False, ("ns",), ("status", "finalize"))
SERVICES = Kind("", "v1", "services", core_v1.Service, True, ("svc",), _STATUS)
REPLICATION_CONTROLLERS = Kind(
    "", "v1", "replicationcontrollers", core_v1.ReplicationController, True, ("rc",), _STATUS_SCALE
)
PERSISTENT_VOLUMES = Kind(
    "", "v1", "persistentvolumes", core_v1.PersistentVolume, False, ("pv",), _STATUS
)
PERSISTENT_VOLUME_CLAIMS = Kind(
    "", "v1", "persistentvolumeclaims", core_v1.PersistentVolumeClaim, True, ("pvc",), _STATUS
)
CONFIG_MAPS = Kind("", "v1", "configmaps", core_v1.ConfigMap, True, ("cm",))
SERVICE_ACCOUNTS = Kind("", "v1", "serviceaccounts", core_v1.ServiceAccount, True, ("sa",))
CORE_EVENTS = Kind("", "v1", "events", core_v1.Event, True, ("ev",))
REPLICA_SETS = Kind("apps", "v1", "replicasets", apps_v1.ReplicaSet, True, ("rs",), _STATUS_SCALE)
DEPLOYMENTS = Kind(
    "apps", "v1", "deployments", apps_v1.Deployment, True, ("deploy",), _STATUS_SCALE
)
STATEFUL_SETS = Kind(
    "apps", "v1", "statefulsets", apps_v1.StatefulSet, True, ("sts",), _STATUS_SCALE
)
DAEMON_SETS = Kind("apps", "v1", "daemonsets", apps_v1.DaemonSet, True, ("ds",), _STATUS)
JOBS = Kind("batch", "v1", "jobs", batch_v1.Job, True, (), _STATUS)
STORAGE_CLASSES = Kind(
    "storage.k8s.io", "v1", "storageclasses", storage_v1.StorageClass, False, ("sc",)
)
CSI_NODES = Kind("storage.k8s.io", "v1", "csinodes", storage_v1.CSINode, False)
CSI_DRIVERS = Kind("storage.k8s.io", "v1", "csidrivers", storage_v1.CSIDriver, False)
CSI_STORAGE_CAPACITIES = Kind(
    "storage.k8s.io", "v1", "csistoragecapacities", storage_v1.CSIStorageCapacity
)
VOLUME_ATTACHMENTS = Kind(
    "storage.k8s.io", "v1", "volumeattachments", storage_v1.VolumeAttachment, False, (), _STATUS
)
POD_DISRUPTION_BUDGETS = Kind(
    "policy", "v1", "poddisruptionbudgets", policy_v1.PodDisruptionBudget, True, ("pdb",), _STATUS
)
PRIORITY_CLASSES = Kind(
    "scheduling.k8s.io", "v1", "priorityclasses", scheduling_v1.PriorityClass, False, ("pc",)
)
POD_GROUPS = Kind(
    "scheduling.k8s.io", "v1alpha2", "podgroups", scheduling_v1alpha2.PodGroup, True, (), _STATUS
)
WORKLOADS = Kind("scheduling.k8s.io", "v1alpha2", "workloads", scheduling_v1alpha2.Workload)
LEASES = Kind("coordination.k8s.io", "v1", "leases", coordination_v1.Lease)
EVENTS = Kind("events.k8s.io", "v1", "events", events_v1.Event, True, ("ev",))
RESOURCE_CLAIMS = Kind(
    "resource.k8s.io", "v1", "resourceclaims", resource_v1.ResourceClaim, True, (), _STATUS
)
RESOURCE_CLAIM_TEMPLATES = Kind(
    "resource.k8s.io", "v1", "resourceclaimtemplates", resource_v1.ResourceClaimTemplate
)
RESOURCE_SLICES = Kind("resource.k8s.io", "v1", "resourceslices", resource_v1.ResourceSlice, False)
DEVICE_CLASSES = Kind("resource.k8s.io", "v1", "deviceclasses", resource_v1.DeviceClass, False)

KINDS: tuple[Kind[Record], ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Kind)
)

_by_record = {kind.record: kind for kind in KINDS}
_by_name = {(kind.api_version, kind.kind): kind for kind in KINDS}


def kind_of(record: type[R]) -> Kind[R]:
    """The kind whose objects are `record`s."""
    found = _by_record.get(record)
    if found is None:
        raise LookupError(f"{record.__name__} is not the record of an API kind")
    return found  # type: ignore[return-value]  # the table is keyed by the very type


def find_kind(api_version: str, kind: str) -> Kind[Record] | None:
    """The kind that an object's `apiVersion` and `kind` name, if we know it."""
    return _by_name.get((api_version, kind))
