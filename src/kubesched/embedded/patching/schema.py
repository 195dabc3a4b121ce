"""How lists and maps of built-in kinds merge, as data.

Strategic merge patch and server-side apply both need to know which lists are maps in disguise. A type is a row of
fields whose merging is not the default (objects merge, lists are replaced as a whole); a field that only leads to such
a type is listed for the way there. Custom resources have no rows: their lists are atomic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Field:
    """One field: the type below it and, for lists, how they merge."""

    type: str = ""
    list: Literal["", "map", "set", "atomic"] = ""
    """What server-side apply does: `map` merges by `keys`, `set` adds single values, `atomic` replaces."""
    keys: tuple[str, ...] = ()
    patch_key: str = ""
    """What strategic merge patch merges by; empty means it replaces the list (or merges a list of primitives)."""
    merges_primitives: bool = False
    retain_keys: bool = False
    atomic: bool = False
    """An object that server-side apply replaces as a whole."""
    defaults: tuple[tuple[str, object], ...] = ()
    """Keys of a list item that may be left out, with the value then meant."""


def _obj(type_name: str) -> Field:
    return Field(type=type_name)


def _map(
    type_name: str,
    *keys: str,
    patch_key: str | None = None,
    retain: bool = False,
    **defaults: object,
) -> Field:
    """A list that is a map by `keys` for apply and by `patch_key` (default: the first key) for strategic patches."""
    return Field(
        type=type_name,
        list="map",
        keys=keys,
        patch_key=keys[0] if patch_key is None else patch_key,
        retain_keys=retain,
        defaults=tuple(defaults.items()),
    )


_SET = Field(list="set", merges_primitives=True)
_CONDITIONS = _map("Condition", "type")
_ATOMIC_OBJECT = Field(atomic=True)
_ATOMIC_LIST = Field(list="atomic")
_TEMPLATE_SPEC = {"selector": _ATOMIC_OBJECT, "template": _obj("PodTemplateSpec")}

TYPES: dict[str, dict[str, Field]] = {
    "ObjectMeta": {
        "finalizers": _SET,
        "ownerReferences": _map("", "uid"),
        "managedFields": _ATOMIC_LIST,
    },
    "PodTemplateSpec": {"metadata": _obj("ObjectMeta"), "spec": _obj("PodSpec")},
    "PodSpec": {
        "containers": _map("Container", "name"),
        "initContainers": _map("Container", "name"),
        "ephemeralContainers": _map("Container", "name"),
        "volumes": _map("Volume", "name", retain=True),
        "imagePullSecrets": _map("", "name"),
        "hostAliases": _map("", "ip"),
        "topologySpreadConstraints": _map(
            "TopologySpreadConstraint", "topologyKey", "whenUnsatisfiable", patch_key="topologyKey"
        ),
        "resourceClaims": _map("", "name", retain=True),
        "schedulingGates": _map("", "name"),
        "nodeSelector": _ATOMIC_OBJECT,
        "tolerations": _ATOMIC_LIST,
        "affinity": _obj("Affinity"),
        "securityContext": _obj("PodSecurityContext"),
    },
    "PodSecurityContext": {"supplementalGroups": _ATOMIC_LIST, "sysctls": _ATOMIC_LIST},
    "Affinity": {"nodeAffinity": _obj("NodeAffinity")},
    "NodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _ATOMIC_OBJECT},
    "TopologySpreadConstraint": {"labelSelector": _ATOMIC_OBJECT, "matchLabelKeys": _ATOMIC_LIST},
    "Container": {
        "ports": _map("", "containerPort", "protocol", patch_key="containerPort", protocol="TCP"),
        "env": _map("EnvVar", "name"),
        "volumeMounts": _map("", "mountPath"),
        "volumeDevices": _map("", "devicePath"),
        "resources": _obj("ResourceRequirements"),
    },
    "EnvVar": {"valueFrom": _obj("EnvVarSource")},
    "EnvVarSource": {
        "configMapKeyRef": _ATOMIC_OBJECT,
        "fieldRef": _ATOMIC_OBJECT,
        "resourceFieldRef": _ATOMIC_OBJECT,
        "secretKeyRef": _ATOMIC_OBJECT,
    },
    "ResourceRequirements": {"claims": _map("", "name", patch_key="")},
    "Volume": {"projected": _obj("ProjectedVolumeSource")},
    "ProjectedVolumeSource": {"sources": _ATOMIC_LIST},
    "Pod": {"metadata": _obj("ObjectMeta"), "spec": _obj("PodSpec"), "status": _obj("PodStatus")},
    "PodStatus": {
        "conditions": _CONDITIONS,
        "podIPs": _map("", "ip"),
        "hostIPs": Field(list="atomic", patch_key="ip"),
        "resourceClaimStatuses": _map("", "name", retain=True),
        "containerStatuses": _ATOMIC_LIST,
    },
    "Node": {
        "metadata": _obj("ObjectMeta"),
        "spec": _obj("NodeSpec"),
        "status": _obj("NodeStatus"),
    },
    "NodeSpec": {"podCIDRs": Field(list="set", merges_primitives=True), "taints": _ATOMIC_LIST},
    "NodeStatus": {
        "addresses": _map("", "type"),
        "conditions": _CONDITIONS,
        "images": _ATOMIC_LIST,
        "volumesAttached": _ATOMIC_LIST,
    },
    "Service": {
        "metadata": _obj("ObjectMeta"),
        "spec": _obj("ServiceSpec"),
        "status": _obj("ConditionsStatus"),
    },
    "ServiceSpec": {
        "ports": _map("", "port", "protocol", patch_key="port", protocol="TCP"),
        "selector": _ATOMIC_OBJECT,
        "clusterIPs": _ATOMIC_LIST,
        "externalIPs": _ATOMIC_LIST,
    },
    "ConditionsStatus": {"conditions": _CONDITIONS},
    "Deployment": {
        "metadata": _obj("ObjectMeta"),
        "spec": _obj("WorkloadSpec"),
        "status": _obj("ConditionsStatus"),
    },
    "WorkloadSpec": {**_TEMPLATE_SPEC, "volumeClaimTemplates": _ATOMIC_LIST},
    "Job": {"metadata": _obj("ObjectMeta"), "spec": _obj("JobSpec"), "status": _obj("JobStatus")},
    "JobSpec": {**_TEMPLATE_SPEC, "podFailurePolicy": _obj("PodFailurePolicy")},
    "PodFailurePolicy": {"rules": _ATOMIC_LIST},
    "JobStatus": {"conditions": Field(type="Condition", list="atomic", patch_key="type")},
    "CronJob": {"metadata": _obj("ObjectMeta"), "spec": _obj("CronJobSpec")},
    "CronJobSpec": {"jobTemplate": _obj("Job")},
    "ReplicationController": {
        "metadata": _obj("ObjectMeta"),
        "spec": _obj("WorkloadSpec"),
        "status": _obj("ConditionsStatus"),
    },
    "PersistentVolumeClaim": {
        "metadata": _obj("ObjectMeta"),
        "spec": _obj("PersistentVolumeClaimSpec"),
        "status": _obj("PersistentVolumeClaimStatus"),
    },
    "PersistentVolumeClaimSpec": {
        "accessModes": _ATOMIC_LIST,
        "selector": _ATOMIC_OBJECT,
        "dataSource": _ATOMIC_OBJECT,
    },
    "PersistentVolumeClaimStatus": {"accessModes": _ATOMIC_LIST, "conditions": _CONDITIONS},
    "PersistentVolume": {"metadata": _obj("ObjectMeta"), "spec": _obj("PersistentVolumeSpec")},
    "PersistentVolumeSpec": {"accessModes": _ATOMIC_LIST, "claimRef": Field(atomic=True)},
    "PodDisruptionBudget": {
        "metadata": _obj("ObjectMeta"),
        "spec": _obj("PodDisruptionBudgetSpec"),
        "status": _obj("ConditionsStatus"),
    },
    "PodDisruptionBudgetSpec": {"selector": Field(atomic=True)},
    "ServiceAccount": {
        "metadata": _obj("ObjectMeta"),
        "secrets": _map("", "name"),
        "imagePullSecrets": Field(list="atomic", patch_key="name"),
    },
    "CSINode": {"metadata": _obj("ObjectMeta"), "spec": _obj("CSINodeSpec")},
    "CSINodeSpec": {"drivers": _map("CSINodeDriver", "name")},
    "CSINodeDriver": {"topologyKeys": _ATOMIC_LIST},
    "CSIDriver": {"metadata": _obj("ObjectMeta"), "spec": _obj("CSIDriverSpec")},
    "CSIDriverSpec": {"tokenRequests": _ATOMIC_LIST, "volumeLifecycleModes": Field(list="set")},
    "StorageClass": {
        "metadata": _obj("ObjectMeta"),
        "mountOptions": _ATOMIC_LIST,
        "allowedTopologies": _ATOMIC_LIST,
    },
    "Namespace": {"metadata": _obj("ObjectMeta"), "status": _obj("ConditionsStatus")},
}
for _kind in ("ReplicaSet", "StatefulSet", "DaemonSet"):
    TYPES[_kind] = TYPES["Deployment"]

_ANY_KIND = {"metadata": _obj("ObjectMeta")}
_NO_FIELDS: dict[str, Field] = {}


def fields_of_kind(kind: str) -> dict[str, Field]:
    """The special fields of a top-level kind; any kind has metadata."""
    return TYPES.get(kind, _ANY_KIND)


def fields_of_type(type_name: str) -> dict[str, Field]:
    return TYPES.get(type_name, _NO_FIELDS)
