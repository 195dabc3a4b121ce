"""Which pods wait only because the misbehaving plugin rejected them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.insight.state.virtual_loop import VirtualLoop, run_virtual
from kubesched.lab.simulation import workloads
from kubesched.lab.simulation.cluster import SimulatedCluster
from kubesched.lab.simulation.plugins import TROUBLEMAKER, Mischief
from kubesched.lab.simulation.trace import Trace
from kubesched.lab.simulation.turned_down import TurnedDown
from kubesched.plugins.node_resources.fit import NodeResourcesFit


def _nothing(_cluster: SimulatedCluster) -> None:
    pass


def _pod(name: str) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": containers}}


def _is_excused(
    *,
    before: Callable[[SimulatedCluster], object] = _nothing,
    after: Callable[[SimulatedCluster], object] = _nothing,
    rejectors: frozenset[str] = frozenset({TROUBLEMAKER}),
    fails: bool = True,
) -> bool:
    """The verdict on a pod whose attempt fails between the two changes, seconds apart."""

    async def main(loop: VirtualLoop) -> bool:
        trace = Trace(loop.time)
        cluster = SimulatedCluster(loop, Random(1), trace)
        mischief = Mischief(0.0, Random(1), trace)
        turned_down = TurnedDown(cluster, mischief, loop.time)
        cluster.api.create("nodes", workloads.node("n1", Random(1)))
        for name in ("waits", "other"):
            cluster.api.create("pods", _pod(name))
        waits = next(pod for pod in cluster.records()[1] if pod.metadata.name == "waits")
        await asyncio.sleep(1)
        before(cluster)
        await asyncio.sleep(1)
        if fails:
            mischief.gave_up_at[waits.metadata.uid] = loop.time()
        await asyncio.sleep(1)
        after(cluster)
        queued = QueuedPodInfo(PodInfo(waits), loop.time(), unschedulable_plugins=rejectors)
        queue = SimpleNamespace(get_pod=lambda _namespace, _name: queued)
        assembly: Any = SimpleNamespace(scheduler=SimpleNamespace(queue=queue))
        return turned_down.was_not_told(assembly, waits)

    return run_virtual(main)


WAKING: dict[str, Callable[[SimulatedCluster], object]] = {
    "a node changes": lambda cluster: cluster.touch_nodes(),
    "a node comes": lambda cluster: cluster.api.create("nodes", workloads.node("n2", Random(1))),
    "another pod is bound": lambda cluster: cluster.api.bind("default", "other", "n1"),
    "another pod is deleted": lambda cluster: cluster.api.delete("pods", "default", "other"),
    "the pod gets a label": lambda cluster: cluster.api.patch(
        "pods", "default", "waits", {"metadata": {"labels": {"a": "b"}}}
    ),
}
SILENT: dict[str, Callable[[SimulatedCluster], object]] = {
    "nothing": _nothing,
    "another pod is created": lambda cluster: cluster.api.create("pods", _pod("third")),
    "a status is written": lambda cluster: cluster.api.patch(
        "pods", "default", "other", {"status": {"nominatedNodeName": "n1"}}, subresource="status"
    ),
}


@pytest.mark.parametrize("what", SILENT)
def test_a_pod_is_excused_if_nothing_happened_since_it_was_rejected(what: str) -> None:
    assert _is_excused(after=SILENT[what])


@pytest.mark.parametrize("what", WAKING)
def test_a_pod_that_should_have_been_woken_is_not_excused(what: str) -> None:
    assert not _is_excused(after=WAKING[what])
    assert _is_excused(before=WAKING[what])


@pytest.mark.parametrize(
    "rejectors", [{NodeResourcesFit.name}, {TROUBLEMAKER, NodeResourcesFit.name}]
)
def test_a_pod_that_others_rejected_is_not_excused(rejectors: set[str]) -> None:
    assert not _is_excused(rejectors=frozenset(rejectors))


def test_a_pod_whose_attempt_did_not_get_that_far_is_not_excused() -> None:
    assert not _is_excused(fails=False)
