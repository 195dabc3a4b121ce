"""Pods that leave a table together: as one by one, and all is as before when they return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import pytest

from kubesched.api.core_v1 import Pod
from kubesched.framework.nodes import priorities as priorities_module
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pod_index import TERM_KINDS
from kubesched.framework.nodes.pods import PodInfo
from kubesched.testing import make_node, make_pod
from kubesched.testing.builders import HOSTNAME

GPU = "example.com/gpu"
PRIORITIES = (-3, 0, 5, 2_000_000_000)
HUGE = 2**63 - 1


@dataclass(frozen=True)
class App:
    """Counts the pods of an app."""

    app: str

    @property
    def key(self) -> str:
        return self.app

    @property
    def anchor(self) -> tuple[str, str]:
        return "app", self.app

    def matches(self, namespace: str, labels: Mapping[str, str], terminating: bool) -> bool:
        return labels.get("app") == self.app


def random_pod(rng: Random, name: str) -> Pod:
    pod = make_pod(name).uid(name).on(f"n{rng.randrange(4)}").priority(rng.choice(PRIORITIES))
    pod.request("cpu", rng.choice(["100m", "1", str(HUGE // 1000)]))
    if rng.random() < 0.5:
        pod.memory(rng.choice(["64Mi", str(HUGE)])).request("ephemeral-storage", "1Gi")
    if rng.random() < 0.3:
        pod.request(GPU, rng.choice([1, 2])).request("example.com/fpga", 1)
    if rng.random() < 0.4:
        pod.host_port(rng.choice([80, 443]), ip=rng.choice(["", "10.0.0.1"]))
    if rng.random() < 0.3:
        pod.claim(rng.choice("cd"))
    if rng.random() < 0.8:
        pod.labels(app=rng.choice("xyz"))
    if rng.random() < 0.3:
        pod.pod_anti_affinity(rng.choice([HOSTNAME, "zone"]), app=rng.choice("xy"))
    if rng.random() < 0.2:
        pod.terminating()
    return pod.build()


def random_table(seed: int) -> tuple[NodeTable, list[PodInfo]]:
    rng = Random(seed)
    table = NodeTable(2)
    for number in range(4):
        node = make_node(f"n{number}").label("zone", rng.choice("ab"))
        table.set_node((node.offers(GPU, 4) if rng.random() < 0.8 else node).build())
    pods = [PodInfo(random_pod(rng, f"p{number}")) for number in range(rng.randint(1, 20))]
    for pod in pods:
        table.add_pod(pod, pod.pod.spec.node_name)
    for app in "xy":
        table.pod_index.counter(App(app)).by_domain("zone")
    gone = rng.choice(pods)
    if rng.random() < 0.5:  # a port that others share may be free now
        table.remove_pod(gone, gone.pod.spec.node_name)
        pods.remove(gone)
    return table, pods


def image(table: NodeTable) -> dict[str, object]:
    """Everything that decisions may depend on."""
    table.check_invariants()
    index, below = table.pod_index, [table.pods_below(priority) for priority in PRIORITIES]
    columns = [*table.requested.values(), table.nonzero_cpu, table.nonzero_memory, table.pod_count]
    counters = [index.counter(App(app)) for app in "xyz"]
    return {
        "pods": [list(pods) for pods in table.pods],
        "sums": [column.array.tolist() for column in columns],
        "below": [
            sums and [sums.requested(resource, slice(0, 4)).tolist() for resource in range(3)]
            for sums in below
        ],
        "ports": {(*port, row) for *port, rows in table.ports.save() for row in rows},
        "claims": {claim: dict(rows) for claim, rows in table.claims.items()},
        "counters": [(dict(each.rows), each.per_row.tolist()) for each in counters],
        "domains": [each.by_domain("zone").counts.tolist() for each in counters],
        "terms": [{term.key: dict(term.rows) for term in index.terms(k)} for k in TERM_KINDS],
    }


@pytest.mark.parametrize("limit", [64, 1], ids=["sums by priority", "too many priorities"])
@pytest.mark.parametrize("seed", range(60))
def test_out_together_and_back_is_out_one_by_one_and_nothing(seed, limit, monkeypatch) -> None:
    monkeypatch.setattr(priorities_module, "PRIORITY_LIMIT", limit)
    rng = Random(seed)
    table, pods = random_table(seed)
    twin, same = random_table(seed)
    leaving = rng.sample(range(len(pods)), rng.randint(0, len(pods)))
    before = image(table)

    batch = table.take_out([pods[number] for number in leaving])
    for number in leaving:
        twin.remove_pod(same[number], same[number].pod.spec.node_name)
    out = image(table)
    assert out == image(twin)

    trial = [PodInfo(random_pod(rng, f"new{number}")) for number in range(3)]
    trial = [pod for pod in trial if not pod.host_ports]  # a member never shares a port
    back = [pods[number] for number in leaving if rng.random() < 0.4]
    for pod in (*trial, *back):
        table.add_pod(pod, pod.pod.spec.node_name)
    table.pod_index.counter(App("z")).by_domain("zone")
    table.check_invariants()
    for pod in rng.sample(trial + back, len(trial + back)):
        table.remove_pod(pod, pod.pod.spec.node_name)
    assert image(table) == out

    table.put_back(batch)
    assert image(table) == before
    for pod in pods:  # and each can still leave alone
        table.remove_pod(pod, pod.pod.spec.node_name)
    assert not any(image(table)["pods"])
    assert not table.pod_index._classes
