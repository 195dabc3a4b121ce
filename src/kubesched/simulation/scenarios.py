"""Fixed scenarios for sweeps: small enough that failing every single call is cheap."""

from __future__ import annotations

from kubesched.embedded.objects import JsonObject
from kubesched.simulation import storage
from kubesched.simulation.workloads import HOSTNAME, ZONE
from kubesched.simulation.world import Scenario


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
"""A pod with a volume that exists and one that has to be made; then one that wants a volume for itself."""

SCENARIOS = {scenario.name: scenario for scenario in (SCHEDULE, PREEMPTION, VOLUMES)}
