"""Which volume fits a claim."""

from __future__ import annotations

from collections.abc import Iterable

from kubesched.api import quantity
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    spec_of,
    status_of,
    uid_of,
)
from kubesched.playground.apimachinery.selectors import selector_matches

BETA_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def class_of(obj: JsonObject) -> str:
    """The storage class of a claim or volume; "" for none."""
    beta = annotations_of(obj).get(BETA_STORAGE_CLASS)
    return beta if beta is not None else str(spec_of(obj).get("storageClassName") or "")


def has_class(claim: JsonObject) -> bool:
    """Whether the claim specifies a class, even the empty one."""
    return (
        BETA_STORAGE_CLASS in annotations_of(claim)
        or spec_of(claim).get("storageClassName") is not None
    )


def requested_bytes(claim: JsonObject) -> int:
    requests = (spec_of(claim).get("resources") or {}).get("requests") or {}
    return quantity.value(requests.get("storage", 0))


def capacity_bytes(volume: JsonObject) -> int:
    return quantity.value((spec_of(volume).get("capacity") or {}).get("storage", 0))


def reference_to(claim: JsonObject) -> JsonObject:
    """The `claimRef` of a volume bound to the claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": namespace_of(claim),
        "name": name_of(claim),
        "uid": uid_of(claim),
        "resourceVersion": claim["metadata"].get("resourceVersion", ""),
    }


def is_reserved_for(volume: JsonObject, claim: JsonObject) -> bool:
    """Whether the volume's claimRef names this claim; without a uid it was reserved by hand."""
    reference = spec_of(volume).get("claimRef") or {}
    return (
        reference.get("name") == name_of(claim)
        and reference.get("namespace") == namespace_of(claim)
        and reference.get("uid") in (None, "", uid_of(claim))
    )


def find_volume(
    claim: JsonObject, volumes: Iterable[JsonObject], *, only_reserved: bool
) -> JsonObject | None:
    """The volume for a claim: a reserved one, or the smallest fit unless `only_reserved`."""
    best: JsonObject | None = None
    for volume in volumes:
        if is_deleting(volume) or not _fits(claim, volume):
            continue
        if spec_of(volume).get("claimRef"):
            if is_reserved_for(volume, claim):
                return volume
            continue
        if only_reserved or status_of(volume).get("phase") != "Available":
            continue
        if not _satisfies(claim, volume):
            continue
        if best is None or capacity_bytes(volume) < capacity_bytes(best):
            best = volume
    return best


def mismatch(claim: JsonObject, volume: JsonObject) -> str:
    """Why the volume named by the claim cannot serve it; "" if it can."""
    if capacity_bytes(volume) < requested_bytes(claim):
        return "requested PV is too small"
    if class_of(volume) != class_of(claim):
        return "storageClassName does not match"
    if _mode(volume) != _mode(claim):
        return "incompatible volumeMode"
    if not _offers_modes(claim, volume):
        return "incompatible accessMode"
    return ""


def _fits(claim: JsonObject, volume: JsonObject) -> bool:
    return (
        capacity_bytes(volume) >= requested_bytes(claim)
        and _mode(volume) == _mode(claim)
        and (spec_of(volume).get("volumeAttributesClassName") or "")
        == (spec_of(claim).get("volumeAttributesClassName") or "")
    )


def _satisfies(claim: JsonObject, volume: JsonObject) -> bool:
    selector = spec_of(claim).get("selector")
    if selector is not None and not selector_matches(selector, labels_of(volume)):
        return False
    return class_of(volume) == class_of(claim) and _offers_modes(claim, volume)


def _offers_modes(claim: JsonObject, volume: JsonObject) -> bool:
    offered = set(spec_of(volume).get("accessModes") or ())
    return set(spec_of(claim).get("accessModes") or ()) <= offered


def _mode(obj: JsonObject) -> str:
    return str(spec_of(obj).get("volumeMode") or "Filesystem")
