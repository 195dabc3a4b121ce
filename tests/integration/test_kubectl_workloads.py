"""kubectl against a cluster that lives: rollouts, scaling, cascades, draining with a budget in the
way.
"""

from __future__ import annotations

import asyncio

import pytest


@pytest.fixture
async def scheduling(cluster):
    """Binds every pending pod to a node that takes pods: the simplest scheduler there can be."""

    def on_pod(kind: str, pod: dict, old: dict | None) -> None:
        if (
            kind == "DELETED"
            or pod["spec"].get("nodeName")
            or pod["metadata"].get("deletionTimestamp")
        ):
            return
        nodes = [
            node for node in cluster.api.list("nodes")[0] if not node["spec"].get("unschedulable")
        ]
        if nodes:
            chosen = nodes[hash(pod["metadata"]["name"]) % len(nodes)]["metadata"]["name"]
            cluster.api.bind("default", pod["metadata"]["name"], chosen)

    stop = cluster.api.subscribe("pods", on_pod)
    yield
    stop()


async def deploy(kubectl, name: str = "web", replicas: int = 3) -> None:
    await kubectl("create", "deployment", name, "--image=nginx:1", f"--replicas={replicas}")
    await kubectl("rollout", "status", f"deployment/{name}", "--timeout=240s")


async def test_a_deployment_rolls_out_and_over(cluster, kubectl, scheduling):
    await deploy(kubectl)
    pods = (await kubectl("get", "pods", "-l", "app=web", "-o", "json")).json["items"]
    assert len(pods) == 3
    assert {pod["status"]["phase"] for pod in pods} == {"Running"}
    await kubectl("set", "image", "deployment/web", "nginx=nginx:2")
    await kubectl("rollout", "status", "deployment/web", "--timeout=240s")
    images = {
        pod["spec"]["containers"][0]["image"]
        for pod in cluster.api.list("pods", "default", "app=web")[0]
        if "deletionTimestamp" not in pod["metadata"]
    }
    assert images == {"nginx:2"}
    history = (await kubectl("rollout", "history", "deployment/web")).out
    assert "2" in history.split()
    await kubectl("rollout", "undo", "deployment/web")
    await kubectl("rollout", "status", "deployment/web", "--timeout=240s")
    await kubectl("wait", "deployment/web", "--for=condition=Available", "--timeout=240s")


async def test_scaling_up_and_down(cluster, kubectl, scheduling, eventually):
    await deploy(kubectl, replicas=1)
    await kubectl("scale", "deployment/web", "--replicas=4")
    await kubectl("rollout", "status", "deployment/web", "--timeout=240s")
    await kubectl("scale", "deployment/web", "--replicas=2", "--current-replicas=4")
    await eventually(cluster, lambda: len(cluster.api.list("pods")[0]) == 2, "two pods are left")
    refused = await kubectl.run("scale", "deployment/web", "--replicas=1", "--current-replicas=9")
    assert refused.code == 1


@pytest.mark.parametrize("cascade", ["background", "foreground"])
async def test_deleting_an_owner_takes_its_pods_along(
    cluster, kubectl, scheduling, eventually, cascade
):
    await deploy(kubectl, replicas=2)
    await kubectl("delete", "deployment", "web", f"--cascade={cascade}", "--timeout=240s")
    await eventually(cluster, lambda: not cluster.api.list("pods")[0], "the pods have gone")
    assert cluster.api.list("replicasets.apps")[0] == []


async def test_orphans_stay(cluster, kubectl, scheduling):
    await deploy(kubectl, replicas=1)
    await kubectl("delete", "deployment", "web", "--cascade=orphan", "--timeout=240s")
    replica_sets = cluster.api.list("replicasets.apps")[0]
    assert len(replica_sets) == 1
    assert not replica_sets[0]["metadata"].get("ownerReferences")


async def test_draining_waits_for_a_budget_and_goes_on_when_it_allows(
    cluster, kubectl, scheduling, eventually
):
    await deploy(kubectl, replicas=2)
    await kubectl("create", "pdb", "guard", "--selector=app=web", "--min-available=2")
    pods = cluster.api.list("pods", "default", "app=web")[0]
    node = pods[0]["spec"]["nodeName"]
    await eventually(
        cluster,
        lambda: cluster.api.get("poddisruptionbudgets.policy", "default", "guard")["status"].get(
            "observedGeneration"
        ),
        "the budget has been looked at",
    )
    blocked = await kubectl.run("drain", node, "--ignore-daemonsets", "--timeout=2s")
    assert blocked.code == 1
    assert "Cannot evict pod as it would violate the pod's disruption budget" in blocked.err
    assert cluster.api.get("nodes", None, node)["spec"]["unschedulable"] is True
    draining = asyncio.create_task(kubectl("drain", node, "--ignore-daemonsets", "--timeout=240s"))
    await kubectl("patch", "pdb", "guard", "--type=merge", "-p", '{"spec":{"minAvailable":1}}')
    assert "drained" in (await draining).out
    on_node = cluster.api.list("pods", field_selector=f"spec.nodeName={node}")[0]
    assert on_node == []


async def test_a_namespace_is_emptied_before_it_goes(cluster, kubectl):
    await kubectl("create", "namespace", "team")
    await kubectl("create", "configmap", "c", "-n", "team")
    await kubectl("run", "p", "--image=nginx", "-n", "team")
    await kubectl("delete", "namespace", "team", "--timeout=240s")
    assert cluster.api.list("configmaps", "team")[0] == []


async def test_a_job_completes(cluster, kubectl, scheduling):
    await kubectl("create", "job", "once", "--image=busybox", "--", "true")
    await kubectl("wait", "job/once", "--for=condition=Complete", "--timeout=240s")
    row = (await kubectl("get", "jobs")).out.splitlines()[1].split()
    assert row[:3] == ["once", "Complete", "1/1"]
