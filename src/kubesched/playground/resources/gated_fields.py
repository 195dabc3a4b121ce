"""Fields that an API server drops unless a feature gate is on.

Clients do not hear of it, as upstream. A path names fields; `[]` stands for every item of a list.
Fields that the stored object has survive an update.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kubesched.config.features import FeatureGates
from kubesched.playground.apimachinery.objects import Json, JsonObject
from kubesched.playground.registry.rest_storage import RestStorage
from kubesched.playground.registry.strategy import Strategy

_SLICES = "resourceslices.resource.k8s.io"
_CLAIMS = "resourceclaims.resource.k8s.io"
_TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
_REQUEST = "spec.devices.requests[]"
_POD_TEMPLATES = {
    "cronjobs.batch": "spec.jobTemplate.spec.template",
    "daemonsets.apps": "spec.template",
    "deployments.apps": "spec.template",
    "jobs.batch": "spec.template",
    "podtemplates": "template",
    "replicasets.apps": "spec.template",
    "replicationcontrollers": "spec.template",
    "statefulsets.apps": "spec.template",
}
_JOBS = {"cronjobs.batch": "spec.jobTemplate.spec", "jobs.batch": "spec"}
_GROUP = {
    "schedulingConstraints": "TopologyAwareWorkloadScheduling",
    "resourceClaims": "DRAWorkloadResourceClaims",
    "preemptionPolicy": "PodGroupPreemptionPolicy",
}
_LEVELS = ["spec" + depth * ".compositePodGroupTemplates[]" for depth in range(4)]
"""The places of a Workload that have templates of pod groups; validation allows no more."""
GATED: dict[str, dict[str, str]] = {
    "csidrivers.storage.k8s.io": {"spec.preventPodSchedulingIfMissing": "VolumeLimitScaling"},
    "nodes": {"spec.podPreemptionPolicy": "InPlacePodVerticalScalingSchedulerPreemption"},
    "pods": {"spec.schedulingGroup": "GenericWorkload"},
    **{
        resource: {
            f"{template}.spec.schedulingGroup": "GenericWorkload",
            **({f"{_JOBS[resource]}.scheduling": "WorkloadWithJob"} if resource in _JOBS else {}),
        }
        for resource, template in _POD_TEMPLATES.items()
    },
    _SLICES: {
        "spec.partitionTypeAttribute": "DRAPartitionableDevicesType",
        "spec.skipNodeOperations": "DRAOptionalNodeOperations",
        "spec.devices[].consumesCounters[].compatibilityGroups": "DRADeviceCompatibilityGroups",
    },
    _CLAIMS: {
        f"{_REQUEST}.exactly.derivedAttributes": "DRADerivedAttributes",
        f"{_REQUEST}.firstAvailable[].derivedAttributes": "DRADerivedAttributes",
    },
    _TEMPLATES: {
        f"spec.{_REQUEST}.exactly.derivedAttributes": "DRADerivedAttributes",
        f"spec.{_REQUEST}.firstAvailable[].derivedAttributes": "DRADerivedAttributes",
    },
    "podgroups.scheduling.k8s.io": {
        "spec.parentCompositePodGroupName": "CompositePodGroup",
        **{f"spec.{field}": gate for field, gate in _GROUP.items()},
        "status.resourceClaimStatuses": "DRAWorkloadResourceClaims",
    },
    "compositepodgroups.scheduling.k8s.io": {"spec.preemptionPolicy": "PodGroupPreemptionPolicy"},
    "workloads.scheduling.k8s.io": {
        "spec.compositePodGroupTemplates": "CompositePodGroup",
        **{f"{level}.preemptionPolicy": "PodGroupPreemptionPolicy" for level in _LEVELS[1:]},
        **{
            f"{level}.podGroupTemplates[].{field}": gate
            for level in _LEVELS
            for field, gate in _GROUP.items()
        },
    },
}
"""Gates by resource and path."""


def dropped_fields(resource: str, gates: FeatureGates) -> tuple[str, ...]:
    """Paths of the fields of a resource that are dropped with these gates."""
    return tuple(path for path, gate in GATED.get(resource, {}).items() if not gates.enabled(gate))


def dropping(paths: Iterable[str], strategy: Strategy) -> Strategy:
    """The strategy, dropping fields before admission."""
    steps = [path.replace("[]", ".[]").split(".") for path in paths]

    def drop(obj: JsonObject, old: JsonObject | None = None) -> None:
        for path in steps:
            if old is None or not _has(old, path):
                _drop(obj, path)

    def admit(registry: RestStorage, obj: JsonObject) -> None:
        drop(obj)
        strategy.admit(registry, obj)

    def prepare_update(registry: RestStorage, obj: JsonObject, old: JsonObject) -> None:
        drop(obj, old)
        strategy.prepare_update(registry, obj, old)

    def prepare_status_update(registry: RestStorage, obj: JsonObject, old: JsonObject) -> None:
        drop(obj, old)
        strategy.prepare_status_update(registry, obj, old)

    return replace(
        strategy,
        admit=admit,
        prepare_update=prepare_update,
        prepare_status_update=prepare_status_update
        if any(path[0] == "status" for path in steps)
        else strategy.prepare_status_update,
    )


def _drop(value: Json, path: Sequence[str]) -> None:
    step, *rest = path
    if step == "[]":
        for item in value if isinstance(value, list) else ():
            _drop(item, rest)
    elif isinstance(value, dict) and step in value:
        if rest:
            _drop(value[step], rest)
        else:
            del value[step]


def _has(value: Json, path: Sequence[str]) -> bool:
    if not path:
        return value is not None
    step, *rest = path
    if step == "[]":
        return any(_has(item, rest) for item in value or ())
    return isinstance(value, dict) and _has(value.get(step), rest)
