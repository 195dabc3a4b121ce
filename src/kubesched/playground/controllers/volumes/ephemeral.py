"""Generic ephemeral volumes: creates the claims for pods with a claim template."""

from __future__ import annotations

from kubesched.playground.apimachinery.objects import (
    JsonObject,
    controller_reference,
    copy_json,
    is_controlled_by,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    spec_of,
    uid_of,
)
from kubesched.playground.apimachinery.pods import is_finished
from kubesched.playground.client.controller import Controller, ControllerContext

CLAIMS = "persistentvolumeclaims"


class EphemeralVolumes(Controller[str]):
    """Creates the claims of pods with ephemeral volumes."""

    name = "ephemeral-volume"
    component = "ephemeral_volume"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._claims = self.watch(CLAIMS, self._claim_changed)
        self._pods = self.watch("pods", self._pod_changed)

    def sync(self, key: str) -> float | None:
        pod = self._pods.get(key)
        if pod is None or is_deleting(pod) or is_finished(pod):
            return None
        for volume in _ephemeral_volumes(pod):
            self._ensure(pod, volume)
        return None

    def _ensure(self, pod: JsonObject, volume: JsonObject) -> None:
        name = f"{name_of(pod)}-{volume['name']}"
        existing = self._claims.get(f"{namespace_of(pod)}/{name}")
        if existing is not None:
            if not is_controlled_by(existing, uid_of(pod)):
                # A claim of another pod must not be used: their data would mix.
                message = (
                    f'PVC "{namespace_of(pod)}/{name}" was not created for pod'
                    f' "{key_of(pod)}" (pod is not owner)'
                )
                self.warning(pod, "EphemeralVolumeConflict", message)
            return
        template = volume["ephemeral"].get("volumeClaimTemplate") or {}
        metadata = template.get("metadata") or {}
        self.api.create(
            CLAIMS,
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": name,
                    "namespace": namespace_of(pod),
                    "labels": dict(metadata.get("labels") or {}),
                    "annotations": dict(metadata.get("annotations") or {}),
                    "ownerReferences": [controller_reference(pod)],
                },
                "spec": copy_json(template.get("spec") or {}),
            },
        )

    def _pod_changed(self, kind: str, pod: JsonObject, old: JsonObject | None) -> None:
        if kind == "ADDED" and _ephemeral_volumes(pod):
            self.queue.add(key_of(pod))

    def _claim_changed(self, kind: str, claim: JsonObject, old: JsonObject | None) -> None:
        """Requeue the pod: its claim was deleted, or a conflicting claim is gone."""
        if kind != "DELETED":
            return
        for volume_claim in claim["metadata"].get("ownerReferences") or ():
            if volume_claim.get("kind") == "Pod":
                self.queue.add(f"{namespace_of(claim)}/{volume_claim.get('name', '')}")


def _ephemeral_volumes(pod: JsonObject) -> list[JsonObject]:
    return [volume for volume in spec_of(pod).get("volumes") or () if volume.get("ephemeral")]
