"""The volume binder: binds claims and volumes to each other.

    claim Pending ── a volume fits ──► volume.claimRef, claim.volumeName, both Bound
          │ ──────── class waits ──► until the scheduler reserves a volume or selects a node
          │ ──────── class provisions ──► an annotation asks the provisioner for a reserved volume
    volume Bound ─── claim deleted ──► Released ──► deleted, or kept for the administrator

Binding takes four writes (volume spec, volume status, claim spec, claim status) in this order.
After a crash between any two, the next sync finds the volume reserved and continues.
"""

from __future__ import annotations

from kubesched.base.errors import NotFound
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    annotations_of,
    is_deleting,
    key_of,
    name_of,
    spec_of,
    status_of,
    uid_of,
)
from kubesched.playground.client.controller import Controller, ControllerContext
from kubesched.playground.client.informers import Index
from kubesched.playground.controllers.volumes.selection import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    DEFAULT_CLASS,
    SELECTED_NODE,
    class_of,
    find_volume,
    has_class,
    is_reserved_for,
    mismatch,
    reference_to,
)

CLAIMS = "persistentvolumeclaims"
VOLUMES = "persistentvolumes"
CLASSES = "storageclasses.storage.k8s.io"

PROVISIONER = "volume.kubernetes.io/storage-provisioner"
BETA_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
NO_PROVISIONER = "kubernetes.io/no-provisioner"

_UNBOUND: JsonObject = {
    "spec": {"claimRef": None},
    "metadata": {"annotations": {BOUND_BY_CONTROLLER: None}},
}

Key = tuple[str, str]
"""("claim", namespace/name) or ("volume", name)."""


class VolumeBinder(Controller[Key]):
    """Binds claims to volumes and reclaims volumes."""

    name = "persistentvolume-binder"
    component = "persistentvolume-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._claims = self.watch(CLAIMS, self._claim_changed, BY_CLASS)
        self._volumes = self.watch(VOLUMES, self._volume_changed, BY_CLASS, BY_CLAIM_REF)
        self._classes = self.watch(CLASSES, self._class_changed)

    def sync(self, key: Key) -> float | None:
        kind, name = key
        if kind == "claim":
            claim = self._claims.get(name)
            if claim is not None:
                self._sync_claim(claim)
        else:
            volume = self._volumes.get(name)
            if volume is not None:
                self._sync_volume(volume)
        return None

    # -- claims ----------------------------------------------------------------------------------

    def _sync_claim(self, claim: JsonObject) -> None:
        if BIND_COMPLETED in annotations_of(claim):
            self._sync_bound_claim(claim)
            return
        if is_deleting(claim):
            return
        if spec_of(claim).get("volumeName"):
            self._sync_named_claim(claim)
            return
        claim = self._with_default_class(claim)
        storage_class = self._classes.get(class_of(claim))
        # With WaitForFirstConsumer only a volume reserved by the scheduler is taken, even once a
        # node is selected: another free volume of the class may be unreachable from that node.
        mode = storage_class.get("volumeBindingMode") if storage_class is not None else ""
        waits = mode == "WaitForFirstConsumer"
        # Upstream: a volume that names the claim is taken whatever its class.
        reserved = self._volumes.find(BY_CLAIM_REF, key_of(claim))
        candidates = self._volumes.find(BY_CLASS, class_of(claim))
        volume = find_volume(claim, [*reserved, *candidates], only_reserved=waits)
        if volume is not None:
            self._bind(claim, volume)
        elif waits and SELECTED_NODE not in annotations_of(claim):
            message = "waiting for first consumer to be created before binding"
            self.normal(claim, "WaitForFirstConsumer", message)
            self._set_phase(claim, "Pending")
        elif class_of(claim):
            self._request_provisioning(claim, storage_class)
            claim = self._claims.get(key_of(claim)) or claim
            self._set_phase(claim, "Pending")
        else:
            message = "no persistent volumes available for this claim and no storage class is set"
            self.normal(claim, "FailedBinding", message)
            self._set_phase(claim, "Pending")

    def _sync_bound_claim(self, claim: JsonObject) -> None:
        volume = self._volumes.get(spec_of(claim).get("volumeName", ""))
        if volume is None:
            message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
            self._lose(claim, "ClaimLost", message)
        elif not spec_of(volume).get("claimRef") or is_reserved_for(volume, claim):
            self._bind(claim, volume)
        else:
            message = "Two claims are bound to the same volume, this one is bound incorrectly"
            self._lose(claim, "ClaimMisbound", message)

    def _sync_named_claim(self, claim: JsonObject) -> None:
        """Bind a claim whose volume was chosen by the user or a provisioner."""
        volume = self._volumes.get(spec_of(claim)["volumeName"])
        if volume is None:
            self._set_phase(claim, "Pending")
        elif is_reserved_for(volume, claim):
            # Upstream: where both name each other nothing is compared, not even the class.
            self._bind(claim, volume)
        elif spec_of(volume).get("claimRef"):
            message = f'volume "{name_of(volume)}" already bound to a different claim.'
            self.warning(claim, "FailedBinding", message)
            self._set_phase(claim, "Pending")
        elif problem := mismatch(claim, volume):
            message = f'Cannot bind to requested volume "{name_of(volume)}": {problem}'
            self.warning(claim, "VolumeMismatch", message)
            self._set_phase(claim, "Pending")
        else:
            self._bind(claim, volume)

    def _with_default_class(self, claim: JsonObject) -> JsonObject:
        """Assign the default class to a claim created before that class existed."""
        if has_class(claim):
            return claim
        defaults = [
            storage_class
            for storage_class in self._classes
            if annotations_of(storage_class).get(DEFAULT_CLASS) == "true"
        ]
        if not defaults:
            return claim
        newest = max(
            defaults,
            key=lambda obj: (obj["metadata"].get("creationTimestamp", ""), name_of(obj)),
        )
        patch = {"spec": {"storageClassName": name_of(newest)}}
        return self.api.patch_object(CLAIMS, claim, patch)

    def _request_provisioning(self, claim: JsonObject, storage_class: JsonObject | None) -> None:
        if storage_class is None:
            message = f'storageclass.storage.k8s.io "{class_of(claim)}" not found'
            self.warning(claim, "ProvisioningFailed", message)
            return
        provisioner = storage_class.get("provisioner", "")
        if provisioner == NO_PROVISIONER:
            message = f"no volume plugin matched name: {provisioner}"
            self.warning(claim, "ProvisioningFailed", message)
            return
        if annotations_of(claim).get(PROVISIONER) != provisioner:
            annotations = {PROVISIONER: provisioner, BETA_PROVISIONER: provisioner}
            self.api.patch_object(CLAIMS, claim, {"metadata": {"annotations": annotations}})
        message = (
            "Waiting for a volume to be created either by the external provisioner"
            f" '{provisioner}' or manually by the system administrator. If volume creation is"
            " delayed, please verify that the provisioner is running and correctly registered."
        )
        self.normal(claim, "ExternalProvisioning", message)

    # -- binding ---------------------------------------------------------------------------------

    def _bind(self, claim: JsonObject, volume: JsonObject) -> None:
        self._bind_volume(claim, volume)
        self._set_volume_phase(name_of(volume), "Bound")
        self._bind_claim(claim, volume)
        current = self._claims.get(key_of(claim))
        if current is not None:
            status = {
                **status_of(current),
                "phase": "Bound",
                "accessModes": spec_of(volume).get("accessModes") or [],
                "capacity": spec_of(volume).get("capacity") or {},
            }
            attributes_class = spec_of(volume).get("volumeAttributesClassName")
            if attributes_class and status_of(current).get("phase") != "Bound":
                status["currentVolumeAttributesClassName"] = attributes_class
            self.api.write_status(CLAIMS, current, status)

    def _bind_volume(self, claim: JsonObject, volume: JsonObject) -> None:
        reference = spec_of(volume).get("claimRef") or {}
        if reference.get("uid") == uid_of(claim):
            return
        patch: JsonObject = {"spec": {"claimRef": reference_to(claim)}}
        if not reference:
            patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
        self.api.patch_object(VOLUMES, volume, patch)

    def _bind_claim(self, claim: JsonObject, volume: JsonObject) -> None:
        annotations = {}
        if BIND_COMPLETED not in annotations_of(claim):
            annotations[BIND_COMPLETED] = "yes"
        patch: JsonObject = {}
        if spec_of(claim).get("volumeName") != name_of(volume):
            patch["spec"] = {"volumeName": name_of(volume)}
            annotations[BOUND_BY_CONTROLLER] = "yes"
        if annotations:
            patch["metadata"] = {"annotations": annotations}
        if patch:
            self.api.patch_object(CLAIMS, claim, patch)

    def _lose(self, claim: JsonObject, reason: str, message: str) -> None:
        if status_of(claim).get("phase") != "Lost":
            self.warning(claim, reason, message)
            self._set_phase(claim, "Lost")

    def _set_phase(self, claim: JsonObject, phase: str) -> None:
        self.api.write_status(CLAIMS, claim, {**status_of(claim), "phase": phase})

    # -- volumes ---------------------------------------------------------------------------------

    def _sync_volume(self, volume: JsonObject) -> None:
        reference = spec_of(volume).get("claimRef")
        if not reference:
            self._set_volume_phase(name_of(volume), "Available")
            return
        claim = self._claims.get(_referenced_key(reference))
        if not reference.get("uid"):
            # Reserved by hand for a claim that may still be created.
            self._set_volume_phase(name_of(volume), "Available")
            if claim is not None:
                self.queue.add(("claim", key_of(claim)))
        elif claim is None or uid_of(claim) != reference["uid"]:
            self._release(volume)
        elif spec_of(claim).get("volumeName") in (None, "", name_of(volume)):
            self.queue.add(("claim", key_of(claim)))
        else:
            self._unbind_loser(volume)

    def _release(self, volume: JsonObject) -> None:
        self._set_volume_phase(name_of(volume), "Released")
        policy = spec_of(volume).get("persistentVolumeReclaimPolicy", "Retain")
        if policy == "Recycle":
            self.api.patch_object(VOLUMES, volume, _UNBOUND)
        # Delete is handled by the provisioner that created the volume.

    def _unbind_loser(self, volume: JsonObject) -> None:
        """Release a volume whose claim was bound to another one."""
        if annotations_of(volume).get(BOUND_BY_CONTROLLER) == "yes":
            self.api.patch_object(VOLUMES, volume, _UNBOUND)
        elif annotations_of(volume).get(PROVISIONED_BY):
            self._release(volume)

    def _set_volume_phase(self, name: str, phase: str) -> None:
        volume = self._volumes.get(name)
        if volume is None:
            raise NotFound(f'persistentvolumes "{name}" not found')
        status = {**status_of(volume), "phase": phase}
        self.api.write_status(VOLUMES, volume, status)

    # -- events ----------------------------------------------------------------------------------

    def _claim_changed(self, kind: str, claim: JsonObject, old: JsonObject | None) -> None:
        self.queue.add(("claim", key_of(claim)))
        volume = spec_of(claim).get("volumeName")
        if volume and (kind == "DELETED" or old is None):
            self.queue.add(("volume", volume))

    def _volume_changed(self, kind: str, volume: JsonObject, old: JsonObject | None) -> None:
        self.queue.add(("volume", name_of(volume)))
        reference = spec_of(volume).get("claimRef")
        if reference:
            self.queue.add(("claim", _referenced_key(reference)))
        elif status_of(volume).get("phase") == "Available":
            # A waiting claim of the same class may need this free volume.
            for claim in self._claims.find(BY_CLASS, class_of(volume)):
                if not spec_of(claim).get("volumeName"):
                    self.queue.add(("claim", key_of(claim)))

    def _class_changed(self, kind: str, storage_class: JsonObject, old: JsonObject | None) -> None:
        if kind == "DELETED":
            return
        for claim in self._claims:
            if not spec_of(claim).get("volumeName") and class_of(claim) in (
                "",
                name_of(storage_class),
            ):
                self.queue.add(("claim", key_of(claim)))


def _claim_ref(volume: JsonObject) -> tuple[str, ...]:
    """Key of the claim that a volume is reserved for."""
    reference = spec_of(volume).get("claimRef")
    return (_referenced_key(reference),) if reference else ()


def _referenced_key(reference: JsonObject) -> str:
    return f"{reference.get('namespace', '')}/{reference.get('name', '')}"


BY_CLASS = Index(lambda obj: (class_of(obj),))
BY_CLAIM_REF = Index(_claim_ref)
