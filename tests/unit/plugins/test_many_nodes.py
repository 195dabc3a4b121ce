"""Spreading and affinity equal their scalar twins whatever the size of the cluster: in large ones,
most nodes have no pod that counts.
"""

from random import Random

import numpy as np
import pytest
from judging import make
from msgspec import to_builtins
from random_clusters import APPS, KEYS
from scalar import affinity, spread
from scalar.model import Model

from kubesched.api.core_v1 import Service, ServiceSpec
from kubesched.api.meta import ObjectMeta
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns, PassingColumns
from kubesched.framework.status import SKIP
from kubesched.insight.state.memory import MemoryListers
from kubesched.plugins.inter_pod_affinity import InterPodAffinity
from kubesched.plugins.pod_topology_spread import PodTopologySpread
from kubesched.testing import make_node, make_pod
from kubesched.testing.builders import HOSTNAME

NODES = 40
MODULES = ("inter_pod_affinity", "pod_topology_spread")


class Side:
    """A cluster as a table and as the twins' model."""

    def __init__(self, rng: Random, hosts: str) -> None:
        self.rng, self.hosts = rng, hosts
        self.table, self.model = NodeTable(64), Model()
        for number in range(NODES):
            self.put_node(f"n{number}")
        for number in range(rng.choice([1, 3, 12])):
            self.put_pod(f"old-{number}")
        for number in rng.sample(range(NODES), rng.choice([0, 5])):  # rows that are used again
            name = f"n{number}"
            if not self.table.pods[self.table.row_of[name]]:
                self.table.remove_node(name)
                self.model.remove_node(name)
                self.put_node(f"later-{number}")

    def put_node(self, name: str) -> None:
        node = make_node(name).zone(self.rng.choice("abc"))
        if self.rng.random() < 0.5:
            node.label("rack", self.rng.choice("xy"))
        if self.hosts == "shared" and self.rng.random() < 0.3:
            node.label(HOSTNAME, "twin")
        built = node.build()
        if self.hosts == "missing" and self.rng.random() < 0.1:
            del built.metadata.labels[HOSTNAME]
        self.table.set_node(built)
        self.model.set_node(to_builtins(built))

    def put_pod(self, name: str) -> None:
        pod = self.terms(make_pod(name).label("app", self.rng.choice(APPS)))
        built = pod.on(f"n{self.rng.randrange(NODES)}").build()
        self.table.add_pod(PodInfo(built), built.spec.node_name)
        self.model.add_pod(to_builtins(built))

    def terms(self, pod):
        rng = self.rng
        for kind in ("podAffinity", "podAntiAffinity"):
            if rng.random() < 0.5:
                key = rng.choice(KEYS)
                pod.preferred_pod_term(kind, rng.randint(1, 9), key, app=rng.choice(APPS))
        if rng.random() < 0.3:
            pod.pod_anti_affinity(rng.choice(KEYS), app=rng.choice(APPS))
        return pod

    def pending(self):
        pod = self.terms(make_pod("new").label("app", self.rng.choice(APPS)))
        for key in self.rng.sample(KEYS, self.rng.randrange(4)):
            selector = {"matchLabels": {"app": self.rng.choice(APPS)}}
            pod.spread(self.rng.randint(1, 3), key, "ScheduleAnyway", selector)
        return pod.build()

    def feasible(self) -> PassingColumns:
        mask = self.table.alive[: self.table.high_water].copy()
        mask[self.rng.sample(range(len(mask)), self.rng.choice([0, 1, 20]))] = False
        return PassingColumns(self.table, mask)


def scores(plugin, pod, nodes):
    state = CycleState()
    status = plugin.pre_score(state, pod, nodes)
    if status is SKIP:
        return None
    assert status is None
    final = plugin.normalize_scores(state, pod, plugin.score_nodes(state, pod, nodes), nodes)
    return dict(zip((nodes.name_at(at) for at in range(len(nodes))), final.tolist(), strict=True))


@pytest.mark.parametrize("many", [0, 8192])
@pytest.mark.parametrize("hosts", ["one each", "shared", "missing"])
@pytest.mark.parametrize("seed", range(40))
def test_scores_and_verdicts_equal_their_twins(seed, hosts, many, monkeypatch):
    for module in MODULES:
        monkeypatch.setattr(f"kubesched.plugins.{module}.scoring._MANY", many)
    side = Side(Random(seed), hosts)
    table, model, pod, nodes = side.table, side.model, side.pending(), side.feasible()
    names = [nodes.name_at(at) for at in range(len(nodes))]
    near, spreading = make(InterPodAffinity, table), make(PodTopologySpread, table)
    json = to_builtins(pod)
    assert scores(near, pod, nodes) == affinity.score_all(model, json, names)
    assert scores(spreading, pod, nodes) == spread.score_all(model, json, names)
    state = CycleState()
    expected = affinity.filter_all(model, json)
    everyone = NodeColumns(table)
    is_skipped = near.pre_filter(state, pod, everyone) is SKIP
    assert is_skipped == (expected is None)
    if not is_skipped:
        verdicts = near.filter_nodes(state, pod, everyone)
        rejected = np.zeros(len(everyone)) if verdicts is None else verdicts.rejected
        assert {table.names[row] for row in np.flatnonzero(rejected)} - {""} == {
            name for name in model.nodes if expected[name] is not None
        }
    table.pod_index.check_invariants(
        (row, pod) for row in table.row_of.values() for pod in table.pods[row].values()
    )


@pytest.mark.parametrize("hosts", ["one each", "shared", "missing"])
@pytest.mark.parametrize("seed", range(20))
def test_default_constraints_score_alike_in_clusters_of_any_size(seed, hosts, monkeypatch):
    side = Side(Random(seed), hosts)
    listers = MemoryListers()
    meta = ObjectMeta(name="web", namespace="default")
    listers.of(Service).put(Service(metadata=meta, spec=ServiceSpec(selector={"app": "web"})))
    plugin = PodTopologySpread(None, Handle(table=side.table, listers=listers))
    pod, nodes = make_pod("new").label("app", "web").build(), side.feasible()
    small = scores(plugin, pod, nodes)
    monkeypatch.setattr("kubesched.plugins.pod_topology_spread.scoring._MANY", 0)
    assert scores(plugin, pod, nodes) == small
    assert small is not None
