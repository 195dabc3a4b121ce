"""Fixed stories for sweeps: small enough that failing every single call is cheap."""

from __future__ import annotations

from kubesched.embedded.objects import JsonObject
from kubesched.simulation.workloads import HOSTNAME
from kubesched.simulation.world import Scenario


def _node(name: str) -> JsonObject:
    room = {"cpu": "2", "memory": "4Gi", "pods": "10"}
    return {
        "metadata": {"name": name, "labels": {HOSTNAME: name}},
        "spec": {},
        "status": {"allocatable": room, "capacity": room},
    }


def _pod(name: str, cpu: str, priority: str = "") -> JsonObject:
    container = {"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu}}}
    spec: JsonObject = {"containers": [container]}
    if priority:
        spec["priorityClassName"] = priority
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

SCENARIOS = {scenario.name: scenario for scenario in (SCHEDULE, PREEMPTION)}
