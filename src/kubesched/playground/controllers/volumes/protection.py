"""Protection finalizers of claims and volumes, removed once the object is no longer in use."""

from __future__ import annotations

from kubesched.playground.apimachinery.objects import (
    JsonObject,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    spec_of,
    status_of,
    uid_of,
)
from kubesched.playground.apimachinery.pods import is_finished, node_name_of
from kubesched.playground.client.controller import Controller, ControllerContext
from kubesched.playground.client.informers import Index

CLAIMS = "persistentvolumeclaims"
VOLUMES = "persistentvolumes"
CLAIM_FINALIZER = "kubernetes.io/pvc-protection"
VOLUME_FINALIZER = "kubernetes.io/pv-protection"

Key = tuple[str, str]
"""("claim", namespace/name) or ("volume", name)."""


def claims_of(pod: JsonObject) -> tuple[str, ...]:
    """Keys of the claims a pod mounts, including generic ephemeral ones."""
    volumes = spec_of(pod).get("volumes")
    if not volumes:
        return ()
    names = []
    for volume in volumes:
        if volume.get("persistentVolumeClaim"):
            names.append(volume["persistentVolumeClaim"].get("claimName", ""))
        elif volume.get("ephemeral"):
            names.append(f"{name_of(pod)}-{volume.get('name', '')}")
    return tuple(f"{namespace_of(pod)}/{name}" for name in names)


BY_CLAIM = Index(claims_of, "spec")


class VolumeProtection(Controller[Key]):
    """Adds and removes the protection finalizers."""

    name = "volume-protection"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._claims = self.watch(CLAIMS, lambda _, obj, __: self.queue.add(("claim", key_of(obj))))
        self._volumes = self.watch(
            VOLUMES, lambda _, obj, __: self.queue.add(("volume", name_of(obj)))
        )
        self._pods = self.watch("pods", self._pod_changed, BY_CLAIM)

    def sync(self, key: Key) -> float | None:
        kind, name = key
        if kind == "claim":
            claim = self._claims.get(name)
            if claim is not None:
                self._protect(CLAIMS, claim, CLAIM_FINALIZER, self._is_used(claim))
        else:
            volume = self._volumes.get(name)
            if volume is not None:
                is_bound = status_of(volume).get("phase") == "Bound"
                self._protect(VOLUMES, volume, VOLUME_FINALIZER, is_bound)
        return None

    def _protect(self, resource: str, obj: JsonObject, finalizer: str, is_used: bool) -> None:
        finalizers: list[str] = obj["metadata"].get("finalizers") or []
        if not is_deleting(obj) and finalizer not in finalizers:
            patch = {"metadata": {"uid": uid_of(obj), "finalizers": [*finalizers, finalizer]}}
            self.api.patch_object(resource, obj, patch)
        elif is_deleting(obj) and finalizer in finalizers and not is_used:
            self.api.remove_finalizer(resource, obj, finalizer)

    def _is_used(self, claim: JsonObject) -> bool:
        """Whether a bound pod that has not finished mounts the claim."""
        return any(
            node_name_of(pod) and not is_finished(pod)
            for pod in self._pods.find(BY_CLAIM, key_of(claim))
        )

    def _pod_changed(self, kind: str, pod: JsonObject, old: JsonObject | None) -> None:
        if kind == "DELETED" or is_finished(pod):
            for key in claims_of(pod):
                self.queue.add(("claim", key))
