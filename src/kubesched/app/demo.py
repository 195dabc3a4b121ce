"""A demo workload: a few Deployments whose placement shows the scheduler's features."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from kubesched.playground.client.local import LocalApi

NAMESPACE = "demo"
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"


def manifests() -> list[tuple[str, dict[str, Any]]]:
    """(resource, object) pairs, in the order of creation."""
    selector = {"matchLabels": {"app": "web"}}
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }
    apart = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "store"}}}
    near = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "store"}}}
    return [
        ("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        ("deployments.apps", _deployment("web", 6, "250m", topologySpreadConstraints=[spread])),
        (
            "deployments.apps",
            _deployment("store", 3, "1", affinity={"podAntiAffinity": {_REQUIRED: [apart]}}),
        ),
        (
            "deployments.apps",
            _deployment("worker", 3, "500m", affinity={"podAffinity": {_REQUIRED: [near]}}),
        ),
    ]


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _deployment(name: str, replicas: int, cpu: str, **pod_spec: object) -> dict[str, Any]:
    labels = {"app": name}
    resources = {"requests": {"cpu": cpu, "memory": "256Mi"}}
    container = {"name": "main", "image": f"example.com/{name}:1.0", "resources": resources}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], **pod_spec},
            },
        },
    }


@dataclass(frozen=True, slots=True)
class Placement:
    """Node of a demo pod."""

    pod: str
    phase: str
    node: str
    zone: str


def create(api: LocalApi) -> int:
    """Create the missing objects; returns the expected number of pods."""
    from kubesched.base.errors import AlreadyExists

    expected = 0
    for resource, manifest in manifests():
        expected += manifest.get("spec", {}).get("replicas", 0)
        try:
            api.create(resource, manifest, manifest["metadata"].get("namespace"))
        except AlreadyExists:
            continue
    return expected


async def wait_until_running(api: LocalApi, expected: int, timeout_s: float) -> list[Placement]:
    """The placements once all pods run, or the current ones after the timeout."""
    changed = asyncio.Event()
    unsubscribe = api.subscribe("pods", lambda *_change: changed.set())
    try:
        async with asyncio.timeout(timeout_s):
            while sum(placement.phase == "Running" for placement in placements(api)) < expected:
                changed.clear()
                await changed.wait()
    except TimeoutError:
        return placements(api)
    finally:
        unsubscribe()
    return placements(api)


def placements(api: LocalApi) -> list[Placement]:
    nodes, _ = api.list("nodes")
    zones = {
        node["metadata"]["name"]: node["metadata"].get("labels", {}).get(ZONE, "") for node in nodes
    }
    pods, _ = api.list("pods", NAMESPACE)
    placed = []
    for pod in pods:
        node = pod["spec"].get("nodeName", "")
        phase = pod.get("status", {}).get("phase", "")
        placed.append(Placement(pod["metadata"]["name"], phase, node, zones.get(node, "")))
    return sorted(placed, key=lambda placement: placement.pod)
