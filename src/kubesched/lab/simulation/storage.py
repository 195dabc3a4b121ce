"""Storage in the simulated cluster: classes, local volumes, claims and their controllers.

The controllers are those of the embedded server. They react after a delay, so that a scheduler
really waits for its claims to be bound.
"""

from __future__ import annotations

from random import Random

from kubesched.insight.state.virtual_loop import LoopClock, VirtualLoop
from kubesched.lab.simulation.controllers import SlowControllers
from kubesched.lab.simulation.workloads import HOSTNAME, claim_names
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.client.local import LocalApi
from kubesched.playground.controllers.volumes import StorageDriver, VolumeBinder, VolumeProtection
from kubesched.playground.controllers.volumes.csi import CsiPublisher
from kubesched.playground.controllers.volumes.provisioner import Provisioner
from kubesched.playground.storage.store import Change, Store

CLAIMS = "persistentvolumeclaims"
VOLUMES = "persistentvolumes"
CLASSES = "storageclasses.storage.k8s.io"
RESOURCES = (CLAIMS, VOLUMES, CLASSES, "csinodes.storage.k8s.io", "csidrivers.storage.k8s.io")
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BOUND = "pv.kubernetes.io/bind-completed"
ACCESS_MODES = ("ReadWriteOnce", "ReadWriteOncePod")

LOCAL = "local"
"""Local volumes, created by hand, bound to the first consumer."""
NETWORK = "network"
"""Volumes provisioned in the zone of the first consumer's node."""
INSTANT = "instant"
"""Volumes provisioned immediately, in any zone."""
DRIVER = StorageDriver(
    name="csi.example.com", storage_class=NETWORK, is_default=False, volumes_per_node=3
)
_CAST = (VolumeBinder.name, VolumeProtection.name, CsiPublisher.name, Provisioner.name)


def storage_class(name: str, provisioner: str, binding_mode: str) -> JsonObject:
    return {
        "metadata": {"name": name},
        "provisioner": provisioner,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": binding_mode,
    }


def local_volume(name: str, node_name: str, access_mode: str = "ReadWriteOnce") -> JsonObject:
    """A local disk of a node."""
    on_node = {"key": HOSTNAME, "operator": "In", "values": [node_name]}
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": [access_mode],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": LOCAL,
            "local": {"path": "/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
        },
    }


def claim(name: str, class_name: str, access_mode: str = "ReadWriteOnce") -> JsonObject:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": [access_mode],
            "storageClassName": class_name,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


class SimulatedStorage:
    """Controllers with reaction times, and an administrator who adds disks and claims."""

    def __init__(
        self, loop: VirtualLoop, store: Store, api: LocalApi, clock: LoopClock, random: Random
    ) -> None:
        self._loop = loop
        self._api = api
        self._store = store
        self._random = random
        self._disk_count = 0
        api.create(
            CLASSES, storage_class(LOCAL, "kubernetes.io/no-provisioner", "WaitForFirstConsumer")
        )
        api.create(CLASSES, storage_class(INSTANT, DRIVER.name, "Immediate"))
        self.controllers = SlowControllers(
            loop,
            store,
            api,
            clock,
            random,
            names=_CAST,
            resources=("pods", "nodes", *RESOURCES),
            storage=(DRIVER,),
        )
        store.subscribe(CLAIMS, self._on_claim)
        store.subscribe(VOLUMES, self._on_volume)

    # Controllers.

    def _on_claim(self, change: Change) -> None:
        """Re-create a deleted claim that pods need."""
        if change.type == "DELETED":
            name = change.entry.obj["metadata"]["name"]
            self._loop.call_later(self._random.uniform(0.5, 5.0), self._replace_claim, name)

    def _replace_claim(self, name: str) -> None:
        pods, _revision = self._api.list("pods")
        if any(name in claim_names(pod) for pod in pods):
            self.ensure_claim(name)

    def _on_volume(self, change: Change) -> None:
        """Wipe a disk whose claim is gone, and offer it under a new name."""
        volume = change.entry.obj
        released = (volume.get("status") or {}).get("phase") == "Released"
        if change.type != "DELETED" and released and volume["spec"]["storageClassName"] == LOCAL:
            name = volume["metadata"]["name"]
            self._loop.call_later(self._random.uniform(0.5, 3.0), self._wipe, name)

    def _wipe(self, name: str) -> None:
        entry = self._store.get(VOLUMES, "", name)
        if entry is None or entry.obj["metadata"].get("deletionTimestamp"):
            return
        self._api.delete(VOLUMES, None, name)
        terms = entry.obj["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        self._add_disk(terms[0]["matchExpressions"][0]["values"][0])

    # Users.

    def equip(self, node_name: str) -> None:
        """Add disks to a new node."""
        for _ in range(self._random.choice((0, 1, 2))):
            self._add_disk(node_name)

    def _add_disk(self, node_name: str) -> None:
        self._disk_count += 1
        mode = self._random.choice(ACCESS_MODES)
        self._api.create(VOLUMES, local_volume(f"disk{self._disk_count}", node_name, mode))

    def promise_claims(self, pod: JsonObject) -> None:
        """Create the claims of a new pod, before it or a little later."""
        for name in claim_names(pod):
            if self._random.random() < 0.7:
                self.ensure_claim(name)
            else:
                self._loop.call_later(self._random.uniform(0.1, 5.0), self.ensure_claim, name)

    def ensure_claim(self, name: str) -> None:
        if self._store.get(CLAIMS, "default", name) is None:
            class_name = self._random.choice((LOCAL, NETWORK, NETWORK, INSTANT))
            mode = self._random.choice(ACCESS_MODES)
            self._api.create(CLAIMS, claim(name, class_name, mode))

    def _some_claim(self) -> JsonObject | None:
        claims, _revision = self._api.list(CLAIMS)
        return self._random.choice(claims) if claims else None

    def delete_claim(self) -> None:
        chosen = self._some_claim()
        if chosen is not None:
            self._api.delete(CLAIMS, "default", chosen["metadata"]["name"])

    def refuse_node(self) -> None:
        """The provisioner rejects the selected node, so the scheduler must choose again."""
        for claim in self._api.list(CLAIMS)[0]:
            chosen = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
            if chosen and not claim["spec"].get("volumeName"):
                patch: JsonObject = {"metadata": {"annotations": {SELECTED_NODE: None}}}
                self._api.patch(CLAIMS, "default", claim["metadata"]["name"], patch)
                return

    def disconnect(self) -> None:
        self.controllers.disconnect()


def is_bound(claim: JsonObject) -> bool:
    annotations = claim["metadata"].get("annotations") or {}
    return bool(claim["spec"].get("volumeName")) and BOUND in annotations


def reaches(volume: JsonObject, node: JsonObject) -> bool:
    """Whether a node can use a volume; supports the node affinity of the simulated cluster."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    if required is None:
        return True
    labels = node["metadata"].get("labels") or {}
    return any(
        all(
            labels.get(wanted["key"]) in wanted["values"]
            for wanted in term.get("matchExpressions") or ()
        )
        for term in required["nodeSelectorTerms"]
    )
