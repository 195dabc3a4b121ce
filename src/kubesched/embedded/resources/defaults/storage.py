"""Defaults of volumes, claims, storage classes and CSI drivers."""

from __future__ import annotations

from kubesched.embedded.apimachinery.objects import JsonObject
from kubesched.embedded.resources.defaults.quantities import round_list


def default_persistent_volume(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    round_list(spec.get("capacity"))
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    host_path = spec.get("hostPath")
    if host_path is not None:
        host_path.setdefault("type", "")


def default_persistent_volume_claim(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    resources = spec.get("resources") or {}
    round_list(resources.get("requests"))
    round_list(resources.get("limits"))


def default_storage_class(obj: JsonObject) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def default_csi_driver(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("attachRequired", True)
    spec.setdefault("podInfoOnMount", False)
    spec.setdefault("storageCapacity", False)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    spec.setdefault("requiresRepublish", False)
    spec.setdefault("seLinuxMount", False)
    spec.setdefault("volumeLifecycleModes", ["Persistent"])
