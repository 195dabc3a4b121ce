"""Preemption over HTTPS: kubectl creates pods, kubelets end them, budgets are kept by a controller.

The same stories run against the embedded cluster, with its own kubelets and controllers, and
against a real API server where `$KUBEBUILDER_ASSETS` names one; there a few lines play kubelets and
the keeper of budgets, and a crowd of pods stands in for a Deployment.
"""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from worlds import WorldSettings

from kubesched.api.core_v1 import Pod
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.config.features import DEFAULT_GATES


@pytest.fixture
def world_settings(request):
    """`request.param`: number of nodes, gates that differ from the default."""
    nodes, gates = getattr(request, "param", (1, {}))
    return WorldSettings(
        nodes={f"node-{number}": "a" for number in range(nodes)},
        gates=dataclasses.replace(DEFAULT_GATES, **gates),
    )


def on_nodes(count):
    return pytest.mark.parametrize("world_settings", [(count, {})], indirect=True, ids=[""])


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


def pod_spec(priority, cpu, **more):
    return {
        "priorityClassName": priority,
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu}}},
        ],
        **more,
    }


def pod(name, priority="high", cpu="2", labels=None, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels or {}},
        "spec": pod_spec(priority, cpu, **spec),
    }


def crowd(world, name, replicas, cpu="1"):
    """A Deployment; single pods where there is no controller for one."""
    if world.is_real:
        return [pod(f"{name}-{number}", "low", cpu, {"app": name}) for number in range(replicas)]
    template = {"metadata": {"labels": {"app": name}}, "spec": pod_spec("low", cpu)}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": template,
            },
        }
    ]


def budget(name, app, minimum):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": minimum, "selector": {"matchLabels": {"app": app}}},
    }


async def until_known(world, name, healthy):
    async def known():
        result = await world.admin.get(PodDisruptionBudget, name, "default")
        return result.status.current_healthy == healthy

    await world.eventually(known, f"budget {name} counts {healthy}")


@pytest.mark.parametrize(
    "world_settings",
    [
        pytest.param((1, {"SchedulerAsyncPreemption": True}), id="in the background"),
        pytest.param((1, {"SchedulerAsyncPreemption": False}), id="synchronously"),
    ],
    indirect=True,
)
async def test_an_important_pod_takes_the_place_of_others(world) -> None:
    await world.apply(*CLASSES, pod("a", "low", "1"), pod("b", "low", "1"))
    await world.until_running("a", "b")
    await world.apply(pod("high"))
    await world.until_running("high")
    assert await world.running() == {"high": "node-0"}
    preempted = await world.events("Preempted", 2)
    assert {e["regarding"]["name"] for e in preempted} == {"a", "b"}
    uid = (await world.pod("high")).metadata.uid
    assert {e["note"] for e in preempted} == {f"Preempted by pod {uid} on node node-0"}
    assert {(e["type"], e["action"]) for e in preempted} == {("Normal", "Preempting")}
    assert not (await world.pod("high")).status.nominated_node_name, "cleared by the binding"


async def test_victims_are_marked_and_given_their_grace_period(world) -> None:
    await world.apply(*CLASSES, pod("victim", "low"))
    await world.until_running("victim")
    seen = []

    async def follow():
        listed = await world.admin.list(Pod, "default")
        version = listed.metadata.resource_version
        async with world.admin.watch(Pod, "default", resource_version=version) as watch:
            started.set()
            async for event in watch:
                seen.append(event.object)

    started = asyncio.Event()
    following = asyncio.create_task(follow())
    try:
        await started.wait()
        await world.apply(pod("high"))
        await world.until_running("high")
    finally:
        following.cancel()
        await asyncio.wait([following])

    seen = [item for item in seen if item.metadata.name == "victim"]
    marks = [
        next((c for c in item.status.conditions or () if c.type == "DisruptionTarget"), None)
        for item in seen
    ]
    first = next(index for index, mark in enumerate(marks) if mark is not None)
    assert marks[first].status == "True"
    assert marks[first].reason == "PreemptionByScheduler"
    assert marks[first].message == (
        "default-scheduler: preempting to accommodate a higher priority pod"
    )
    assert seen[first].metadata.deletion_timestamp is None, "told before it was deleted"
    graces = [item.metadata.deletion_grace_period_seconds for item in seen[first + 1 :]]
    assert 1 in graces, "its own grace period applies"


@on_nodes(2)
async def test_a_budget_is_respected_when_another_node_will_do(world) -> None:
    await world.apply(
        *CLASSES,
        *crowd(world, "guarded", 2),
        *crowd(world, "free", 2),
        budget("b", "guarded", 2),
    )
    await world.until_running(count=4)
    await until_known(world, "b", 2)
    before = await world.running("guarded")
    await world.apply(pod("high", cpu="1"))
    await world.until_running("high")
    assert await world.running("guarded") == before
    assert len(await world.running("free")) < 2


async def test_a_budget_is_violated_when_nothing_else_helps(world) -> None:
    await world.apply(*CLASSES, *crowd(world, "guarded", 2), budget("b", "guarded", 2))
    await world.until_running(count=2)
    await until_known(world, "b", 2)
    await world.apply(pod("high"))
    await world.until_running("high")
    assert await world.running("guarded") == {}


async def test_pods_that_may_not_or_cannot_preempt_say_why(world) -> None:
    await world.apply(*CLASSES, pod("a", "low"))
    await world.until_running("a")
    await world.apply(pod("polite", "polite"), pod("same", "low"))
    for name, reason in (
        ("polite", "preemption: not eligible due to preemptionPolicy=Never."),
        (
            "same",
            "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.",
        ),
    ):
        assert await world.message(name) == (
            f"0/1 nodes are available: 1 Insufficient cpu. {reason}"
        )
    assert set(await world.running()) == {"a"}


async def test_a_pod_whose_victims_are_still_leaving_waits_for_them(world) -> None:
    """The nomination stays, and no other pod is evicted."""
    held = pod("victim", "low", terminationGracePeriodSeconds=3600)
    held["spec"]["containers"][0]["lifecycle"] = {"preStop": {"sleep": {"seconds": 3600}}}
    held["metadata"]["finalizers"] = ["example.com/hold"]  # a real cluster's kubelet is in a hurry
    await world.apply(*CLASSES, held)
    await world.until_running("victim")
    await world.apply(pod("high"))

    async def leaving():
        return (await world.pod("victim")).metadata.deletion_timestamp

    await world.eventually(leaving, "the victim is leaving")

    async def nominated():
        return (await world.pod("high")).status.nominated_node_name == "node-0"

    await world.eventually(nominated, "the pod is nominated")
    assert not (await world.pod("high")).spec.node_name
    await world.kubectl(
        "patch", "pod", "victim", "--type=merge", "-p", '{"metadata":{"finalizers":null}}'
    )
    await world.delete_pod("victim")
    await world.until_running("high")


PORT = [{"containerPort": 80, "hostPort": 8080}]


@pytest.mark.parametrize(
    ("holder", "wanted"),
    [
        pytest.param(
            {"containers": [{"name": "c", "image": "app", "ports": PORT}]},
            {"containers": [{"name": "c", "image": "app", "ports": PORT}]},
            id="for a host port",
        ),
        pytest.param(
            {},
            {
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "topologyKey": "kubernetes.io/hostname",
                                "labelSelector": {"matchLabels": {"app": "holder"}},
                            }
                        ]
                    }
                }
            },
            id="for its anti-affinity",
        ),
        pytest.param(
            {
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "topologyKey": "kubernetes.io/hostname",
                                "labelSelector": {"matchLabels": {"app": "high"}},
                            }
                        ]
                    }
                }
            },
            {},
            id="for the anti-affinity of another",
        ),
    ],
)
async def test_only_the_pod_in_the_way_goes(world, holder, wanted) -> None:
    await world.apply(
        *CLASSES,
        pod("holder", "low", "100m", {"app": "holder"}, **holder),
        pod("bystander", "low", "100m", {"app": "bystander"}),
    )
    await world.until_running("holder", "bystander")
    await world.apply(pod("high", "high", "100m", {"app": "high"}, **wanted))
    await world.until_running("high")
    assert set(await world.running()) == {"bystander", "high"}


@on_nodes(6)
async def test_a_wave_of_preemptors_finds_room_for_everyone(world) -> None:
    """Twelve important pods, six nodes full of twice as many unimportant ones."""
    await world.apply(*CLASSES, *crowd(world, "low", 24, "500m"))
    await world.until_running(count=24)
    names = [f"high-{number}" for number in range(12)]
    await world.apply(*(pod(name, cpu="1") for name in names))
    await world.until_running(*names)
    running = await world.running()
    nodes = [running[name] for name in names]
    assert all(nodes.count(node) == 2 for node in nodes), "two on each node, which is all it has"
