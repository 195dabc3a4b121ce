"""Which evictions have no effect, and that the bound counts from the last of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kubesched.insight.state.virtual_loop import SENDER, VirtualLoop, run_virtual
from kubesched.lab.simulation import extenders, workloads
from kubesched.lab.simulation.cluster import SimulatedCluster
from kubesched.lab.simulation.in_vain import EvictionsInVain
from kubesched.lab.simulation.liveness import BOUND_S, POLL_S, wait_until_settled
from kubesched.lab.simulation.trace import Trace
from kubesched.lab.simulation.violation import Violation
from kubesched.playground.apimachinery.objects import JsonObject

EVICTED_AT_S = 100.0


def _node(disk: str) -> JsonObject:
    node = workloads.node("n1", Random(1))
    node["metadata"]["labels"]["disk"] = disk
    return node


def _pod(name: str, priority: str, app: str = "web", **spec: Any) -> JsonObject:
    metadata = {"name": name, "namespace": "default", "labels": {"app": app}}
    containers = [{"name": "c", "image": "app"}]
    return {
        "metadata": metadata,
        "spec": {"containers": containers, "priorityClassName": priority, **spec},
    }


def _delete_victim(cluster: SimulatedCluster, sender: str = "s0.1") -> None:
    context = copy_context()
    context.run(SENDER.set, sender)
    context.run(cluster.api.delete, "pods", "default", "victim")


def _cluster(
    loop: VirtualLoop,
    *,
    disk: str = "hdd",
    app: str = "db",
    priority: str = "high",
    nominated: str = "n1",
) -> tuple[SimulatedCluster, Trace]:
    """A node with a victim of middle priority, and a preemptor that is nominated to it."""
    trace = Trace(loop.time)
    cluster = SimulatedCluster(loop, Random(1), trace)
    cluster.api.create("nodes", _node(disk))
    cluster.api.create("pods", _pod("victim", "middle", nodeName="n1"))
    cluster.api.create("pods", _pod("preemptor", priority, app))
    status = {"status": {"nominatedNodeName": nominated}}
    cluster.api.patch("pods", "default", "preemptor", status, subresource="status")
    return cluster, trace


def _count(evict: Callable[[SimulatedCluster], None], **what: str) -> int:
    async def main(loop: VirtualLoop) -> int:
        cluster, _trace = _cluster(loop, **what)
        in_vain = EvictionsInVain(cluster, loop.time)
        evict(cluster)
        return in_vain.count

    return run_virtual(main)


def test_an_eviction_for_a_pod_that_the_extender_rejects_there_is_in_vain() -> None:
    assert _count(_delete_victim) == 1


@pytest.mark.parametrize(
    "what",
    [{"disk": "ssd"}, {"app": "web"}, {"priority": "middle"}, {"nominated": ""}],
    ids=["fast disk", "no database", "not above the victim", "not nominated"],
)
def test_other_evictions_are_not(what: dict[str, str]) -> None:
    assert _count(_delete_victim, **what) == 0


def test_what_users_delete_is_no_eviction() -> None:
    assert _count(lambda cluster: _delete_victim(cluster, sender="")) == 0


def test_a_victim_counts_once() -> None:
    def twice(cluster: SimulatedCluster) -> None:
        _delete_victim(cluster)
        _delete_victim(cluster)

    assert _count(twice) == 1


@pytest.mark.parametrize(
    ("traits", "expected"),
    [
        ((), True),
        (("filter", "bind"), True),
        (("filter", "preempt"), False),
        (("prioritize", "names"), False),
    ],
)
def test_only_extenders_that_filter_and_are_not_asked_surprise_preemptors(
    traits: tuple[str, ...], expected: bool
) -> None:
    assert extenders.takes_preemptors_by_surprise(traits) is expected


@pytest.mark.parametrize("disk", ["hdd", "ssd"])
def test_the_bound_counts_from_the_last_eviction_in_vain(disk: str) -> None:
    """No process schedules here, so that the cluster never settles."""

    async def main(loop: VirtualLoop) -> float:
        cluster, trace = _cluster(loop, disk=disk)
        in_vain = EvictionsInVain(cluster, loop.time)
        loop.call_later(EVICTED_AT_S, _delete_victim, cluster)
        began_at = loop.time()
        nobody: Any = SimpleNamespace(alive=list)
        with pytest.raises(Violation, match="no process schedules"):
            await asyncio.wait_for(
                wait_until_settled(loop, cluster, nobody, nobody, trace, in_vain=in_vain), 1000
            )
        return loop.time() - began_at

    expected_s = BOUND_S + (EVICTED_AT_S if disk == "hdd" else 0.0)
    assert expected_s < run_virtual(main) <= expected_s + 2 * POLL_S
