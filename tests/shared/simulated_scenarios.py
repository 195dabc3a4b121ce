"""Fixed scenarios for sweeps: small enough that failing every single call is cheap."""

from __future__ import annotations

from kubesched.lab.simulation import devices, storage
from kubesched.lab.simulation.workloads import EXTENDED_RESOURCE, HOSTNAME, ZONE
from kubesched.lab.simulation.world import Scenario
from kubesched.playground.apimachinery.objects import JsonObject


def _node(name: str) -> JsonObject:
    room = {"cpu": "2", "memory": "4Gi", "pods": "10"}
    return {
        "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: "a"}},
        "spec": {},
        "status": {"allocatable": room, "capacity": room},
    }


def _pod(name: str, cpu: str, priority: str = "", claims: tuple[str, ...] = ()) -> JsonObject:
    container = {"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu}}}
    spec: JsonObject = {"containers": [container]}
    if priority:
        spec["priorityClassName"] = priority
    if claims:
        spec["volumes"] = [
            {"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims
        ]
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


SCHEDULE = Scenario(
    name="schedule",
    steps=(
        (0.0, "nodes", _node("n1")),
        (0.0, "nodes", _node("n2")),
        (1.0, "pods", _pod("a", "1500m")),
        (0.0, "pods", _pod("b", "1500m")),
        (0.0, "pods", _pod("waits", "1500m")),
        (3.0, "nodes", _node("n3")),
    ),
)
"""Two pods fit at once, the third once another node comes."""

PREEMPTION = Scenario(
    name="preemption",
    steps=(
        (0.0, "nodes", _node("n1")),
        (1.0, "pods", _pod("low-1", "1", "low")),
        (0.1, "pods", _pod("low-2", "1", "low")),
        (3.0, "pods", _pod("high", "2", "high")),
    ),
)
"""A pod of high priority takes the place of two others."""

VOLUMES = Scenario(
    name="volumes",
    steps=(
        (0.0, "nodes", _node("n1")),
        (0.0, storage.VOLUMES, storage.local_volume("disk", "n1")),
        (0.0, storage.CLAIMS, storage.claim("on-disk", storage.LOCAL)),
        (0.0, storage.CLAIMS, storage.claim("made", storage.NETWORK)),
        (1.0, "pods", _pod("both", "1", claims=("on-disk", "made"))),
        (3.0, storage.CLAIMS, storage.claim("alone", storage.NETWORK, "ReadWriteOncePod")),
        (0.0, "pods", _pod("late", "500m", claims=("alone",))),
    ),
    extras=("volumes",),
)
"""A pod with a volume that exists and one that has to be made; then one that wants a volume for
itself.
"""


def _slice(node_name: str, devices_there: int) -> JsonObject:
    node = {"metadata": {"name": node_name, "uid": ""}}
    made = devices.resource_slice(node, [devices.gpu(number) for number in range(devices_there)])
    del made["metadata"]["ownerReferences"]
    return made


def _pod_with_devices(name: str, **source: str) -> JsonObject:
    pod = _pod(name, "500m")
    pod["spec"]["resourceClaims"] = [{"name": "gpu", **source}]
    return pod


DEVICES = Scenario(
    name="devices",
    steps=(
        (0.0, "nodes", _node("n1")),
        (0.0, devices.SLICES, _slice("n1", 2)),
        (0.0, devices.CLAIMS, devices.claim("ours")),
        (1.0, "pods", _pod_with_devices("own", resourceClaimTemplateName="one")),
        (0.0, "pods", _pod_with_devices("sharing", resourceClaimName="ours")),
        (0.0, "pods", _pod_with_devices("waits", resourceClaimTemplateName="one")),
        (5.0, "nodes", _node("n2")),
        (0.0, devices.SLICES, _slice("n2", 1)),
    ),
    duration_s=30.0,
    extras=("devices",),
)
"""A claim made for a pod, one made by hand, and one that waits until another node brings a device.
"""


def _pod_with_resource(name: str) -> JsonObject:
    pod = _pod(name, "500m")
    resources = pod["spec"]["containers"][0]["resources"]
    resources["requests"][EXTENDED_RESOURCE] = "1"
    resources["limits"] = {EXTENDED_RESOURCE: "1"}
    return pod


EXTENDED_RESOURCES = Scenario(
    name="extended resources",
    steps=(
        (0.0, "nodes", _node("n1")),
        (0.0, devices.SLICES, _slice("n1", 1)),
        (1.0, "pods", _pod_with_resource("served")),
        (1.0, "pods", _pod_with_resource("waits")),
        (5.0, "nodes", _node("n2")),
        (0.0, devices.SLICES, _slice("n2", 1)),
    ),
    duration_s=30.0,
    extras=("devices",),
)
"""Two pods whose extended resource is a device: the scheduler makes a claim for each."""

SCENARIOS = {
    scenario.name: scenario
    for scenario in (SCHEDULE, PREEMPTION, VOLUMES, DEVICES, EXTENDED_RESOURCES)
}
