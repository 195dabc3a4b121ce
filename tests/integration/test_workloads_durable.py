"""A cluster on disk is stopped and started again in the middle of its work, and finishes it."""

from __future__ import annotations

import asyncio

import pytest

from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster
from kubesched.playground.controller_manager import ControllerOptions
from kubesched.playground.kubelet.options import KubeletOptions

LABELS = {"app": "web"}
LIMIT_S = 60


@pytest.fixture
def settings(tmp_path):
    return ClusterSettings(
        data_dir=tmp_path / "data",
        controllers=ControllerOptions(kubelet=KubeletOptions(nodes=2)),
    )


async def until(cluster, resource, claim):
    """Wait until a claim holds, looking at every change of a resource."""
    changed = asyncio.Event()
    unsubscribe = cluster.api.subscribe(resource, lambda *_: changed.set(), replay=False)
    try:
        async with asyncio.timeout(LIMIT_S):
            while not claim():
                await changed.wait()
                changed.clear()
    finally:
        unsubscribe()


def bind_all(cluster):
    for index, pod in enumerate(cluster.api.list("pods", "default")[0]):
        if not pod["spec"].get("nodeName"):
            cluster.api.bind("default", pod["metadata"]["name"], f"node-{index % 2}")


def running(cluster):
    pods = cluster.api.list("pods", "default")[0]
    return sorted(
        pod["metadata"]["uid"] for pod in pods if pod.get("status", {}).get("phase") == "Running"
    )


async def test_pods_nodes_and_half_finished_work_survive_a_restart(settings):
    async with EmbeddedCluster(settings) as first:
        await until(first, "nodes", lambda: len(first.api.list("nodes")[0]) == 2)
        first.api.create(
            "deployments.apps",
            {
                "metadata": {"name": "web"},
                "spec": {
                    "replicas": 3,
                    "selector": {"matchLabels": LABELS},
                    "template": {
                        "metadata": {"labels": LABELS},
                        "spec": {"containers": [{"name": "main", "image": "web:1"}]},
                    },
                },
            },
            "default",
        )
        await until(first, "pods", lambda: len(first.api.list("pods", "default")[0]) == 3)
        bind_all(first)
        await until(first, "pods", lambda: len(running(first)) == 3)
        before = running(first)
        # Asked for and not yet done when the cluster stops.
        first.api.patch("deployments.apps", "default", "web", {"spec": {"replicas": 5}})
    async with EmbeddedCluster(settings) as second:
        assert len(second.api.list("nodes")[0]) == 2
        await until(second, "pods", lambda: len(second.api.list("pods", "default")[0]) == 5)
        bind_all(second)
        await until(second, "pods", lambda: len(running(second)) == 5)
        assert set(before) < set(running(second))
        await until(
            second,
            "deployments.apps",
            lambda: (
                second.api.get("deployments.apps", "default", "web")["status"].get(
                    "availableReplicas"
                )
                == 5
            ),
        )
