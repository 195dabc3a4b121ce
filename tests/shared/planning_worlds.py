"""Clusters and files for tests of plans."""

from __future__ import annotations

from random import Random

import msgspec
from random_clusters import random_node, random_pod

from kubesched.config.load import load
from kubesched.insight.planning.manifests import Manifest
from kubesched.insight.planning.plan import Changes, make_plan
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.testing import make_node, make_pod

ONE_WORKER = load(
    b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: "
    b"1\n"
)
"""Ties between nodes are decided by upstream's rule for one worker, not by drawing."""


def random_state(rng: Random, nodes: int = 6, pods: int = 12) -> ClusterState:
    """Nodes with pods on them; every pod fits nothing in particular."""
    state = ClusterState("generated")
    for i in range(nodes):
        state.put(random_node(rng, f"node-{i}").build())
    for i in range(pods):
        pod = random_pod(rng, f"old-{i}").on(f"node-{rng.randrange(nodes)}").build()
        state.put(pod)
    return state


def pod_manifest(rng: Random, name: str = "new") -> Manifest:
    """A pod as a user would write it."""
    json = msgspec.json.decode(msgspec.json.encode(random_pod(rng, name).json))
    return Manifest("pod.yaml", 1, {"apiVersion": "v1", "kind": "Pod", **completed(json)})


def deployment_manifest(rng: Random, replicas: int, name: str = "new") -> Manifest:
    pod = pod_manifest(rng).obj
    labels = pod["metadata"].get("labels") or {}
    return Manifest(
        "web.yaml",
        1,
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": pod["metadata"]["namespace"]},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
            },
        },
    )


def completed(pod: dict) -> dict:
    """What a builder leaves out and an API server insists on."""
    pod["metadata"].pop("uid", None)
    pod.pop("status", None)
    for field in ("schedulerName", "priority"):
        pod["spec"].pop(field, None)
    containers = pod["spec"].setdefault("containers", [])
    if not containers:
        containers.append({"name": "main"})
    for container in containers:
        container.setdefault("image", "app:latest")
        requests = (container.get("resources") or {}).get("requests") or {}
        if "example.com/gpu" in requests:
            container["resources"]["limits"] = {"example.com/gpu": requests["example.com/gpu"]}
        for port in container.get("ports") or ():
            port.setdefault("containerPort", port.get("hostPort", 80))
    for constraint in pod["spec"].get("topologySpreadConstraints") or ():
        constraint.setdefault("whenUnsatisfiable", "DoNotSchedule")
    return pod


def planned(state, seed=0, **changes):
    return make_plan(state, Changes(**changes), seed=seed)


def nodes(count=3, cpu="4"):
    state = ClusterState("test")
    for i in range(count):
        state.put(make_node(f"n{i}").capacity(cpu=cpu, memory="8Gi").zone("abc"[i % 3]).build())
    return state


def owned(name, node="", *, kind="ReplicaSet", owner="web", cpu="1", ready=True, **labels):
    pod = make_pod(name).cpu(cpu).labels(**(labels or {"app": owner}))
    if node:
        pod.on(node)
    group = "batch/v1" if kind == "Job" else "apps/v1"
    pod.json["metadata"]["ownerReferences"] = [
        {
            "apiVersion": group,
            "kind": kind,
            "name": owner,
            "uid": f"uid-{owner}",
            "controller": True,
        }
    ]
    if ready and node:
        pod.json["status"] = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
        }
    return pod.build()
