"""An isolated part of the cluster for episodes, with calls and watches that fail on request.

Its nodes carry their own label and taint, which only its pods select and tolerate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from kubesched.client.transport import Request
from kubesched.lab.simulation import devices, storage, workloads
from kubesched.lab.simulation.cluster import SimulatedCluster
from kubesched.lab.simulation.extenders import SimulatedExtender
from kubesched.lab.simulation.faults import CallFault, Network
from kubesched.lab.simulation.plugins import Door
from kubesched.lab.simulation.processes import Processes
from kubesched.lab.simulation.trace import Trace
from kubesched.playground.apimachinery.objects import JsonObject

STAGE = "example.com/stage"
STEP_S = 0.1
PATIENCE_S = 15.0
"""How long an episode waits for its next condition before it is broken off."""


class BrokenOff(Exception):
    """The situation did not occur, which proves nothing."""


class Stage:
    """The operations of an episode."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        processes: Processes,
        network: Network,
        door: Door,
        random: Random,
        trace: Trace,
        extender: SimulatedExtender,
        restore: Callable[[int], bool],
        complain: Callable[[str, str], None],
    ) -> None:
        """`restore` takes the cluster back to a revision, if that is still possible."""
        self.cluster = cluster
        self.processes = processes
        self.random = random
        self._restore = restore
        self.extender = extender
        self._scene = "first"
        self._network = network
        self._door = door
        self._trace = trace
        self._complain = complain

    def note(self, what: str) -> None:
        self._trace.add("episode", what)

    def begin(self, scene: str) -> None:
        """Start a scene: later nodes and pods belong only to it."""
        self._scene = scene
        self.cluster.pods_may_end = False  # finished pods would free resources

    def was_played(self, name: str) -> None:
        self._trace.census.tally("episodes", name)

    # Objects.

    def node(
        self, name: str, cpu: str = "2", *, zone: str = "", disks: int = 0, gpus: int = 0
    ) -> str:
        room = {"cpu": cpu, "memory": "4Gi", "pods": "110"}
        labels = {STAGE: self._scene}
        if disks:
            labels[workloads.HOSTNAME] = name
        if zone:
            labels[workloads.ZONE] = zone
        made = self.cluster.api.create(
            "nodes",
            {
                "metadata": {"name": name, "labels": labels},
                "spec": {"taints": [{"key": STAGE, "effect": "NoSchedule"}]},
                "status": {
                    "allocatable": room,
                    "capacity": room,
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            },
        )
        for number in range(disks):
            disk = storage.local_volume(f"{name}-disk{number}", name)
            self.cluster.api.create(storage.VOLUMES, disk)
        if gpus:
            there = [devices.gpu(number) for number in range(gpus)]
            self.cluster.api.create(devices.SLICES, devices.resource_slice(made, there))
        return name

    def patch_node(self, name: str, patch: JsonObject) -> None:
        self.cluster.api.patch("nodes", None, name, patch)

    def pod(
        self,
        name: str,
        cpu: str = "2",
        *,
        priority: str = "low",
        disk_claim: str = "",
        device_claim: str = "",
        tolerates: str = "",
        app: str = "stage",
    ) -> str:
        requests = {"cpu": cpu, "memory": "64Mi"}
        keys = [STAGE, tolerates] if tolerates else [STAGE]
        spec: JsonObject = {
            "containers": [{"name": "c", "image": "app", "resources": {"requests": requests}}],
            "nodeSelector": {STAGE: self._scene},
            "tolerations": [{"key": key, "operator": "Exists"} for key in keys],
            "priorityClassName": priority,
        }
        if disk_claim:
            source = {"claimName": disk_claim}
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": source}]
        if device_claim:
            spec["resourceClaims"] = [{"name": "d", "resourceClaimName": device_claim}]
        metadata = {"name": name, "namespace": "default", "labels": {"app": app}}
        self.cluster.api.create("pods", {"metadata": metadata, "spec": spec})
        return name

    def delete(self, pod: str, *, at_once: bool = False) -> None:
        self.cluster.api.delete("pods", "default", pod, grace_period_s=0 if at_once else None)

    # Conditions.

    async def until(self, what: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        """Wait for a condition; raises `BrokenOff` if it does not occur."""
        for _ in range(round(patience_s / STEP_S)):
            if what():
                return
            await asyncio.sleep(STEP_S)
        raise BrokenOff

    async def placed(self, pod: str) -> None:
        await self.until(lambda: bool(self.node_of(pod)))

    def node_of(self, pod: str) -> str:
        found = self.cluster.find_pod(pod)
        return "" if found is None else found["spec"].get("nodeName", "")

    async def rejected(self, pod: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until the pod has been tried and fits nowhere."""

        def was_tried() -> bool:
            found = self.cluster.find_pod(pod) or {}
            return bool((found.get("status") or {}).get("conditions"))

        await self.until(was_tried, patience_s)

    def hold(self, pod: str, seconds: float, verdict: str) -> None:
        """Hold the pod at Permit, then `allow` or `reject` it."""
        self._door.plans[pod] = seconds, verdict

    async def held(self, pod: str) -> None:
        await self.until(lambda: pod not in self._door.plans)

    # Faults.

    def fail_calls(
        self, method: str, path_end: str, fault: CallFault, *, times: int = 1, process: str = ""
    ) -> Callable[[], int]:
        """Let the next calls of this kind fail, by any or one process; returns a countdown."""
        left = times

        def on_call(sender: str, request: Request) -> CallFault | None:
            nonlocal left
            path = request.target.partition("?")[0]
            if left == 0 or request.method != method or not path.endswith(path_end):
                return None
            if process and sender != process:
                return None
            left -= 1
            self.note(f"{method} {path} {fault.how}")
            return fault

        self.processes.on_call = on_call
        return lambda: left

    def leader(self) -> str:
        for incarnation in self.processes.alive():
            if incarnation.process.may_write():
                return incarnation.name
        raise BrokenOff

    def delay_watch(self, resource: str, seconds: float) -> None:
        """Delay the watches of this resource."""
        self._network.delay_watches(resource, seconds)

    def expect_no_reservation(self, claim: str, pod: str) -> None:
        found = self.cluster.find_pod(pod)
        entry = self.cluster.store.get(devices.CLAIMS, "default", claim)
        if found is None or entry is None or found["spec"].get("nodeName"):
            raise BrokenOff
        consumers = (entry.obj.get("status") or {}).get("reservedFor") or ()
        if found["metadata"]["uid"] in (consumer["uid"] for consumer in consumers):
            self._complain(
                "no claim stays reserved for a pod that was not bound",
                f"{claim} is reserved for {pod}",
            )

    def restore(self, revision: int) -> None:
        """Restore a backup; watches from later revisions are silent from here on."""
        if not self._restore(revision):
            raise BrokenOff
        store = self.cluster.store
        self._network.server_revision = lambda: store.revision

    def end(self) -> None:
        self.processes.on_call = lambda _process, _request: None
        self._door.plans.clear()
