"""A plan foretells the playground: the same pods go to the same nodes, one by one, and a drain does
the same.

`KUBESCHED_PLAN_CASES=50` plays fifty generated clusters instead of a few.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from random import Random

import msgspec
import pytest
from planning_worlds import ONE_WORKER, completed, deployment_manifest
from random_clusters import random_node, random_pod

from kubesched.api import codec
from kubesched.app.playground import PlaygroundSettings, playground
from kubesched.config.load import load
from kubesched.insight.planning.plan import Changes, make_plan
from kubesched.insight.state.cluster_state import KINDS, ClusterState

CASES = int(os.environ.get("KUBESCHED_PLAN_CASES", "4"))
DRAIN_CASES = 10
DEADLINE_S = 60.0
NODES = 8
UNSPREAD = load(
    b"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 1
profiles:
- pluginConfig:
  - name: PodTopologySpread
    args: {defaultingType: List}
"""
)
"""As `ONE_WORKER`, without the spreading of pods that ask for none."""


@pytest.mark.parametrize("seed", range(CASES))
async def test_a_planned_deployment_is_placed_as_the_playground_places_it(seed, tmp_path):
    rng = Random(seed)
    settings = PlaygroundSettings(
        kubeconfig=tmp_path / "kubeconfig", nodes=0, config=ONE_WORKER, storage=()
    )
    async with playground(settings) as running:
        api = running.cluster.api
        changed = asyncio.Event()
        api.subscribe("pods", lambda *_change: changed.set())
        api.create("namespaces", {"metadata": {"name": "other"}})
        _create_nodes(api, rng)
        for i in range(10):
            pod = completed(random_pod(rng, f"old-{i}").json)
            pod["spec"]["nodeName"] = f"node-{rng.randrange(NODES)}"
            api.create("pods", pod)
        await _until(changed, lambda: all(map(_is_settled, _pods(api))))
        await _until(changed, lambda: _scheduler_knows(running, api))
        manifest = deployment_manifest(rng, 12)
        plan = make_plan(_state(api), Changes(manifests=[manifest]), ONE_WORKER)

        created: list[str] = []
        api.subscribe(
            "pods",
            lambda change, pod, _old: created.append(_key(pod)) if change == "ADDED" else None,
            replay=False,
        )
        api.create("deployments.apps", manifest.obj)
        await _until(changed, lambda: len(created) >= 12 and _all_tried(api, created))
        nodes = {_key(pod): pod["spec"].get("nodeName", "") for pod in _pods(api)}
        happened = [nodes[key] for key in created]
    foretold = [each.node for each in plan.placed]
    assert [node for node in happened if node] == foretold
    assert sum(not node for node in happened) == sum(len(each.pods) for each in plan.unplaced)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("seed", range(min(CASES, 10)))
async def test_a_planned_drain_is_what_kubectl_drain_does(seed, tmp_path, kubectl):
    """The same pods are evicted, the same are kept by their budgets, and as many come back,
    workload by workload.
    """
    rng = Random(seed)
    settings = PlaygroundSettings(kubeconfig=tmp_path / "kubeconfig", nodes=4, config=ONE_WORKER)
    async with playground(settings) as running:
        api = running.cluster.api
        changed = asyncio.Event()
        api.subscribe("pods", lambda *_change: changed.set())
        api.subscribe("poddisruptionbudgets.policy", lambda *_change: changed.set())
        wanted = _create_workloads(api, rng, blocked=bool(seed % 2))
        await _until(changed, lambda: len(_pods(api)) == wanted and all(map(_is_ready, _pods(api))))
        await _until(changed, lambda: all(map(_is_observed, _budgets(api))))
        node = rng.choice([each["spec"]["nodeName"] for each in _pods(api)])
        before = {_key(pod): _owner(pod) for pod in _pods(api)}
        on_node = {_key(pod) for pod in _pods(api) if pod["spec"]["nodeName"] == node}
        plan = make_plan(_state(api), Changes(drain=[node]), ONE_WORKER)

        timeout = "--timeout=12s" if plan.kept else "--timeout=240s"
        outcome = await kubectl.run("drain", node, "--ignore-daemonsets", timeout)
        await _until(changed, lambda: len(_pods(api)) == wanted and all(map(_is_tried, _pods(api))))
        pods = _pods(api)
    assert (outcome.code == 0) == (not plan.kept), outcome.err
    left = {_key(pod) for pod in pods}
    assert on_node - left == {each.pod for each in plan.evicted}
    assert {_key(pod) for pod in pods if pod["spec"].get("nodeName") == node} == {
        each.pod for each in plan.kept
    }
    came = Counter(_owner(pod) for pod in pods if _key(pod) not in before)
    assert came == Counter(before[each.pod] for each in plan.evicted)
    placed = sum(bool(pod["spec"].get("nodeName")) for pod in pods if _key(pod) not in before)
    assert placed == len(plan.moved)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("seed", range(DRAIN_CASES))
async def test_a_planned_drain_sends_pods_where_kubectl_drain_sends_them(seed, tmp_path, kubectl):
    """kubectl evicts the pods of a node at once, and their replacements come in any order and among
    the evictions.

    So a pod's new node is determined where the order does not matter: here all pods ask for the
    same, and nothing is spread over zones, which pods that are still to go would count for. Then
    the nodes are the same, each as often; a pod that is evicted alone goes to the same node. With
    pods of several sizes it depends on which one comes first.
    """
    rng = Random(seed)
    settings = PlaygroundSettings(
        kubeconfig=tmp_path / "kubeconfig", nodes=0, config=UNSPREAD, storage=()
    )
    async with playground(settings) as running:
        api = running.cluster.api
        changed = asyncio.Event()
        api.subscribe("pods", lambda *_change: changed.set())
        api.subscribe("poddisruptionbudgets.policy", lambda *_change: changed.set())
        for i in range(6):
            _create_node(api, f"node-{i}", cpu=rng.randint(3, 9))
        cpu = f"{rng.randint(2, 10) * 100}m"
        wanted = _create_workloads(api, rng, blocked=False, cpu=cpu)
        await _until(changed, lambda: len(_pods(api)) == wanted and all(map(_is_ready, _pods(api))))
        await _until(changed, lambda: all(map(_is_observed, _budgets(api))))
        before = {_key(pod): pod["spec"]["nodeName"] for pod in _pods(api)}
        node = rng.choice(sorted(before.values()))
        plan = make_plan(_state(api), Changes(drain=[node]), UNSPREAD)
        outcome = await kubectl.run("drain", node, "--timeout=240s")
        await _until(changed, lambda: len(_pods(api)) == wanted and all(map(_is_ready, _pods(api))))
        came = [pod["spec"]["nodeName"] for pod in _pods(api) if _key(pod) not in before]
    assert outcome.code == 0, outcome.err
    assert len(came) == list(before.values()).count(node)
    assert Counter(came) == Counter(each.to_node for each in plan.moved)


def _create_node(api, name, *, cpu) -> None:
    amounts = {"cpu": str(cpu), "memory": "16Gi", "pods": "110"}
    status = {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    api.create("nodes", {"metadata": {"name": name}, "status": status})


def _create_workloads(api, rng, *, blocked, cpu=None) -> int:
    """Deployments, some with a budget, one of which may be strict; returns how many pods they
    want.
    """
    total = 0
    for name in ("a", "b", "c"):
        replicas = rng.randint(2, 5)
        total += replicas
        labels = {"app": name}
        requests = {"cpu": cpu or f"{rng.randint(1, 10) * 100}m"}
        container = {"name": "main", "image": "app", "resources": {"requests": requests}}
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
        }
        selector = {"matchLabels": labels}
        spec = {"replicas": replicas, "selector": selector, "template": template}
        metadata = {"name": name, "namespace": "default"}
        api.create("deployments.apps", {"metadata": metadata, "spec": spec})
        if name == "a":
            limit = {"minAvailable": replicas} if blocked else {"maxUnavailable": "60%"}
            budget = {"metadata": metadata, "spec": {"selector": selector, **limit}}
            api.create("poddisruptionbudgets.policy", budget)
    return total


def _budgets(api):
    return api.list("poddisruptionbudgets.policy")[0]


def _is_observed(budget) -> bool:
    status = budget.get("status") or {}
    return status.get("currentHealthy", 0) == status.get("expectedPods", -1)


def _is_ready(pod) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _owner(pod) -> str:
    return pod["metadata"]["labels"]["app"]


def _create_nodes(api, rng) -> None:
    for i in range(NODES):
        node = random_node(rng, f"node-{i}").json
        # A node that is not well would be tainted, or not, by the time the scheduler looks.
        node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        api.create("nodes", msgspec.json.decode(msgspec.json.encode(node)))


def _state(api) -> ClusterState:
    state = ClusterState("playground")
    for kind in KINDS:
        if not kind.is_preview:
            for obj in api.list(kind.resource)[0]:
                state.put(codec.convert(obj, kind.record))
    return state


def _pods(api):
    return api.list("pods")[0]


def _key(pod) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _is_settled(pod) -> bool:
    return pod["status"]["phase"] != "Pending" and not pod["metadata"].get("deletionTimestamp")


def _scheduler_knows(running, api) -> bool:
    """Whether its cache holds what the server has."""
    cache = running.scheduler.assembly.scheduler.cache
    alive = [pod for pod in _pods(api) if pod["status"]["phase"] == "Running"]
    return cache.node_count == NODES and cache.pod_count == len(alive)


def _all_tried(api, keys) -> bool:
    pods = {_key(pod): pod for pod in _pods(api)}
    return all(key in pods and _is_tried(pods[key]) for key in keys)


def _is_tried(pod) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return bool(pod["spec"].get("nodeName")) or any(
        each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions
    )


async def _until(changed: asyncio.Event, is_true) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not is_true():
            changed.clear()
            try:
                async with asyncio.timeout(
                    0.2
                ):  # the scheduler's own view changes without an event here
                    await changed.wait()
            except TimeoutError:
                continue
