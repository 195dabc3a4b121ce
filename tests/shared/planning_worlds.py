"""Clusters and files for tests of plans."""

from __future__ import annotations

from random import Random

import msgspec
from random_clusters import random_node, random_pod

from kubesched.config.load import load
from kubesched.planning.manifests import Manifest
from kubesched.state.cluster_state import ClusterState

ONE_WORKER = load(
    b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: 1\n"
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
