"""Sums by priority: always what a recount over the pods on nodes gives."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from kubesched.framework.nodes import priorities as priorities_module
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.scheduler.cache.cache import Cache
from kubesched.testing import make_node, make_pod

GPU = "example.com/gpu"


def random_pod(rng: Random, name: str):
    pod = make_pod(name).priority(rng.choice([-3, 0, 0, 5, 9, 2_000_000_000])).cpu("100m")
    if rng.random() < 0.5:
        pod.memory("64Mi").request("ephemeral-storage", "1Gi")
    if rng.random() < 0.3:
        pod.request(GPU, rng.choice([1, 2])).request("example.com/fpga", 1)
    return pod


def recount(table: NodeTable, priority: int, resource: int | None):
    """By row, over the pods themselves."""
    counts = np.zeros(table.high_water, dtype=np.int64)
    names = {number: name for name, number in table.resource_index.items()}
    for row, pod in table.all_pods():
        if pod.priority < priority:
            requests = pod.requests
            native = (requests.milli_cpu, requests.memory, requests.ephemeral_storage)
            if resource is None:
                counts[row] += 1
            else:
                counts[row] += (
                    native[resource] if resource < 3 else requests.scalars.get(names[resource], 0)
                )
    return counts


@pytest.mark.parametrize("limit", [64, 2, 0])
@pytest.mark.parametrize("seed", range(20))
def test_sums_equal_a_recount(seed: int, limit: int, monkeypatch) -> None:
    monkeypatch.setattr(priorities_module, "PRIORITY_LIMIT", limit)
    rng = Random(seed)
    table = NodeTable(2)
    cache = Cache(table)
    pods = []
    for step in range(120):
        action = rng.random()
        node = f"n{rng.randrange(6)}"
        if action < 0.15:
            offers = {GPU: str(rng.choice([0, 4]))} if rng.random() < 0.4 else {}
            cache.add_node(make_node(node).capacity(cpu="4", **offers).build())
        elif action < 0.2 and node in table.row_of:
            cache.remove_node(node)
        elif action < 0.4 and pods:
            cache.remove_pod(pods.pop(rng.randrange(len(pods))))
        else:
            pods.append(random_pod(rng, f"p{step}").on(node).build())
            cache.add_pod(pods[-1])
    cache.check_invariants()
    rows = np.arange(table.high_water)
    for priority in (-3, 0, 1, 5, 6, 2_000_000_001):
        below = table.pods_below(priority)
        assert below.pod_count(rows).tolist() == recount(table, priority, None).tolist()
        for resource in table.requested:
            expected = recount(table, priority, resource).tolist()
            assert below.requested(resource, rows).tolist() == expected
            assert below.requested(resource, rows[::2]).tolist() == expected[::2]


def test_drift_is_noticed() -> None:
    table = NodeTable(2)
    cache = Cache(table)
    cache.add_node(make_node("n").build())
    for priority in (0, 5):
        cache.add_pod(make_pod(f"p{priority}").priority(priority).cpu("1").on("n").build())
    table.priorities._sums[5].requested[0].cells[0] += 1
    with pytest.raises(AssertionError, match="requests of priority 5 drifted"):
        table.check_invariants()
