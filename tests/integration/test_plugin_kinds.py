"""Plugins and the kinds they look up: what a plugin declares is watched, custom resources
included.
"""

from __future__ import annotations

import asyncio
import json
from random import Random

import pytest

from kubesched.api.meta import CustomObject
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.app.connecting import connections_to
from kubesched.app.scheduler_app import SchedulerApp
from kubesched.base.clock import SystemClock
from kubesched.client.client_config import load_config
from kubesched.client.informers.factory import InformerFactory, UndeclaredKind
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.load import load
from kubesched.framework import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    EnqueueExtensions,
    FilterPlugin,
    Hint,
    unschedulable,
)
from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster
from kubesched.playground.controller_manager import ControllerOptions
from kubesched.playground.kubelet.node_templates import NodePool
from kubesched.playground.kubelet.options import KubeletOptions
from kubesched.plugins.default_preemption import DefaultPreemption
from kubesched.plugins.registry import in_tree_registry

QUEUES = "queues.v1.example.com"

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      disabled: [{name: DefaultPreemption}]
      enabled: [{name: %s}]
"""


class OwnPreemption(DefaultPreemption):
    """The default preemption under another name."""

    name = "OwnPreemption"


class Queue(CustomObject):
    """With a field at the top level, which a plain `CustomObject` would not keep."""

    resource = QUEUES
    open: bool = False


class OpenQueue(FilterPlugin, EnqueueExtensions):
    """Keeps pods back until a Queue of their namespace is open."""

    name = "OpenQueue"
    lists = (Queue,)

    def filter_nodes(self, state, pod, nodes):
        queues = self.handle.listers.of(QUEUES).list(pod.metadata.namespace)
        if any(queue.open for queue in queues):
            return None
        return unschedulable("no open queue")

    def events_to_register(self):
        return [ClusterEventWithHint(ClusterEvent(QUEUES, Action.ADD | Action.UPDATE), self.opened)]

    def opened(self, pod, old, new):
        return Hint.QUEUE if new.open else Hint.SKIP


class Stage:
    """An embedded cluster of one node with 2 CPUs, a scheduler with the given plugins, and
    kubectl.
    """

    def __init__(self, kubeconfig, app):
        self._kubeconfig = kubeconfig
        self.app = app

    async def kubectl(self, *arguments, stdin=None):
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            f"--kubeconfig={self._kubeconfig}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate((stdin or "").encode()), 60)
        assert process.returncode == 0, err.decode()
        return out.decode()

    async def apply(self, *objects):
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        await self.kubectl("apply", "-f", "-", stdin=json.dumps(listed))

    async def until(self, pod, condition):
        await self.kubectl("wait", f"pod/{pod}", f"--for={condition}", "--timeout=240s")

    async def message(self, pod):
        path = "jsonpath={.status.conditions[?(@.type=='PodScheduled')].message}"
        return await self.kubectl("get", "pod", pod, "-o", path)


@pytest.fixture
async def stage(tmp_path, request):
    plugin, *crds = request.param
    settings = ClusterSettings(
        kubeconfig=tmp_path / "kubeconfig",
        controllers=ControllerOptions(
            kubelet=KubeletOptions(
                nodes=1,
                pools=(
                    NodePool(name="node", capacity={"cpu": "2", "memory": "8Gi", "pods": "20"}),
                ),
            )
        ),
    )
    registry = in_tree_registry()
    registry.register(plugin.name, lambda: plugin)
    config, gates = load((CONFIG % plugin.name).encode()), DEFAULT_GATES
    async with EmbeddedCluster(settings):
        connection = load_config(str(settings.kubeconfig)).connection
        stage = Stage(settings.kubeconfig, None)
        if crds:
            await stage.apply(*crds)
            await stage.kubectl("wait", "crd", "--all", "--for=condition=Established")
        async with (
            connections_to(connection, qps=-1.0, random=Random(2)) as connections,
            asyncio.TaskGroup() as group,
        ):
            stage.app = SchedulerApp(
                config, gates, connections.main, connections.events.recorder, registry=registry
            )
            tasks = [
                group.create_task(stage.app.run()),
                group.create_task(connections.events.run()),
            ]
            await stage.app.synced.wait()
            yield stage
            for task in tasks:
                task.cancel()


def pod(name, cpu="100m", labels=None, priority=None):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels or {}},
        "spec": {
            "priorityClassName": priority,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu}}}],
        },
    }


def queue(*, is_open):
    return {
        "apiVersion": "example.com/v1",
        "kind": "Queue",
        "metadata": {"name": "main", "namespace": "default"},
        "open": is_open,
    }


@pytest.mark.parametrize("stage", [(OwnPreemption,)], indirect=True, ids=[""])
async def test_preemption_under_another_name_knows_the_disruption_budgets(stage) -> None:
    """Evicting `guarded` would violate its budget, so `free` goes although it is the more important
    one.
    """
    await stage.apply(
        *[
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
            for name, value in {"low": 1, "middle": 2, "high": 10}.items()
        ],
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "guard", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
        },
        pod("guarded", "1", {"app": "guarded"}, "low"),
        pod("free", "1", {"app": "free"}, "middle"),
    )
    await stage.until("guarded", "condition=Ready")
    await stage.until("free", "condition=Ready")
    await stage.apply(pod("high", "1", priority="high"))
    await stage.until("high", "condition=Ready")
    assert "guarded" in await stage.kubectl("get", "pods")
    assert "free" not in await stage.kubectl("get", "pods")


CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "queues.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "queues", "singular": "queue", "kind": "Queue"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"open": {"type": "boolean"}},
                    }
                },
            }
        ],
    },
}


@pytest.mark.parametrize("stage", [(OpenQueue, CRD)], indirect=True, ids=[""])
async def test_a_custom_resource_wakes_the_pods_that_wait_for_it(stage) -> None:
    await stage.apply(queue(is_open=False), pod("p"))
    await stage.until("p", "condition=PodScheduled=false")
    assert "no open queue" in await stage.message("p")
    await stage.apply(queue(is_open=True))
    await stage.until("p", "condition=Ready")


def test_a_lister_of_an_undeclared_kind_says_what_to_do() -> None:
    factory = InformerFactory(None, clock=SystemClock(), random=Random(1))
    with pytest.raises(UndeclaredKind, match="must name PodDisruptionBudget in `lists`"):
        factory.of(PodDisruptionBudget)
    assert factory.informer(QUEUES) is factory.informer(Queue)
    plain = factory.informer("racks.v1.example.com")
    assert plain is factory.informer("racks.v1.example.com")
    with pytest.raises(LookupError, match=r"plural\.version\.group"):
        factory.of("queues")
