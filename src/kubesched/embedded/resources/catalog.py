"""Which resources the server knows: names, scope, verbs and subresources, as a table.

A resource's `key` is `plural` for the core group and `plural.group` otherwise; it names the collection in the store.
Resources of the same key in another group (events) name their collection with `stored_as`. Custom resource definitions
add rows at run time; built-in rows never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kubesched.errors import NotFound

STANDARD_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CREATE_ONLY = ("create",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceInfo:
    """One served resource of one group and version."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    short_names: tuple[str, ...] = ()
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = STANDARD_VERBS
    categories: tuple[str, ...] = ()
    stored_as: str = ""
    custom: bool = False

    @property
    def key(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage_key(self) -> str:
        return self.stored_as or self.key

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        return self.kind + "List"

    @property
    def is_stored(self) -> bool:
        return "get" in self.verbs


def _row(
    api_version: str,
    kind: str,
    plural: str,
    *,
    short: str = "",
    scope: str = "Namespaced",
    sub: str = "",
    verbs: tuple[str, ...] = STANDARD_VERBS,
    categories: str = "",
    stored_as: str = "",
) -> ResourceInfo:
    group, _, version = api_version.rpartition("/")
    return ResourceInfo(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        short_names=tuple(short.split()),
        namespaced=scope == "Namespaced",
        subresources=tuple(sub.split()),
        verbs=verbs,
        categories=tuple(categories.split()),
        stored_as=stored_as,
    )


BUILT_IN: tuple[ResourceInfo, ...] = (
    _row("v1", "Binding", "bindings", verbs=CREATE_ONLY),
    _row("v1", "ConfigMap", "configmaps", short="cm"),
    _row("v1", "Endpoints", "endpoints", short="ep"),
    _row("v1", "Event", "events", short="ev"),
    _row("v1", "LimitRange", "limitranges", short="limits"),
    _row("v1", "Namespace", "namespaces", short="ns", scope="Cluster", sub="finalize status"),
    _row("v1", "Node", "nodes", short="no", scope="Cluster", sub="status"),
    _row("v1", "PersistentVolumeClaim", "persistentvolumeclaims", short="pvc", sub="status"),
    _row("v1", "PersistentVolume", "persistentvolumes", short="pv", scope="Cluster", sub="status"),
    _row("v1", "Pod", "pods", short="po", sub="binding eviction log status", categories="all"),
    _row("v1", "PodTemplate", "podtemplates"),
    _row(
        "v1",
        "ReplicationController",
        "replicationcontrollers",
        short="rc",
        sub="scale status",
        categories="all",
    ),
    _row("v1", "ResourceQuota", "resourcequotas", short="quota", sub="status"),
    _row("v1", "Secret", "secrets"),
    _row("v1", "ServiceAccount", "serviceaccounts", short="sa"),
    _row("v1", "Service", "services", short="svc", sub="status", categories="all"),
    _row(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        short="crd crds",
        scope="Cluster",
        sub="status",
        categories="api-extensions",
    ),
    _row("apps/v1", "ControllerRevision", "controllerrevisions"),
    _row("apps/v1", "DaemonSet", "daemonsets", short="ds", sub="status", categories="all"),
    _row(
        "apps/v1", "Deployment", "deployments", short="deploy", sub="scale status", categories="all"
    ),
    _row("apps/v1", "ReplicaSet", "replicasets", short="rs", sub="scale status", categories="all"),
    _row(
        "apps/v1", "StatefulSet", "statefulsets", short="sts", sub="scale status", categories="all"
    ),
    _row(
        "authentication.k8s.io/v1",
        "SelfSubjectReview",
        "selfsubjectreviews",
        scope="Cluster",
        verbs=CREATE_ONLY,
    ),
    _row(
        "authentication.k8s.io/v1",
        "TokenReview",
        "tokenreviews",
        scope="Cluster",
        verbs=CREATE_ONLY,
    ),
    _row(
        "authorization.k8s.io/v1",
        "LocalSubjectAccessReview",
        "localsubjectaccessreviews",
        verbs=CREATE_ONLY,
    ),
    _row(
        "authorization.k8s.io/v1",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        scope="Cluster",
        verbs=CREATE_ONLY,
    ),
    _row(
        "authorization.k8s.io/v1",
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
        scope="Cluster",
        verbs=CREATE_ONLY,
    ),
    _row(
        "authorization.k8s.io/v1",
        "SubjectAccessReview",
        "subjectaccessreviews",
        scope="Cluster",
        verbs=CREATE_ONLY,
    ),
    _row("batch/v1", "CronJob", "cronjobs", short="cj", sub="status", categories="all"),
    _row("batch/v1", "Job", "jobs", sub="status", categories="all"),
    _row("coordination.k8s.io/v1", "Lease", "leases"),
    _row("discovery.k8s.io/v1", "EndpointSlice", "endpointslices"),
    _row("events.k8s.io/v1", "Event", "events", short="ev", stored_as="events"),
    _row("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", short="pdb", sub="status"),
    _row(
        "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", scope="Cluster"
    ),
    _row("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", scope="Cluster"),
    _row("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"),
    _row("rbac.authorization.k8s.io/v1", "Role", "roles"),
    _row("resource.k8s.io/v1", "DeviceClass", "deviceclasses", scope="Cluster"),
    _row("resource.k8s.io/v1", "ResourceClaim", "resourceclaims", sub="status"),
    _row("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates"),
    _row("resource.k8s.io/v1", "ResourceSlice", "resourceslices", scope="Cluster"),
    _row("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", short="pc", scope="Cluster"),
    _row("storage.k8s.io/v1", "CSIDriver", "csidrivers", scope="Cluster"),
    _row("storage.k8s.io/v1", "CSINode", "csinodes", scope="Cluster"),
    _row("storage.k8s.io/v1", "CSIStorageCapacity", "csistoragecapacities"),
    _row("storage.k8s.io/v1", "StorageClass", "storageclasses", short="sc", scope="Cluster"),
    _row(
        "storage.k8s.io/v1", "VolumeAttachment", "volumeattachments", scope="Cluster", sub="status"
    ),
    _row(
        "storage.k8s.io/v1",
        "VolumeAttributesClass",
        "volumeattributesclasses",
        short="vac",
        scope="Cluster",
    ),
)


class ResourceCatalog:
    """The resources served right now: the built-in table and whatever custom definitions add."""

    def __init__(self, resources: Iterable[ResourceInfo] = BUILT_IN) -> None:
        self._by_path: dict[tuple[str, str, str], ResourceInfo] = {}
        self._by_key: dict[str, ResourceInfo] = {}
        self._listeners: list[Callable[[], None]] = []
        for resource in resources:
            self._insert(resource)

    def __iter__(self) -> Iterator[ResourceInfo]:
        return iter(self._by_path.values())

    def find(self, group: str, version: str, plural: str) -> ResourceInfo | None:
        return self._by_path.get((group, version, plural))

    def find_kind(self, api_version: str, kind: str) -> ResourceInfo | None:
        for resource in self._by_path.values():
            if resource.kind == kind and resource.api_version == api_version:
                return resource
        return None

    def get(self, resource: ResourceInfo | str) -> ResourceInfo:
        """The resource meant by a row or by `plural.group`; `NotFound` when nobody serves it."""
        if isinstance(resource, ResourceInfo):
            return resource
        found = self._by_key.get(resource)
        if found is None:
            raise NotFound("the server could not find the requested resource")
        return found

    def has_group_version(self, group: str, version: str) -> bool:
        return any(key[0] == group and key[1] == version for key in self._by_path)

    def add_custom(self, resources: Iterable[ResourceInfo]) -> None:
        for resource in resources:
            self._insert(resource)
        self._changed()

    def remove_custom(self, group: str, plural: str) -> None:
        for path, resource in list(self._by_path.items()):
            if resource.custom and resource.group == group and resource.plural == plural:
                del self._by_path[path]
                self._by_key.pop(resource.key, None)
        self._changed()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have `listener` called after rows were added or removed (discovery documents are cached)."""
        self._listeners.append(listener)

    def _insert(self, resource: ResourceInfo) -> None:
        self._by_path[resource.group, resource.version, resource.plural] = resource
        self._by_key.setdefault(resource.key, resource)

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()
