"""Devices in the simulated cluster: slices, claims and the claim controller."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from kubesched.config.features import FeatureGates
from kubesched.insight.state.virtual_loop import LoopClock, VirtualLoop
from kubesched.lab.simulation.controllers import SlowControllers
from kubesched.lab.simulation.workloads import CLAIM_TEMPLATES, EXTENDED_RESOURCE, SHARED_CLAIMS
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.client.local import LocalApi
from kubesched.playground.controllers.garbage_collector import GarbageCollector
from kubesched.playground.controllers.pod_group_protection import POD_GROUPS
from kubesched.playground.controllers.resource_claims import CLAIMS as CLAIMS
from kubesched.playground.controllers.resource_claims import TEMPLATES
from kubesched.playground.controllers.resource_claims import ResourceClaimController as Controller
from kubesched.playground.storage.store import Store

CLASSES = "deviceclasses.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"
DRIVER = "gpu.example.com"
CLASS = "gpu"


def device_class() -> JsonObject:
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    spec = {"selectors": [selector], "extendedResourceName": EXTENDED_RESOURCE}
    return {"metadata": {"name": CLASS}, "spec": spec}


def claim_spec(kind: str) -> JsonObject:
    """The spec of a template's claim, or of a shared one."""
    one = {"deviceClassName": CLASS}
    large = {"cel": {"expression": f'device.attributes["{DRIVER}"].large'}}
    requests: dict[str, JsonObject] = {
        "one": {"exactly": one},
        "two": {"exactly": {**one, "count": 2}},
        "all": {"exactly": {**one, "allocationMode": "All"}},
        "part": {"exactly": {**one, "capacity": {"requests": {"memory": "1Gi"}}}},
        "either": {
            "firstAvailable": [
                {"name": "large", **one, "selectors": [large]},
                {"name": "any", **one},
            ]
        },
    }
    made: JsonObject = {"requests": [{"name": "gpu", **requests.get(kind, requests["two"])}]}
    if kind == "alike":
        made["constraints"] = [{"requests": ["gpu"], "matchAttribute": f"{DRIVER}/large"}]
    return {"devices": made}


def claim(name: str, kind: str = "one") -> JsonObject:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": claim_spec(kind)}


def template(kind: str) -> JsonObject:
    metadata = {"name": kind, "namespace": "default"}
    return {"metadata": metadata, "spec": {"spec": claim_spec(kind)}}


def resource_slice(node: JsonObject, devices: list[JsonObject], generation: int = 1) -> JsonObject:
    """The slice published for a node, which owns it."""
    name = node["metadata"]["name"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
    return {
        "metadata": {"name": f"{name}-gpu", "ownerReferences": [owner]},
        "spec": {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": generation, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def gpu(number: int, *, is_large: bool = False, is_shared: bool = False) -> JsonObject:
    return {
        "name": f"gpu-{number}",
        "attributes": {"large": {"bool": is_large}},
        "capacity": {"memory": {"value": "3Gi"}},
        "allowMultipleAllocations": is_shared,
    }


def allocated_devices(claim: JsonObject) -> Iterator[tuple[str, str, str, str]]:
    """Driver, pool, name and share of each device allocated to a claim."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        yield result["driver"], result["pool"], result["device"], result.get("shareID", "")


class SimulatedDevices:
    """Controllers with reaction times, and drivers that publish, withdraw and change slices."""

    def __init__(
        self,
        loop: VirtualLoop,
        store: Store,
        api: LocalApi,
        clock: LoopClock,
        random: Random,
        gates: FeatureGates,
    ) -> None:
        self._api = api
        self._random = random
        api.create(CLASSES, device_class())
        for kind in CLAIM_TEMPLATES:
            api.create(TEMPLATES, template(kind))
        for name in SHARED_CLAIMS:
            api.create(CLAIMS, claim(name, random.choice(CLAIM_TEMPLATES)))
        groups = (POD_GROUPS,) if gates.DRAWorkloadResourceClaims else ()
        self.controllers = SlowControllers(
            loop,
            store,
            api,
            clock,
            random,
            names=(Controller.name, GarbageCollector.name),
            resources=("pods", "nodes", CLAIMS, SLICES, *groups),
            gates=gates,
        )

    def equip(self, node: JsonObject) -> None:
        """Add devices to a new node."""
        if self._random.random() < 0.8:
            self._api.create(SLICES, resource_slice(node, self._some_devices()))

    def _some_devices(self) -> list[JsonObject]:
        devices = [
            gpu(
                number,
                is_large=self._random.random() < 0.4,
                is_shared=self._random.random() < 0.25,
            )
            for number in range(self._random.randint(1, 4))
        ]
        if self._random.random() < 0.1:
            devices[0]["taints"] = [{"key": "example.com/broken", "effect": "NoSchedule"}]
        return devices

    def change_slice(self) -> None:
        """A driver publishes other devices, withdraws its slice, or adds one to a node without."""
        nodes = self._api.list("nodes")[0]
        if not nodes:
            return
        node = self._random.choice(nodes)
        name = f"{node['metadata']['name']}-gpu"
        known = next(
            (item for item in self._api.list(SLICES)[0] if item["metadata"]["name"] == name), None
        )
        if known is None:
            self._api.create(SLICES, resource_slice(node, self._some_devices()))
        elif self._random.random() < 0.3:
            self._api.delete(SLICES, None, name)
        else:
            generation = known["spec"]["pool"]["generation"] + 1
            spec = resource_slice(node, self._some_devices(), generation)["spec"]
            self._api.patch(SLICES, None, name, {"spec": spec})

    def delete_resource_claim(self) -> None:
        """A user deletes a claim; shared ones are created again."""
        claims = self._api.list(CLAIMS)[0]
        if not claims:
            return
        self._api.delete(CLAIMS, "default", self._random.choice(claims)["metadata"]["name"])

    def restore_shared_claims(self) -> None:
        known = {item["metadata"]["name"] for item in self._api.list(CLAIMS)[0]}
        for name in SHARED_CLAIMS:
            if name not in known:
                self._api.create(CLAIMS, claim(name, self._random.choice(CLAIM_TEMPLATES)))

    def disconnect(self) -> None:
        self.controllers.disconnect()
