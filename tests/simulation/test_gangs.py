"""Gangs that fit by counting, when all is quiet."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kubesched.config import features
from kubesched.insight.state.virtual_loop import VirtualLoop, run_virtual
from kubesched.lab.simulation import workloads
from kubesched.lab.simulation.cluster import GROUPS, SimulatedCluster
from kubesched.lab.simulation.gangs import GroupChecks
from kubesched.lab.simulation.trace import Trace


def _pod(name: str, app: str, cpu: str) -> dict[str, Any]:
    container = {"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": {"containers": [container], "schedulingGroup": {"podGroupName": "g"}},
    }


def _fitting(
    *apps: str, disk: str = "hdd", cpu: str = "500m", asks_extender: bool = True
) -> str | None:
    """What is said of a gang with a member of each of these applications, on a node of 2 CPUs."""
    gates = replace(features.defaults("1.37"), GenericWorkload=True)

    async def main(loop: VirtualLoop) -> str | None:
        cluster = SimulatedCluster(loop, Random(1), Trace(loop.time), gates=gates)
        checks = GroupChecks(cluster, by_topology=False, asks_extender=asks_extender)
        node = workloads.node("n1", Random(1))
        node["metadata"]["labels"]["disk"] = disk
        node["status"]["allocatable"]["cpu"] = node["status"]["capacity"]["cpu"] = "2"
        cluster.api.create("nodes", node)
        policy = {"gang": {"minCount": len(apps)}}
        group = {
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {"schedulingPolicy": policy},
        }
        cluster.api.create(GROUPS, group)
        for number, app in enumerate(apps):
            cluster.api.create("pods", _pod(f"p{number}", app, cpu))
        return checks.fitting()

    return run_virtual(main)


def test_a_gang_that_fits_by_itself_must_not_wait() -> None:
    assert _fitting("web", "web") == "2 of default/g fit on n1"
    assert _fitting("web", "web", cpu="1500m") is None, "there is room for one"


@pytest.mark.parametrize(
    ("disk", "asks_extender", "fits"),
    [("hdd", True, False), ("ssd", True, True), ("hdd", False, True)],
)
def test_the_extender_may_keep_a_gang_away(disk: str, asks_extender: bool, fits: bool) -> None:
    said = _fitting("db", "db", disk=disk, asks_extender=asks_extender)
    assert said == ("2 of default/g fit on n1" if fits else None)


def test_members_with_different_labels_are_not_alike() -> None:
    assert _fitting("web", "db") is None, "each may be kept away by something else"
