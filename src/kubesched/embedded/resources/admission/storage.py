"""Admission of volumes and claims: their first status, and the default storage class."""

from __future__ import annotations

from kubesched.embedded.apimachinery.objects import JsonObject, timestamp
from kubesched.embedded.registry.rest_storage import RestStorage
from kubesched.embedded.storage.store import Collection

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def admit_persistent_volume(registry: RestStorage, obj: JsonObject) -> None:
    obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": timestamp(registry.clock.now())}


def admit_persistent_volume_claim(registry: RestStorage, obj: JsonObject) -> None:
    obj["status"] = {"phase": "Pending"}
    spec = obj["spec"]
    if spec.get("storageClassName") is None:
        default = registry.derived(
            "default storage class", "storageclasses.storage.k8s.io", default_storage_class
        )
        if default is not None:
            spec["storageClassName"] = default


def default_storage_class(classes: Collection) -> str | None:
    """The newest class marked as default, by name among equals."""
    best: tuple[str, str] | None = None
    for entry in classes.entries():
        metadata = entry.obj["metadata"]
        if (metadata.get("annotations") or {}).get(DEFAULT_CLASS) == "true":
            created = metadata["creationTimestamp"]
            if best is None or created > best[0]:
                best = (created, metadata["name"])
    return best[1] if best is not None else None
