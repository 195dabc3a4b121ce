"""A plan foretells the playground: the same pods go to the same nodes, one by one.

`KUBESCHED_PLAN_CASES=50` plays fifty generated clusters instead of a few.
"""

from __future__ import annotations

import asyncio
import os
from random import Random

import msgspec
import pytest
from planning_worlds import ONE_WORKER, completed, deployment_manifest
from random_clusters import random_node, random_pod

from kubesched.api import codec
from kubesched.app.playground import PlaygroundSettings, playground
from kubesched.planning.plan import Changes, make_plan
from kubesched.state.cluster_state import KINDS, ClusterState

CASES = int(os.environ.get("KUBESCHED_PLAN_CASES", "4"))
DEADLINE_S = 60.0
NODES = 8


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
        plan = await make_plan(_state(api), Changes(manifests=[manifest]), ONE_WORKER)

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
