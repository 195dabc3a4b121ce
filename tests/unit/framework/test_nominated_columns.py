"""Nodes with nominated pods, judged together or one by one: the same verdicts, whatever happens to
nominations.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from frameworks import default_framework
from hypothesis import given, settings
from hypothesis import strategies as st

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.nodes import priorities as priorities_module
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.runtime import nominated as nominated_module
from kubesched.framework.runtime.nominated import (
    NominatedPods,
    filter_node_with_nominated,
    filter_with_nominated_pods,
)
from kubesched.framework.runtime.pre_filter import run_pre_filter
from kubesched.insight.state.memory import MemoryListers
from kubesched.scheduler.queue.nominator import CHANGES_LIMIT, Nominator
from kubesched.testing import make_node, make_pod
from kubesched.testing.builders import HOSTNAME

GPU = "example.com/gpu"


class World:
    """Nodes, pods nominated to them, and the default profile."""

    def __init__(self) -> None:
        self.table = NodeTable(2)
        self.pods = MemoryListers().of(Pod)
        self.queued: dict[str, PodInfo] = {}
        self.nominator = Nominator(self.pods, self.queued.get)
        handle = Handle(table=self.table, nominator=self.nominator)
        self.framework = default_framework(self.table, handle)

    def node(self, name: str, cpu: str = "2") -> None:
        node = make_node(name).capacity(cpu=cpu, memory="8Gi", pods="4").offers(GPU, 1)
        node.label("zone", "a" if name in ("n0", "n2") else "b")
        self.table.set_node(node.build())

    def nominate(self, name: str, node: str, pod: Pod) -> None:
        self.pods.put(pod)
        self.queued[f"default/{name}"] = PodInfo(pod)
        self.nominator.add_nominated_pod(PodInfo(pod), NominatingInfo(True, node))

    def verdicts(self, pod: Pod):
        """What the filters say about every node, by name."""
        state = CycleState()
        info = PodInfo(pod)
        run_pre_filter(self.framework, state, pod, NodeColumns(self.table))
        outcome = filter_with_nominated_pods(self.framework, state, info, NodeColumns(self.table))
        assert outcome.error is None
        together = {name: outcome.status_at(row) for name, row in self.table.row_of.items()}
        alone = {
            name: filter_node_with_nominated(
                self.framework, state, info, NodeColumns(self.table, np.array([row]))
            )
            for name, row in self.table.row_of.items()
        }
        for name, row in self.table.row_of.items():
            assert outcome.passing[row] == (together[name] is None)
        return together, alone


def random_pod(rng: Random, name: str, uid: str | None = None) -> Pod:
    pod = make_pod(name).priority(rng.choice([0, 5, 10])).cpu(rng.choice(["500m", "1"]))
    if rng.random() < 0.3:
        pod.request(GPU, 1)
    if rng.random() < 0.3:
        pod.host_port(80)
    if rng.random() < 0.3:
        pod.labels(app=rng.choice("xy"))
    if rng.random() < 0.15:
        pod.pod_anti_affinity(rng.choice([HOSTNAME, "zone"]), app=rng.choice("xy"))
    if rng.random() < 0.1:
        pod.pod_affinity(HOSTNAME, app="x")
    if uid:
        pod.uid(uid)
    return pod.build()


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize("limit", [64, 0], ids=["sums by priority", "too many priorities"])
def test_together_is_one_by_one(limit: int, seed: int) -> None:
    rng = Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(priorities_module, "PRIORITY_LIMIT", limit)
        world = World()
        names = [f"n{number}" for number in range(5)]
        nominated: dict[str, Pod] = {}
        for step in range(25):
            action = rng.random()
            node = rng.choice(names)
            if action < 0.2 or not world.table.row_of:
                world.node(node, rng.choice(["1", "2"]))
            elif action < 0.25 and node in world.table.row_of:
                world.table.remove_node(node)
            elif action < 0.55:
                name = f"r{rng.randrange(6)}"
                nominated[name] = random_pod(rng, name, f"uid-{name}")
                world.nominate(name, rng.choice([*names, "nowhere"]), nominated[name])
            elif action < 0.65 and nominated:
                name = rng.choice(sorted(nominated))
                world.nominator.delete_nominated_pod(nominated.pop(name))
            elif action < 0.7 and nominated:
                name = rng.choice(
                    sorted(nominated)
                )  # it is taken to be tried: nothing is known of it
                world.queued.pop(f"default/{name}", None)
                world.nominator.moved(f"uid-{name}")
            else:
                own = rng.choice([None, *nominated]) if rng.random() < 0.3 else None
                uid = f"uid-{own}" if own else None
                together, alone = world.verdicts(random_pod(rng, f"p{step}", uid))
                assert together == alone


def test_one_who_lags_behind_looks_at_everything_again() -> None:
    world = World()
    world.node("n")
    followed = NominatedPods(world.table, world.nominator)
    pod = make_pod("r").cpu("1").build()
    for _ in range(CHANGES_LIMIT):
        world.nominate("r", "n", pod)
    rivals = followed.rivals_of(PodInfo(make_pod("p").build()))
    assert rivals is not None
    assert rivals.pod_count(np.array([0])).tolist() == [1]


def test_nothing_is_looked_at_again_while_nothing_changes(monkeypatch) -> None:
    world = World()
    world.node("n")
    world.nominate("r", "n", make_pod("r").cpu("1").build())
    followed = NominatedPods(world.table, world.nominator)
    pod = PodInfo(make_pod("p").build())
    first = followed.rivals_of(pod)
    monkeypatch.setattr(nominated_module.NominatedPods, "_put", None)
    assert followed.rivals_of(pod) is first
