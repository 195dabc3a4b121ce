"""The API kinds: names, scope, subresources, paths and records, in one table.

The client and the informers use this table to turn a record into a URL, the embedded server derives
its resource catalogue and discovery documents from it, and the scheduler finds the kind that a
cluster event names.

A kind without its own record is known to the embedded server only, as plain JSON.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from kubesched.api import (
    apps_v1,
    batch_v1,
    coordination_v1,
    core_v1,
    events_v1,
    policy_v1,
    resource_v1,
    resource_v1beta2,
    scheduling_v1,
    scheduling_v1alpha3,
    scheduling_v1beta1,
    storage_v1,
)
from kubesched.api.meta import CustomObject, PartialObjectMetadata, Record

R = TypeVar("R", bound=Record)


@functools.lru_cache(maxsize=1024)
def _segment(namespace: str) -> str:
    """A namespace as part of a path; cached, as there are few namespaces and many requests."""
    return quote(namespace, safe="")


STANDARD_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CREATE_ONLY = ("create",)


@dataclass(frozen=True, slots=True)
class Kind(Generic[R]):
    """A kind of object and its place in the API."""

    group: str
    version: str
    plural: str
    record: type[R]
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = STANDARD_VERBS
    categories: tuple[str, ...] = ()
    name: str = ""
    """The kind's name if it differs from the record's."""
    stored_as: str = ""
    """The resource that stores these objects, if two API groups serve the same ones (events)."""
    told_as: str = ""
    """The resource whose update a change means to the queue, if it is not the kind's own."""

    @property
    def kind(self) -> str:
        return self.name or self.record.__name__

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The plural with its group: `pods`, `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def event_resource(self) -> str:
        """The name in cluster events: `Pod`, `storage.k8s.io/CSINode`, `queues.v1.example.com`."""
        if issubclass(self.record, CustomObject):
            return f"{self.plural}.{self.version}.{self.group}"
        return f"{self.group}/{self.kind}" if self.group else self.kind

    @property
    def has_record(self) -> bool:
        return self.record is not PartialObjectMetadata

    @property
    def is_preview(self) -> bool:
        """Alpha or beta, so not served by default."""
        return "alpha" in self.version or "beta" in self.version

    def collection_path(self, namespace: str = "") -> str:
        """The path of all objects, or of those in one namespace."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if namespace and self.namespaced:
            return f"{root}/namespaces/{_segment(namespace)}/{self.plural}"
        return f"{root}/{self.plural}"

    def object_path(self, name: str, namespace: str = "", subresource: str = "") -> str:
        if not name:
            raise ValueError(f"{self.plural}: an object needs a name")
        if self.namespaced and not namespace:
            raise ValueError(f'{self.plural} "{name}": a namespaced object needs a namespace')
        path = f"{self.collection_path(namespace)}/{quote(name, safe='')}"
        return f"{path}/{subresource}" if subresource else path


def _kind(
    api_version: str,
    record: type[R],
    plural: str,
    *,
    short: str = "",
    subresources: str = "",
    categories: str = "",
    **options: Any,  # noqa: ANN401  # other fields of `Kind`
) -> Kind[R]:
    group, _, version = api_version.rpartition("/")
    return Kind(
        group,
        version,
        plural,
        record,
        short_names=tuple(short.split()),
        subresources=tuple(subresources.split()),
        categories=tuple(categories.split()),
        **options,
    )


def _json(
    api_version: str,
    name: str,
    plural: str,
    **options: Any,  # noqa: ANN401  # those of `_kind`
) -> Kind[PartialObjectMetadata]:
    """A kind without its own record."""
    return _kind(api_version, PartialObjectMetadata, plural, name=name, **options)


_APPS, _AUTHN, _AUTHZ = "apps/v1", "authentication.k8s.io/v1", "authorization.k8s.io/v1"
_ADMISSION, _NETWORKING = "admissionregistration.k8s.io/v1", "networking.k8s.io/v1"
_DRA, _RBAC = "resource.k8s.io/v1", "rbac.authorization.k8s.io/v1"
_SLICE = "resource.k8s.io/ResourceSlice"
_SCHEDULING, _STORAGE = "scheduling.k8s.io", "storage.k8s.io/v1"

# In discovery order: groups, and kinds within a group, by name.
KINDS: tuple[Kind[Any], ...] = (
    _json("v1", "Binding", "bindings", verbs=CREATE_ONLY),
    _kind("v1", core_v1.ConfigMap, "configmaps", short="cm"),
    _json("v1", "Endpoints", "endpoints", short="ep"),
    _kind("v1", core_v1.Event, "events", short="ev"),
    _json("v1", "LimitRange", "limitranges", short="limits"),
    _kind("v1", core_v1.Namespace, "namespaces", namespaced=False, short="ns", subresources="finalize status"),
    _kind("v1", core_v1.Node, "nodes", namespaced=False, short="no", subresources="status"),
    _kind("v1", core_v1.PersistentVolumeClaim, "persistentvolumeclaims", short="pvc", subresources="status"),
    _kind("v1", core_v1.PersistentVolume, "persistentvolumes", namespaced=False, short="pv", subresources="status"),
    _kind("v1", core_v1.Pod, "pods", short="po", subresources="attach binding ephemeralcontainers eviction exec log portforward resize status", categories="all"),
    _json("v1", "PodTemplate", "podtemplates"),
    _kind("v1", core_v1.ReplicationController, "replicationcontrollers", short="rc", subresources="scale status", categories="all"),
    _json("v1", "ResourceQuota", "resourcequotas", short="quota", subresources="status"),
    _json("v1", "Secret", "secrets"),
    _kind("v1", core_v1.ServiceAccount, "serviceaccounts", short="sa", subresources="token"),
    _kind("v1", core_v1.Service, "services", short="svc", subresources="status", categories="all"),
    _json(_ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", namespaced=False, categories="api-extensions"),
    _json(_ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False, subresources="status", categories="api-extensions"),
    _json(_ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", namespaced=False, categories="api-extensions"),
    _json(_ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", namespaced=False, categories="api-extensions"),
    _json("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False, short="crd crds", subresources="status", categories="api-extensions"),
    _json("apiregistration.k8s.io/v1", "APIService", "apiservices", namespaced=False, subresources="status", categories="api-extensions"),
    _json(_APPS, "ControllerRevision", "controllerrevisions"),
    _kind(_APPS, apps_v1.DaemonSet, "daemonsets", short="ds", subresources="status", categories="all"),
    _kind(_APPS, apps_v1.Deployment, "deployments", short="deploy", subresources="scale status", categories="all"),
    _kind(_APPS, apps_v1.ReplicaSet, "replicasets", short="rs", subresources="scale status", categories="all"),
    _kind(_APPS, apps_v1.StatefulSet, "statefulsets", short="sts", subresources="scale status", categories="all"),
    _json(_AUTHN, "SelfSubjectReview", "selfsubjectreviews", namespaced=False, verbs=CREATE_ONLY),
    _json(_AUTHN, "TokenReview", "tokenreviews", namespaced=False, verbs=CREATE_ONLY),
    _json(_AUTHZ, "LocalSubjectAccessReview", "localsubjectaccessreviews", verbs=CREATE_ONLY),
    _json(_AUTHZ, "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False, verbs=CREATE_ONLY),
    _json(_AUTHZ, "SelfSubjectRulesReview", "selfsubjectrulesreviews", namespaced=False, verbs=CREATE_ONLY),
    _json(_AUTHZ, "SubjectAccessReview", "subjectaccessreviews", namespaced=False, verbs=CREATE_ONLY),
    _json("autoscaling/v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", short="hpa", subresources="status", categories="all"),
    _json("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", short="hpa", subresources="status", categories="all"),
    _json("batch/v1", "CronJob", "cronjobs", short="cj", subresources="status", categories="all"),
    _kind("batch/v1", batch_v1.Job, "jobs", subresources="status", categories="all"),
    _json("certificates.k8s.io/v1", "CertificateSigningRequest", "certificatesigningrequests", namespaced=False, short="csr", subresources="approval status"),
    _kind("coordination.k8s.io/v1", coordination_v1.Lease, "leases"),
    _json("discovery.k8s.io/v1", "EndpointSlice", "endpointslices"),
    _kind("events.k8s.io/v1", events_v1.Event, "events", short="ev", stored_as="events"),
    _json(_NETWORKING, "IngressClass", "ingressclasses", namespaced=False),
    _json(_NETWORKING, "Ingress", "ingresses", short="ing", subresources="status"),
    _json(_NETWORKING, "NetworkPolicy", "networkpolicies", short="netpol"),
    _json("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", namespaced=False),
    _kind("policy/v1", policy_v1.PodDisruptionBudget, "poddisruptionbudgets", short="pdb", subresources="status"),
    _json(_RBAC, "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    _json(_RBAC, "ClusterRole", "clusterroles", namespaced=False),
    _json(_RBAC, "RoleBinding", "rolebindings"),
    _json(_RBAC, "Role", "roles"),
    _kind(_DRA, resource_v1.DeviceClass, "deviceclasses", namespaced=False),
    _kind(_DRA, resource_v1.DeviceTaintRule, "devicetaintrules", namespaced=False, subresources="status", told_as=_SLICE),
    _kind(_DRA, resource_v1.ResourceClaim, "resourceclaims", subresources="status"),
    _kind(_DRA, resource_v1.ResourceClaimTemplate, "resourceclaimtemplates"),
    _kind(_DRA, resource_v1.ResourceSlice, "resourceslices", namespaced=False),
    _kind("resource.k8s.io/v1beta2", resource_v1beta2.DeviceTaintRule, "devicetaintrules", namespaced=False, subresources="status", told_as=_SLICE),
    _kind(f"{_SCHEDULING}/v1", scheduling_v1.PriorityClass, "priorityclasses", namespaced=False, short="pc"),
    _kind(f"{_SCHEDULING}/v1alpha3", scheduling_v1alpha3.CompositePodGroup, "compositepodgroups", subresources="status"),
    _kind(f"{_SCHEDULING}/v1beta1", scheduling_v1beta1.PodGroup, "podgroups", subresources="status"),
    _kind(f"{_SCHEDULING}/v1beta1", scheduling_v1beta1.Workload, "workloads"),
    _kind(_STORAGE, storage_v1.CSIDriver, "csidrivers", namespaced=False),
    _kind(_STORAGE, storage_v1.CSINode, "csinodes", namespaced=False),
    _kind(_STORAGE, storage_v1.CSIStorageCapacity, "csistoragecapacities"),
    _kind(_STORAGE, storage_v1.StorageClass, "storageclasses", namespaced=False, short="sc"),
    _kind(_STORAGE, storage_v1.VolumeAttachment, "volumeattachments", namespaced=False, subresources="status"),
    _json(_STORAGE, "VolumeAttributesClass", "volumeattributesclasses", namespaced=False, short="vac"),
)  # fmt: skip

_by_record: dict[type[Record], Kind[Any]] = {kind.record: kind for kind in KINDS if kind.has_record}
_by_name = {(kind.api_version, kind.kind): kind for kind in KINDS if kind.has_record}
_by_event_resource = {
    kind.event_resource: kind
    for kind in KINDS
    if kind.has_record and not kind.stored_as and not kind.told_as
}


def kind_of(record: type[R]) -> Kind[R]:
    """The kind whose objects are `record`s."""
    kind = _by_record.get(record)
    if kind is None and issubclass(record, CustomObject):
        kind = _custom(record.resource, record)
        if kind is None:
            raise LookupError(
                f"{record.__name__}.resource is {record.resource!r}, not plural.version.group"
            )
        _by_record[record] = kind
    if kind is None:
        raise LookupError(f"{record.__name__} is not the record of an API kind")
    return kind


def find_kind(api_version: str, kind: str) -> Kind[Any] | None:
    """The kind for an object's `apiVersion` and `kind`, if it has a record."""
    found = _by_name.get((api_version, kind))
    if found is None:
        custom = (kind_of(record) for record in CustomObject.records.values())
        found = next((k for k in custom if (k.api_version, k.kind) == (api_version, kind)), None)
    return found


_CUSTOM_RESOURCE = re.compile(r"([a-z0-9-]+)\.(v[0-9]+(?:(?:alpha|beta)[0-9]+)?)\.([a-z0-9.-]+)")


def _custom(resource: str, record: type[Any]) -> Kind[Any] | None:
    """The kind of a custom resource, `plural.version.group`; None for any other text."""
    match = _CUSTOM_RESOURCE.fullmatch(resource)
    if match is None:
        return None
    plural, version, group = match.groups()
    return Kind(group, version, plural, record, name=plural if record is CustomObject else "")


def find_event_resource(name: str) -> Kind[Any] | None:
    """The kind for the resource of a cluster event, such as `storage.k8s.io/CSINode`.

    Custom resources are named `plural.version.group`, such as `queues.v1beta1.example.com`. They
    are listed and watched in all namespaces, so it does not matter whether the resource is
    namespaced. Without a record of their own they are `CustomObject`s. None for any other text.
    """
    record = CustomObject.records.get(name)
    if record is not None:
        return kind_of(record)
    return _by_event_resource.get(name) or _without_record(name)


@functools.lru_cache(maxsize=256)
def _without_record(resource: str) -> Kind[Any] | None:
    return _custom(resource, CustomObject)


PODS = kind_of(core_v1.Pod)
