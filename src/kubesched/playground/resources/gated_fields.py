"""Fields that an API server drops unless a feature gate is on.

Clients do not hear of it, as upstream. A path names fields; `[]` stands for every item of a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kubesched.config.features import FeatureGates
from kubesched.playground.apimachinery.objects import Json, JsonObject
from kubesched.playground.registry.strategy import Defaulter

_SLICES = "resourceslices.resource.k8s.io"
_CLAIMS = "resourceclaims.resource.k8s.io"
_TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
_REQUEST = "spec.devices.requests[]"
GATED: dict[str, dict[str, str]] = {
    "csidrivers.storage.k8s.io": {"spec.preventPodSchedulingIfMissing": "VolumeLimitScaling"},
    "nodes": {"spec.podPreemptionPolicy": "InPlacePodVerticalScalingSchedulerPreemption"},
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
}
"""Gates by resource and path."""


def dropped_fields(resource: str, gates: FeatureGates) -> tuple[str, ...]:
    """Paths of the fields of a resource that are dropped with these gates."""
    return tuple(path for path, gate in GATED.get(resource, {}).items() if not gates.enabled(gate))


def dropping(paths: Iterable[str], default: Defaulter) -> Defaulter:
    """A defaulter that drops fields before it calls `default`."""
    steps = [path.replace("[]", ".[]").split(".") for path in paths]

    def drop_and_default(obj: JsonObject) -> None:
        for path in steps:
            _drop(obj, path)
        default(obj)

    return drop_and_default


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
