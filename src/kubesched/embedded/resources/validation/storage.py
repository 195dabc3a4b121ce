"""Rules for volumes, claims and storage classes."""

from __future__ import annotations

from kubesched.api import quantity
from kubesched.api.field_errors import FieldError, forbidden, required
from kubesched.embedded.apimachinery.objects import JsonObject
from kubesched.embedded.apimachinery.validation import (
    label_selector,
    one_of,
    positive_quantity,
    unchanged,
)
from kubesched.embedded.resources.validation.scheduling import node_selector

_ACCESS_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")
_NOT_A_SOURCE = frozenset(
    (
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    )
)


def _access_modes(modes: list[str], path: str, when_empty: str = "") -> list[FieldError]:
    if not modes:
        return [required(path, when_empty)]
    problems: list[FieldError] = []
    for mode in modes:
        problems += one_of(mode, _ACCESS_MODES, path)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        detail = "may not use ReadWriteOncePod with other access modes"
        problems.append(forbidden(path, detail))
    return problems


def validate_persistent_volume(obj: JsonObject) -> list[FieldError]:
    spec = obj.get("spec") or {}
    problems = _access_modes(spec.get("accessModes") or [], "spec.accessModes")
    capacity = spec.get("capacity") or {}
    if "storage" not in capacity:
        problems.append(
            required("spec.capacity") if not capacity else required("spec.capacity[storage]")
        )
    else:
        problems += positive_quantity(capacity["storage"], "spec.capacity[storage]")
    sources = [field for field in spec if field not in _NOT_A_SOURCE]
    if not sources:
        problems.append(required("spec", "must specify a volume type"))
    problems += [
        forbidden(f"spec.{extra}", "may not specify more than 1 volume type")
        for extra in sources[1:]
    ]
    if "local" in spec and not spec.get("nodeAffinity"):
        problems.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
    wanted = (spec.get("nodeAffinity") or {}).get("required")
    if wanted is not None:
        problems += node_selector(wanted, "spec.nodeAffinity.required")
    policies = ("Delete", "Recycle", "Retain")
    problems += one_of(
        spec["persistentVolumeReclaimPolicy"], policies, "spec.persistentVolumeReclaimPolicy"
    )
    return problems + one_of(spec["volumeMode"], _VOLUME_MODES, "spec.volumeMode")


def validate_persistent_volume_update(new: JsonObject, old: JsonObject) -> list[FieldError]:
    def source(obj: JsonObject) -> JsonObject:
        return {key: value for key, value in obj["spec"].items() if key not in _NOT_A_SOURCE}

    if source(new) != source(old):
        return [
            forbidden(
                "spec.persistentvolumesource",
                "spec.persistentvolumesource is immutable after creation",
            )
        ]
    return []


def validate_persistent_volume_claim(obj: JsonObject) -> list[FieldError]:
    spec = obj.get("spec") or {}
    problems = _access_modes(
        spec.get("accessModes") or [], "spec.accessModes", "at least 1 access mode is required"
    )
    problems += label_selector(spec.get("selector"), "spec.selector")
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        problems.append(required("spec.resources[storage]"))
    else:
        problems += positive_quantity(storage, "spec.resources[storage]")
    return problems + one_of(spec["volumeMode"], _VOLUME_MODES, "spec.volumeMode")


def validate_persistent_volume_claim_update(new: JsonObject, old: JsonObject) -> list[FieldError]:
    before, after = old["spec"], new["spec"]
    changed = {key for key in {**before, **after} if before.get(key) != after.get(key)}
    # An unbound claim may still be given its volume, and a class where it has none yet.
    if not before.get("volumeName"):
        changed.discard("volumeName")
    if before.get("storageClassName") is None:
        changed.discard("storageClassName")
    changed.discard("volumeAttributesClassName")
    if "resources" in changed:
        changed.discard("resources")
        grown = _requested(after) - _requested(before)
        if (
            before.get("volumeName")
            and grown < 0
            and (old.get("status") or {}).get("phase") == "Bound"
        ):
            return [
                forbidden(
                    "spec.resources.requests.storage", "field can not be less than status.capacity"
                )
            ]
    if not changed:
        return []
    detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
    return [forbidden("spec", detail)]


def _requested(spec: JsonObject) -> int:
    return quantity.nanos(((spec.get("resources") or {}).get("requests") or {}).get("storage", "0"))


def validate_storage_class(obj: JsonObject) -> list[FieldError]:
    problems: list[FieldError] = []
    if not obj.get("provisioner"):
        problems.append(required("provisioner"))
    problems += one_of(obj["reclaimPolicy"], ("Delete", "Retain"), "reclaimPolicy")
    modes = ("Immediate", "WaitForFirstConsumer")
    return problems + one_of(obj["volumeBindingMode"], modes, "volumeBindingMode")


def validate_storage_class_update(new: JsonObject, old: JsonObject) -> list[FieldError]:
    problems: list[FieldError] = []
    for field in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
        problems += unchanged(new.get(field), old.get(field), field)
    return problems


def validate_csi_node(obj: JsonObject) -> list[FieldError]:
    drivers = (obj.get("spec") or {}).get("drivers") or ()
    return [
        required(f"spec.drivers[{index}].{field}")
        for index, driver in enumerate(drivers)
        for field in ("name", "nodeID")
        if not driver.get(field)
    ]
