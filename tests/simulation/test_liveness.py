"""What a fresh scheduler finds to do, and how long the simulated one may take to do it."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kubesched.insight.state.virtual_loop import VirtualLoop, run_virtual
from kubesched.lab.simulation import storage, workloads
from kubesched.lab.simulation.cluster import SimulatedCluster
from kubesched.lab.simulation.liveness import BOUND_S, POLL_S, wait_until_settled
from kubesched.lab.simulation.placeable import what_can_be_placed
from kubesched.lab.simulation.trace import Pending, Trace, Violation
from kubesched.playground.apimachinery.objects import JsonObject

APART_FROM_WEB: JsonObject = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": workloads.HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}}
        ]
    }
}


def _pod(name: str, cpu: str, **spec: Any) -> JsonObject:
    container = {"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default", "labels": {"app": "web"}}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}


def _placeable(preemptor: JsonObject, nominated: str) -> Pending | None:
    """What can be done for the preemptor on a node of 2 CPUs where a pod of 1500m is in its way."""

    async def main(loop: VirtualLoop) -> Pending | None:
        cluster = SimulatedCluster(loop, Random(1), Trace(loop.time))
        node = workloads.node("n1", Random(1))
        node["status"]["allocatable"]["cpu"] = "2"
        cluster.api.create("nodes", node)
        cluster.api.create("pods", _pod("victim", "1500m", nodeName="n1"))
        cluster.api.create("pods", preemptor)
        status = {"status": {"nominatedNodeName": nominated}}
        cluster.api.patch("pods", "default", "preemptor", status, subresource="status")
        return what_can_be_placed(cluster)

    return run_virtual(main)


@pytest.mark.parametrize("nominated", ["", "n1"], ids=["not nominated", "nominated before"])
@pytest.mark.parametrize(
    ("cpu", "affinity", "is_late"),
    [("1", {}, False), ("100m", {"affinity": APART_FROM_WEB}, True)],
    ids=["lacks room", "lacks more than room"],
)
def test_a_preemptor_is_known_whether_or_not_it_was_nominated_before(
    cpu: str, affinity: JsonObject, is_late: bool, nominated: str
) -> None:
    preemptor = _pod("preemptor", cpu, priorityClassName="high", **affinity)
    found = _placeable(preemptor, nominated)
    what = "default/victim would be preempted; default/preemptor fits on n1"
    assert found == Pending(what, is_late=is_late, has_victims=not is_late)


def test_a_pod_with_a_claim_has_the_longer_bound() -> None:
    """A volume that was assumed for another pod and given back is no event."""

    async def main(loop: VirtualLoop) -> Pending | None:
        cluster = SimulatedCluster(loop, Random(1), Trace(loop.time), ("volumes",))
        cluster.api.create("nodes", workloads.node("n1", Random(1)))
        cluster.api.create(storage.VOLUMES, storage.local_volume("disk", "n1"))
        cluster.api.create(storage.CLAIMS, storage.claim("data", storage.LOCAL))
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        cluster.api.create("pods", _pod("waits", "1", volumes=volumes))
        await asyncio.sleep(60)  # the volume becomes available
        return what_can_be_placed(cluster)

    found = run_virtual(main)
    assert found == Pending("PersistentVolume disk would be promised", is_late=True)


@pytest.mark.parametrize("untold", [True, False])
def test_a_pod_that_a_plugin_turned_down_has_the_longer_bound(untold: bool) -> None:
    async def main(loop: VirtualLoop) -> Pending | None:
        cluster = SimulatedCluster(loop, Random(1), Trace(loop.time))
        cluster.api.create("nodes", workloads.node("n1", Random(1)))
        cluster.api.create("pods", _pod("waits", "1"))
        return what_can_be_placed(cluster, untold=lambda _pod: untold)

    found = run_virtual(main)
    assert found == Pending("default/waits fits on n1", is_late=untold)


@pytest.mark.parametrize("deleted_at_s", [0.0, 60.0], ids=["at once", "later"])
def test_the_bound_counts_from_the_last_pod_that_was_placed_or_evicted(deleted_at_s: float) -> None:
    """No process schedules here, so that the cluster never settles."""

    async def main(loop: VirtualLoop) -> float:
        trace = Trace(loop.time)
        cluster = SimulatedCluster(loop, Random(1), trace)
        cluster.api.create("pods", _pod("victim", "1"))
        loop.call_later(deleted_at_s, cluster.api.delete, "pods", "default", "victim")
        nobody: Any = SimpleNamespace(alive=list)
        with pytest.raises(Violation, match="no process schedules"):
            await asyncio.wait_for(wait_until_settled(loop, cluster, nobody, nobody, trace), 1000)
        return loop.time()

    expected_s = BOUND_S + deleted_at_s
    assert expected_s < run_virtual(main) <= expected_s + 2 * POLL_S
