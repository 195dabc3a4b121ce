"""The dynamic provisioner: creates and deletes volumes for claims.

Acts as the CSI external provisioner for the configured drivers. A claim with WaitForFirstConsumer
is served once the scheduler has written the chosen node into `volume.kubernetes.io/selected-node`;
if no volume can be created there, the annotation is removed and the scheduler tries another node.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.base.errors import AlreadyExists
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    annotations_of,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    spec_of,
    status_of,
    uid_of,
)
from kubesched.playground.client.controller import Controller, ControllerContext
from kubesched.playground.controllers.volumes.binder import PROVISIONED_BY, PROVISIONER
from kubesched.playground.controllers.volumes.csi import ZONE, StorageDriver
from kubesched.playground.controllers.volumes.selection import (
    SELECTED_NODE,
    class_of,
    reference_to,
)

CLAIMS = "persistentvolumeclaims"
VOLUMES = "persistentvolumes"

RETRY_S = 15.0
"""Delay before retrying a volume that no zone is allowed for."""

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
        zone, problem = self._choose_zone(driver, storage_class, claim, selected)
        if not zone:
            return self._give_up(driver, storage_class, claim, problem)
        volume = build_volume(driver, claim, storage_class, zone)
        try:
            self.api.create(VOLUMES, volume)
        except AlreadyExists:
            return None
        message = f"Successfully provisioned volume {name_of(volume)}"
        self.events.normal(claim, driver.name, "ProvisioningSucceeded", message)
        return None

    def _choose_zone(
        self, driver: StorageDriver, storage_class: JsonObject, claim: JsonObject, selected: str
    ) -> tuple[str, str]:
        """Zone of the volume, that of the selected node or any; or "" and why there is none."""
        zones = sorted({labels_of(node)[ZONE] for node in self._nodes if ZONE in labels_of(node)})
        if not zones:
            return "", "no topology key found on CSINode"
        if selected:
            node = self._nodes.get(selected)
            if node is None:
                return "", f'node "{selected}" not found'
            own = labels_of(node).get(ZONE)
            if own is None:
                return "", f'node "{selected}" has no topology for driver {driver.name}'
            zones = [own]
        allowed = [zone for zone in zones if _allows(storage_class.get("allowedTopologies"), zone)]
        if not allowed:
            which = "selected node is not" if selected else "no node is"
            return "", f"{which} in allowed topology"
        # Spread over zones, deterministically per claim.
        return allowed[int(uid_of(claim).replace("-", "") or "0", 16) % len(allowed)], ""

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


def _allows(terms: Sequence[JsonObject] | None, zone: str) -> bool:
    """Whether a class's allowedTopologies include a zone; no terms allow all."""
    labels = {ZONE: zone}
    return not terms or any(
        bool(term.get("matchLabelExpressions"))
        and all(
            labels.get(requirement.get("key", "")) in (requirement.get("values") or ())
            for requirement in term["matchLabelExpressions"]
        )
        for term in terms
    )


def build_volume(
    driver: StorageDriver, claim: JsonObject, storage_class: JsonObject, zone: str
) -> JsonObject:
    """The volume for a claim, reserved for it and reachable from its zone."""
    in_zone = {"key": ZONE, "operator": "In", "values": [zone]}
    requests = (spec_of(claim).get("resources") or {}).get("requests") or {}
    spec: JsonObject = {
        "capacity": {"storage": requests.get("storage", "0")},
        "accessModes": list(spec_of(claim).get("accessModes") or ()),
        "claimRef": reference_to(claim),
        "csi": {"driver": driver.name, "volumeHandle": volume_name(claim)},
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
        "storageClassName": name_of(storage_class),
        "volumeMode": spec_of(claim).get("volumeMode") or "Filesystem",
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [in_zone]}]}},
    }
    if storage_class.get("mountOptions"):
        spec["mountOptions"] = list(storage_class["mountOptions"])
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": volume_name(claim),
            "annotations": {PROVISIONED_BY: driver.name},
        },
        "spec": spec,
    }
