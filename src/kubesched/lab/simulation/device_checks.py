"""Invariants about device allocations, at every commit and once the run is quiet."""

from __future__ import annotations

from collections import Counter

from kubesched.api.names import key_of_manifest
from kubesched.api.resource_v1 import EXTENDED_RESOURCE_CLAIM_ANNOTATION
from kubesched.lab.simulation import devices
from kubesched.lab.simulation.cluster import SimulatedCluster
from kubesched.lab.simulation.processes import Incarnation
from kubesched.lab.simulation.trace import Complaints
from kubesched.lab.simulation.workloads import (
    group_name,
    resource_claim_names,
    wants_extended_resource,
)
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.storage.store import Change
from kubesched.plugins.dynamic_resources.claim_tracker import ClaimTracker


class DeviceChecks:
    """The claim checks of one run."""

    def __init__(
        self, cluster: SimulatedCluster, complaints: Complaints, *, has_one_writer: bool
    ) -> None:
        self._cluster = cluster
        self._complaints = complaints
        self._has_one_writer = has_one_writer
        cluster.store.subscribe(devices.CLAIMS, self._on_claim)

    def _claims(self) -> list[JsonObject]:
        return self._cluster.api.list(devices.CLAIMS)[0]

    def _on_claim(self, change: Change) -> None:
        """One writer allocates no device twice; two may, since separate claims do not conflict."""
        claim = change.entry.obj
        if change.type == "DELETED" or not self._has_one_writer:
            return
        if change.old is not None and devices_held(change.old.obj) == devices_held(claim):
            return
        mine, key = devices_held(claim), key_of_manifest(claim)
        for other in self._claims():
            if key_of_manifest(other) != key and (both := mine & devices_held(other)):
                self._complaints.add(
                    "no device is allocated twice",
                    f"{key} and {key_of_manifest(other)} hold {sorted(both)}",
                )

    def on_binding(self, pod: JsonObject, node_name: str) -> None:
        """A pod is bound where its claims are allocated, after they were reserved for it."""
        if not self._has_one_writer:
            return
        uid, entries = pod["metadata"]["uid"], pod["spec"].get("resourceClaims") or ()
        names = resource_claim_names(pod)
        where = f"{key_of_manifest(pod)} to {node_name}"
        wanted = len(entries) + wants_extended_resource(pod)
        if used := (pod.get("status") or {}).get("extendedResourceClaimStatus"):
            names.append(used["resourceClaimName"])
        if len(names) < wanted:
            self._complaints.add("pods are bound with their devices", f"{where}: claims missing")
        for name in names:
            entry = self._cluster.store.get(devices.CLAIMS, "default", name)
            status = {} if entry is None else entry.obj.get("status") or {}
            users = {  # Upstream: a group is known by its name.
                user["uid"] if user["resource"] == "pods" else user["name"]
                for user in status.get("reservedFor") or ()
            }
            if not users & {uid, group_name(pod)}:
                why = f"{where}: {name} is not reserved for it"
                self._complaints.add("pods are bound with their devices", why)
            elif any(held[1] != node_name for held in devices_held(entry.obj if entry else {})):
                why = f"{where}: {name} is allocated elsewhere"
                self._complaints.add("pods are bound with their devices", why)

    def leftover(self) -> str | None:
        """A claim reserved for a deleted or finished pod or group; None if there is none."""
        groups = {group["metadata"]["uid"] for group in self._cluster.groups()}
        alive = {pod["metadata"]["uid"]: pod for pod in self._cluster.active_pods()}
        known = {pod["metadata"]["uid"] for pod in self._cluster.pods()} | groups
        for claim in self._claims():
            name = claim["metadata"]["name"]
            if _is_special(claim) and claim["metadata"].get("deletionTimestamp"):
                # Upstream: of the end of a pod that was not bound the claim controller hears by the
                # deletion of the claim alone, and a second deletion changes nothing.
                continue
            for consumer in (claim.get("status") or {}).get("reservedFor") or ():
                if consumer["uid"] not in alive.keys() | groups:
                    return f"{name} is reserved for {consumer['name']}"
            for owner in claim["metadata"].get("ownerReferences") or ():
                if owner["uid"] not in known:
                    return f"{name} was made for {owner['name']}"
                if owner["uid"] in alive and _is_abandoned(claim, alive[owner["uid"]]):
                    return f"{name} holds devices for {owner['name']}, which uses others"
        return None

    def difference(self, incarnation: Incarnation) -> str | None:
        """How a scheduler's set of allocated devices differs from the claims; None if equal."""
        frameworks = incarnation.process.assembly.frameworks.values()
        tracker: ClaimTracker = next(iter(frameworks)).handle.dra_manager.claims
        held = Counter(
            (*device, bool(share))
            for claim in self._claims()
            for *device, share in devices_held(claim)
        )
        allocated = tracker.allocated
        counted = {(*device, False): count for device, count in allocated.exclusive.items()}
        counted |= {(*device, True): count for device, count in allocated.shares.items()}
        if dict(held) != counted:
            return f"devices held {sorted(held.items())}, counted {sorted(counted.items())}"
        return None


def _is_abandoned(claim: JsonObject, pod: JsonObject) -> bool:
    """Whether the pod was bound without this claim for its extended resources."""
    if not _is_special(claim) or not devices_held(claim):
        return False
    used = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    is_used: bool = used.get("resourceClaimName") == claim["metadata"]["name"]
    return bool(pod["spec"].get("nodeName")) and not is_used


def _is_special(claim: JsonObject) -> bool:
    """Whether the scheduler made it for extended resources."""
    return EXTENDED_RESOURCE_CLAIM_ANNOTATION in (claim["metadata"].get("annotations") or {})


def devices_held(claim: JsonObject) -> frozenset[tuple[str, str, str, str]]:
    return frozenset(devices.allocated_devices(claim))
