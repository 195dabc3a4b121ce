"""Preemption against an API server over HTTPS: kubectl creates pods, kubelets end them, budgets are kept by a controller.

Everything is as a user would have it: PriorityClasses, Deployments, PodDisruptionBudgets, graceful deletion.
"""

from __future__ import annotations

import dataclasses
import json

import pytest

from kubesched.app.playground import PlaygroundSettings, playground
from kubesched.config.features import DEFAULT_GATES
from kubesched.embedded.kubelet.node_templates import NodePool

CAPACITY = {"cpu": "2", "memory": "8Gi", "ephemeral-storage": "10Gi", "pods": "20"}


def settings(tmp_path, nodes, **gates):
    return PlaygroundSettings(
        kubeconfig=tmp_path / "kubeconfig",
        nodes=nodes,
        pools=(NodePool(name="node", zones=("a",), capacity=CAPACITY),),
        gates=dataclasses.replace(DEFAULT_GATES, **gates),
    )


def priority_class(name, value, policy="PreemptLowerPriority"):
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": policy,
    }


CLASSES = [
    priority_class("low", 10),
    priority_class("high", 1000),
    priority_class("polite", 1000, "Never"),
]


def pod_spec(priority, cpu):
    return {
        "priorityClassName": priority,
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu}}},
        ],
    }


def pod(name, priority="high", cpu="2", **labels):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": pod_spec(priority, cpu),
    }


def deployment(name, replicas, cpu="1"):
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec("low", cpu)},
        },
    }


def budget(name, app, minimum):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": minimum, "selector": {"matchLabels": {"app": app}}},
    }


async def apply(kubectl, objects):
    documents = "\n".join(json.dumps(each) for each in objects)
    await kubectl("apply", "-f", "-", stdin=documents)


def running(cluster, app=None):
    """Name -> node of the pods that run."""
    pods, _ = cluster.api.list("pods", "default")
    return {
        each["metadata"]["name"]: each["spec"].get("nodeName", "")
        for each in pods
        if each["status"].get("phase") == "Running"
        and "deletionTimestamp" not in each["metadata"]
        and (app is None or each["metadata"].get("labels", {}).get("app") == app)
    }


def condition(cluster, name, kind):
    found = cluster.api.get("pods", "default", name)
    for each in found["status"].get("conditions", ()):
        if each["type"] == kind:
            return each
    return None


@pytest.mark.parametrize("in_background", [True, False], ids=["in the background", "synchronously"])
async def test_an_important_pod_takes_the_place_of_others(
    tmp_path, kubectl, eventually, in_background
) -> None:
    world = settings(tmp_path, 1, SchedulerAsyncPreemption=in_background)
    async with playground(world) as running_world:
        cluster = running_world.cluster
        await apply(kubectl, [*CLASSES, pod("a", "low", "1"), pod("b", "low", "1")])
        await eventually(cluster, lambda: len(running(cluster)) == 2, "both run")
        await apply(kubectl, [pod("high")])
        await eventually(cluster, lambda: "high" in running(cluster), "the important pod runs")
        assert set(running(cluster)) == {"high"}
        events = (await kubectl("get", "events", "-o", "json")).json["items"]
        preempted = [e for e in events if e["reason"] == "Preempted"]
        assert {e["involvedObject"]["name"] for e in preempted} == {"a", "b"}
        uid = cluster.api.get("pods", "default", "high")["metadata"]["uid"]
        note = f"Preempted by pod {uid} on node {running(cluster)['high']}"
        assert {e["message"] for e in preempted} == {note}


async def test_victims_are_marked_and_given_their_grace_period(
    tmp_path, kubectl, eventually
) -> None:
    async with playground(settings(tmp_path, 1)) as running_world:
        cluster = running_world.cluster
        await apply(kubectl, [*CLASSES, pod("victim", "low")])
        await eventually(cluster, lambda: "victim" in running(cluster), "the victim runs")
        seen = []

        def note(kind, obj, _old):
            if obj["metadata"]["name"] == "victim":
                seen.append(obj)

        stop = cluster.api.subscribe("pods", note, replay=False)
        try:
            await apply(kubectl, [pod("high")])
            await eventually(cluster, lambda: "high" in running(cluster), "the important pod runs")
        finally:
            stop()
        marked = [
            next(
                (
                    c
                    for c in each["status"].get("conditions", ())
                    if c["type"] == "DisruptionTarget"
                ),
                None,
            )
            for each in seen
        ]
        first = next(index for index, each in enumerate(marked) if each is not None)
        assert marked[first]["status"] == "True"
        assert marked[first]["reason"] == "PreemptionByScheduler"
        assert marked[first]["message"] == (
            "default-scheduler: preempting to accommodate a higher priority pod"
        )
        assert "deletionTimestamp" not in seen[first]["metadata"], "told before it was deleted"
        graces = [each["metadata"].get("deletionGracePeriodSeconds") for each in seen[first + 1 :]]
        assert 1 in graces, "its own grace period applies"


async def test_a_budget_is_respected_when_another_node_will_do(
    tmp_path, kubectl, eventually
) -> None:
    async with playground(settings(tmp_path, 2)) as running_world:
        cluster = running_world.cluster
        objects = [
            *CLASSES,
            deployment("guarded", 2),
            deployment("free", 2),
            budget("b", "guarded", 2),
        ]
        await apply(kubectl, objects)
        await eventually(cluster, lambda: len(running(cluster)) == 4, "everything runs")
        await eventually(
            cluster,
            lambda: (
                cluster.api.get("poddisruptionbudgets.policy", "default", "b")
                .get("status", {})
                .get("currentHealthy")
                == 2
            ),
            "the budget is known",
        )
        before = running(cluster, "guarded")
        await apply(kubectl, [pod("high", cpu="1")])
        await eventually(cluster, lambda: "high" in running(cluster), "the important pod runs")
        assert running(cluster, "guarded") == before
        assert len(running(cluster, "free")) < 2


async def test_a_budget_is_violated_when_nothing_else_helps(tmp_path, kubectl, eventually) -> None:
    async with playground(settings(tmp_path, 1)) as running_world:
        cluster = running_world.cluster
        objects = [*CLASSES, deployment("guarded", 2), budget("b", "guarded", 2)]
        await apply(kubectl, objects)
        await eventually(cluster, lambda: len(running(cluster)) == 2, "everything runs")
        await apply(kubectl, [pod("high")])
        await eventually(cluster, lambda: "high" in running(cluster), "the important pod runs")


async def test_pods_that_may_not_or_cannot_preempt_say_why(tmp_path, kubectl, eventually) -> None:
    async with playground(settings(tmp_path, 1)) as running_world:
        cluster = running_world.cluster
        await apply(kubectl, [*CLASSES, pod("a", "low")])
        await eventually(cluster, lambda: "a" in running(cluster), "the node is full")
        waiting = [pod("polite", "polite"), pod("same", "low")]
        await apply(kubectl, waiting)
        for name, reason in (
            ("polite", "preemption: not eligible due to preemptionPolicy=Never."),
            (
                "same",
                "preemption: 0/1 nodes are available: "
                "1 No preemption victims found for incoming pod.",
            ),
        ):
            await eventually(
                cluster,
                lambda name=name: condition(cluster, name, "PodScheduled"),
                f"{name} is rejected",
            )
            assert condition(cluster, name, "PodScheduled")["message"] == (
                f"0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, {reason}"
            )
        assert set(running(cluster)) == {"a"}


async def test_a_wave_of_preemptors_finds_room_for_everyone(tmp_path, kubectl, eventually) -> None:
    """Twelve important pods, six nodes full of twice as many unimportant ones."""
    async with playground(settings(tmp_path, 6)) as running_world:
        cluster = running_world.cluster
        await apply(kubectl, [*CLASSES, deployment("low", 24, "500m")])
        await eventually(cluster, lambda: len(running(cluster)) == 24, "all nodes are full")
        high = [pod(f"high-{number}", cpu="1") for number in range(12)]
        await apply(kubectl, high)
        await eventually(
            cluster,
            lambda: sum(name.startswith("high") for name in running(cluster)) == 12,
            "all important pods run",
        )
        nodes = [node for name, node in running(cluster).items() if name.startswith("high")]
        assert all(nodes.count(node) == 2 for node in nodes), (
            "two on each node, which is all it has"
        )
