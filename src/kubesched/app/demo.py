"""A demo workload, `demo.yaml`: Deployments whose placement shows the scheduler's features."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from importlib import resources

from kubesched.playground.client.local import LocalApi

NAMESPACE = "demo"
ZONE = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class Placement:
    """Node of a demo pod."""

    pod: str
    phase: str
    node: str
    zone: str


def create(api: LocalApi) -> int:
    """Create the missing objects; returns the expected number of pods."""
    from kubesched.api.yaml_nodes import load
    from kubesched.base.errors import AlreadyExists

    expected = 0
    for manifest in load(resources.files(__package__).joinpath("demo.yaml").read_bytes()):
        expected += manifest.get("spec", {}).get("replicas", 0)
        kind = api.catalog.find_kind(manifest["apiVersion"], manifest["kind"])
        assert kind is not None, manifest["kind"]
        with contextlib.suppress(AlreadyExists):
            api.create(kind, manifest, manifest["metadata"].get("namespace"))
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
