"""Clusters as `kubectl get -o json` dumps them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from kubesched.testing import make_node, make_pod

UP = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def dump_of_two_nodes(folder: Path, *, used_cpu: str) -> Path:
    """Nodes n0 and n1 with 4 cpu each in two zones, and a pod on n0 that asks for `used_cpu`."""
    nodes = [make_node(f"n{i}").capacity(cpu="4").zone("ab"[i % 2]) for i in range(2)]
    pod = make_pod("old").cpu(used_cpu).on("n0")
    path = folder / "dump.json"
    path.write_text(_dump(*(("v1", "Node", node.json) for node in nodes), ("v1", "Pod", pod.json)))
    return path


def dump_of_six_nodes() -> str:
    """Two nodes in each of three zones, three workloads, and a budget that lets no pod of `api`
    go.
    """
    nodes = [
        make_node(f"node-{i}").capacity(cpu="8", memory="32Gi", pods="110").zone(f"zone-{zone}")
        for i, zone in enumerate("abcabc")
    ]
    pods = [
        *(_replica("api", i, node=f"node-{i}", cpu="1") for i in range(3)),
        *(_replica("store", i, node=f"node-{i}", cpu="2") for i in range(3)),
        _replica("batch", 0, node="node-3", cpu="2"),
        _replica("batch", 1, node="node-4", cpu="6"),
        _replica("batch", 2, node="node-5", cpu="4"),
    ]
    budget = {
        "metadata": {"name": "api", "namespace": "default"},
        "spec": {"minAvailable": 3, "selector": {"matchLabels": {"app": "api"}}},
        "status": {"currentHealthy": 3, "desiredHealthy": 3, "expectedPods": 3},
    }
    return _dump(
        *(("v1", "Node", node.json) for node in nodes),
        *(("v1", "Pod", pod) for pod in pods),
        ("policy/v1", "PodDisruptionBudget", budget),
    )


def dump_of_twelve_nodes() -> str:
    """Nodes in three zones with one to four pods each; node-3 has web-3-0 and web-3-1."""
    nodes = [
        make_node(f"node-{i}")
        .capacity(cpu="8", memory="32Gi", pods="110")
        .zone(f"zone-{'abc'[i % 3]}")
        for i in range(12)
    ]
    pods = [
        make_pod(f"web-{i}-{j}")
        .cpu(f"{500 + 250 * (i % 3)}m")
        .memory("3Gi")
        .labels(app="web")
        .on(f"node-{i}")
        .status(**UP)
        for i in range(12)
        for j in range(1 + i % 4)
    ]
    return _dump(
        *(("v1", "Node", node.json) for node in nodes), *(("v1", "Pod", pod.json) for pod in pods)
    )


def _replica(app: str, number: int, *, node: str, cpu: str) -> dict[str, Any]:
    pod = make_pod(f"{app}-7d9c-{number}").cpu(cpu).memory("2Gi").labels(app=app).on(node)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{app}-7d9c"}
    pod.json["metadata"]["ownerReferences"] = [{**owner, "uid": f"uid-{app}", "controller": True}]
    return pod.status(**UP).json


def _dump(*objects: tuple[str, str, dict[str, Any]]) -> str:
    items = [{"apiVersion": version, "kind": kind, **obj} for version, kind, obj in objects]
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}).decode()
