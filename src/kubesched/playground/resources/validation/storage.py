"""Validation of volumes, claims and storage classes."""

from __future__ import annotations

from kubesched.api import quantity
from kubesched.api.field_errors import forbidden, required
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.apimachinery.validation import (
    Problems,
    choice,
    label_selector,
    one_of,
    positive_quantity,
)
from kubesched.playground.resources.validation.scheduling import node_selector

_ACCESS_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
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


def _access_modes(modes: list[str], path: str, when_empty: str = "") -> Problems:
    if not modes:
        yield required(path, when_empty)
        return
    for mode in modes:
        yield from one_of(mode, _ACCESS_MODES, path)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        detail = "may not use ReadWriteOncePod with other access modes"
        yield forbidden(path, detail)


def validate_persistent_volume(obj: JsonObject) -> Problems:
    spec = obj.get("spec") or {}
    yield from _access_modes(spec.get("accessModes") or [], "spec.accessModes")
    capacity = spec.get("capacity") or {}
    if "storage" not in capacity:
        yield required("spec.capacity") if not capacity else required("spec.capacity[storage]")
    else:
        yield from positive_quantity(capacity["storage"], "spec.capacity[storage]")
    sources = [field for field in spec if field not in _NOT_A_SOURCE]
    if not sources:
        yield required("spec", "must specify a volume type")
    yield from (
        forbidden(f"spec.{extra}", "may not specify more than 1 volume type")
        for extra in sources[1:]
    )
    if "local" in spec and not spec.get("nodeAffinity"):
        yield required("spec.nodeAffinity", "Local volume requires node affinity")
    wanted = (spec.get("nodeAffinity") or {}).get("required")
    if wanted is not None:
        yield from node_selector(wanted, "spec.nodeAffinity.required")
    yield from choice(obj, "spec.persistentVolumeReclaimPolicy", "Delete", "Recycle", "Retain")
    yield from choice(obj, "spec.volumeMode", "Block", "Filesystem")


def validate_persistent_volume_update(new: JsonObject, old: JsonObject) -> Problems:
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


def validate_persistent_volume_claim(obj: JsonObject) -> Problems:
    spec = obj.get("spec") or {}
    yield from _access_modes(
        spec.get("accessModes") or [], "spec.accessModes", "at least 1 access mode is required"
    )
    yield from label_selector(spec.get("selector"), "spec.selector")
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        yield required("spec.resources[storage]")
    else:
        yield from positive_quantity(storage, "spec.resources[storage]")
    yield from choice(obj, "spec.volumeMode", "Block", "Filesystem")


def validate_persistent_volume_claim_update(new: JsonObject, old: JsonObject) -> Problems:
    before, after = old["spec"], new["spec"]
    changed = {key for key in {**before, **after} if before.get(key) != after.get(key)}
    # An unbound claim may still get its volume, and a class if it has none.
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
    detail = (
        "spec is immutable after creation except resources.requests and volumeAttributesClassName"
        " for bound claims"
    )
    return [forbidden("spec", detail)]


def _requested(spec: JsonObject) -> int:
    return quantity.nanos(((spec.get("resources") or {}).get("requests") or {}).get("storage", "0"))


def validate_storage_class(obj: JsonObject) -> Problems:
    if not obj.get("provisioner"):
        yield required("provisioner")
    yield from choice(obj, "reclaimPolicy", "Delete", "Retain")
    yield from choice(obj, "volumeBindingMode", "Immediate", "WaitForFirstConsumer")


def validate_csi_node(obj: JsonObject) -> Problems:
    drivers = (obj.get("spec") or {}).get("drivers") or ()
    return [
        required(f"spec.drivers[{index}].{field}")
        for index, driver in enumerate(drivers)
        for field in ("name", "nodeID")
        if not driver.get(field)
    ]
