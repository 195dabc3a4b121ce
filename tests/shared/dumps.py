"""Clusters as `kubectl get -o json` dumps them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kubesched.testing import make_node, make_pod


def dump_of_two_nodes(folder: Path, *, used_cpu: str) -> Path:
    """Nodes n0 and n1 with 4 cpu each in two zones, and a pod on n0 that asks for `used_cpu`."""
    nodes = [make_node(f"n{i}").capacity(cpu="4").zone("ab"[i % 2]) for i in range(2)]
    items = [{"apiVersion": "v1", "kind": "Node", **node.json} for node in nodes]
    pod = make_pod("old").cpu(used_cpu).on("n0")
    items.append({"apiVersion": "v1", "kind": "Pod", **pod.json})
    path = folder / "dump.json"
    path.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}))
    return path
