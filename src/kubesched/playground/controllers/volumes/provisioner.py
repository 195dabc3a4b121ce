"""The dynamic provisioner: creates and deletes volumes for claims.

Acts as the CSI external provisioner for the configured drivers. A claim with WaitForFirstConsumer
is served once the scheduler has written the chosen node into `volume.kubernetes.io/selected-node`;
if no volume can be created there, the annotation is removed and the scheduler tries another node.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.api import quantity
from kubesched.base.errors import AlreadyExists
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
from kubesched.playground.controllers.volumes.binder import PROVISIONED_BY, PROVISIONER
from kubesched.playground.controllers.volumes.csi import (
    Segment,
    StorageDriver,
    allows,
    used_by_segment,
)
from kubesched.playground.controllers.volumes.selection import (
    SELECTED_NODE,
    class_of,
    reference_to,
    requested_bytes,
)

CLAIMS = "persistentvolumeclaims"
VOLUMES = "persistentvolumes"

RETRY_S = 15.0
"""Delay before retrying a volume that no segment had room for."""

Key = tuple[str, str]
"""("claim", namespace/name) or ("volume", name)."""


class Provisioner(Controller[Key]):
    """Serves the claims and volumes of the configured drivers."""

    name = "provisioner"

    def __init__(self, context: ControllerContext, drivers: Sequence[StorageDriver]) -> None:
        super().__init__(context)
        self._drivers = {driver.name: driver for driver in drivers}
        self._claims = self.watch(CLAIMS, lambda _, obj, __: self.queue.add(("claim", key_of(obj))))
        self._volumes = self.watch(
            VOLUMES, lambda _, obj, __: self.queue.add(("volume", name_of(obj)))
        )
        self._classes = self.watch("storageclasses.storage.k8s.io")
        self._nodes = self.watch("nodes")

    def sync(self, key: Key) -> float | None:
        kind, name = key
        if kind == "claim":
            claim = self._claims.get(name)
            return self._provision(claim) if claim is not None else None
        volume = self._volumes.get(name)
        if volume is not None:
            self._remove_released(volume)
        return None

    # -- making ----------------------------------------------------------------------------------

    def _provision(self, claim: JsonObject) -> float | None:
        """Create the claim's volume if due; returns when to retry if that is not possible."""
        driver = self._drivers.get(annotations_of(claim).get(PROVISIONER, ""))
        if driver is None or is_deleting(claim) or spec_of(claim).get("volumeName"):
            return None
        storage_class = self._classes.get(class_of(claim))
        if storage_class is None or self._volumes.get(volume_name(claim)) is not None:
            return None
        waits = storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
        selected = annotations_of(claim).get(SELECTED_NODE, "")
        if waits and not selected:
            return None
        message = f'External provisioner is provisioning volume for claim "{key_of(claim)}"'
        self.events.normal(claim, driver.name, "Provisioning", message)
        segment, problem = self._choose_segment(driver, storage_class, claim, selected)
        if segment is None:
            return self._give_up(driver, storage_class, claim, problem)
        volume = build_volume(driver, claim, storage_class, segment)
        try:
            self.api.create(VOLUMES, volume)
        except AlreadyExists:
            return None
        message = f"Successfully provisioned volume {name_of(volume)}"
        self.events.normal(claim, driver.name, "ProvisioningSucceeded", message)
        return None

    def _choose_segment(
        self, driver: StorageDriver, storage_class: JsonObject, claim: JsonObject, selected: str
    ) -> tuple[Segment | None, str]:
        """Segment of the volume: that of the selected node, else the emptiest allowed one."""
        if selected:
            node = self._nodes.get(selected)
            if node is None:
                return None, f'node "{selected}" not found'
            own = driver.segment_of(node)
            if own is None:
                return None, f'node "{selected}" has no topology for driver {driver.name}'
            segments = [own]
        else:
            segments = sorted(
                {
                    segment
                    for node in self._nodes
                    if (segment := driver.segment_of(node)) is not None
                }
            )
            if not segments:
                return None, "no topology key found on CSINode"
        terms = storage_class.get("allowedTopologies")
        allowed = [segment for segment in segments if allows(terms, segment)]
        if not allowed:
            return (
                None,
                "selected node is not in allowed topology"
                if selected
                else "no node is in allowed topology",
            )
        return self._with_room(driver, claim, allowed)

    def _with_room(
        self, driver: StorageDriver, claim: JsonObject, segments: list[Segment]
    ) -> tuple[Segment | None, str]:
        if not driver.segment_capacity:
            # Spread over segments, deterministically per claim.
            return segments[int(uid_of(claim).replace("-", "") or "0", 16) % len(segments)], ""
        used = used_by_segment(driver, self._volumes)
        total = quantity.value(driver.segment_capacity)
        free = {segment: total - used.get(segment, 0) for segment in segments}
        best = max(segments, key=lambda segment: free[segment])
        if free[best] < requested_bytes(claim):
            return None, "rpc error: code = ResourceExhausted desc = not enough capacity"
        return best, ""

    def _give_up(
        self, driver: StorageDriver, storage_class: JsonObject, claim: JsonObject, problem: str
    ) -> float | None:
        message = (
            f'failed to provision volume with StorageClass "{name_of(storage_class)}": {problem}'
        )
        self.events.warning(claim, driver.name, "ProvisioningFailed", message)
        if SELECTED_NODE not in annotations_of(claim):
            return RETRY_S  # no event will follow for this claim
        patch = {"metadata": {"annotations": {SELECTED_NODE: None}}}
        self.api.patch_object(CLAIMS, claim, patch)
        return None

    # -- removing --------------------------------------------------------------------------------

    def _remove_released(self, volume: JsonObject) -> None:
        if annotations_of(volume).get(PROVISIONED_BY) not in self._drivers or is_deleting(volume):
            return
        if status_of(volume).get("phase") != "Released":
            return
        if spec_of(volume).get("persistentVolumeReclaimPolicy") != "Delete":
            return
        self.api.delete_object(VOLUMES, volume)


def volume_name(claim: JsonObject) -> str:
    return f"pvc-{uid_of(claim)}"


def build_volume(
    driver: StorageDriver, claim: JsonObject, storage_class: JsonObject, segment: Segment
) -> JsonObject:
    """The volume for a claim, reserved for it and reachable from its segment."""
    requests = (spec_of(claim).get("resources") or {}).get("requests") or {}
    spec: JsonObject = {
        "capacity": {"storage": requests.get("storage", "0")},
        "accessModes": list(spec_of(claim).get("accessModes") or ()),
        "claimRef": reference_to(claim),
        "csi": {"driver": driver.name, "volumeHandle": volume_name(claim)},
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
        "storageClassName": name_of(storage_class),
        "volumeMode": spec_of(claim).get("volumeMode") or "Filesystem",
    }
    if storage_class.get("mountOptions"):
        spec["mountOptions"] = list(storage_class["mountOptions"])
    if segment:
        requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in segment]
        spec["nodeAffinity"] = {
            "required": {"nodeSelectorTerms": [{"matchExpressions": requirements}]}
        }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": volume_name(claim),
            "annotations": {PROVISIONED_BY: driver.name},
        },
        "spec": spec,
    }
