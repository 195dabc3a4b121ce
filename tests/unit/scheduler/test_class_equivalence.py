"""Pod classes never change a decision.

Two schedulers see the same random history of nodes, pods, updates and removals; one keeps columns per pod class, the
other computes everything anew for every pod. Placements, failures and their messages must be the same throughout.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pytest
from msgspec import structs

sys.path.insert(0, str(Path(__file__).parent))
from random_clusters import random_node, random_pod

from kubesched.cache.cache import Cache
from kubesched.framework.classes import ClassCache
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interfaces import NominatingInfo
from kubesched.framework.runtime import Framework
from kubesched.scheduler.algorithm import ScheduleResult, SchedulingAlgorithm
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.pods import PodInfo
from kubesched.testing.frameworks import default_framework


class Nominations:
    """The least that stands in for the queue's nominator."""

    def __init__(self) -> None:
        self.by_node: dict[str, list[PodInfo]] = {}
        self.version = 0

    def add_nominated_pod(self, pod: PodInfo, info: NominatingInfo | None) -> None:
        self.by_node.setdefault(info.node_name, []).append(pod)
        self.version += 1

    def delete_nominated_pod(self, pod) -> None:
        for pods in self.by_node.values():
            pods[:] = [p for p in pods if p.uid != pod.metadata.uid]
        self.version += 1

    def nominated_pods_for_node(self, node_name: str) -> list[PodInfo]:
        return self.by_node.get(node_name, [])

    def changes_since(self, version: int) -> None:
        return None

    def nominated_nodes(self) -> list[str]:
        return [name for name, pods in self.by_node.items() if pods]


class Side:
    """One scheduler's view of the history."""

    def __init__(self, seed: int, parallelism: int, *, classes: bool) -> None:
        self.cache = Cache(NodeTable(4))
        self.framework: Framework = default_framework(self.cache.table)
        self.framework.handle.nominator = Nominations()
        self.algorithm = SchedulingAlgorithm(
            self.cache.table,
            Random(seed),
            parallelism=parallelism,
            classes=ClassCache() if classes else None,
        )

    def place(self, pod) -> str:
        info = PodInfo(pod)
        outcome = self.algorithm.schedule(self.framework, CycleState(), info)
        if isinstance(outcome, ScheduleResult):
            self.cache.assume_pod(info.assumed_on(outcome.node_name))
            return f"{outcome.node_name} of {outcome.feasible_nodes}/{outcome.evaluated_nodes}"
        return f"{outcome.code.name}: {outcome.message}"


@pytest.mark.parametrize("parallelism", [1, 16])
@pytest.mark.parametrize("seed", range(12))
def test_classes_and_plain_columns_decide_alike(seed: int, parallelism: int) -> None:
    rng = Random(seed)
    with_classes = Side(seed, parallelism, classes=True)
    without = Side(seed, parallelism, classes=False)
    sides = (with_classes, without)
    templates = [random_pod(rng, f"template-{n}") for n in range(6)]
    placed: list = []
    for step in range(220):
        action = rng.random()
        if step < 8 or action < 0.06:
            node = random_node(rng, f"n{rng.randrange(12)}").build()
            for side in sides:
                side.cache.add_node(node)
        elif action < 0.08 and without.cache.table.row_of:
            name = rng.choice(sorted(without.cache.table.row_of))
            for side in sides:
                side.cache.remove_node(name)
        elif action < 0.2 and placed:
            pod = placed.pop(rng.randrange(len(placed)))
            for side in sides:
                side.cache.forget_pod(pod) if side.cache.is_assumed(
                    pod.metadata.uid
                ) else side.cache.remove_pod(pod)
        elif action < 0.23 and without.cache.table.row_of:
            rival = PodInfo(random_pod(rng, f"rival-{step}").priority(rng.choice([0, 10])).build())
            where = rng.choice(sorted(without.cache.table.row_of))
            for side in sides:
                side.framework.handle.nominator.add_nominated_pod(
                    rival, NominatingInfo(True, where)
                )
        else:
            template = rng.choice(templates)
            template.json["metadata"].update(name=f"p{step}", uid=f"uid-{step}")
            pod = template.build()
            answers = [side.place(pod) for side in sides]
            assert answers[0] == answers[1], f"step {step}: {answers}"
            assumed = without.cache.get_pod(f"uid-{step}")
            if assumed is not None:
                placed.append(assumed.pod)
                if rng.random() < 0.5:  # the watch confirms, sometimes with changed labels
                    labels = {"app": "web"} if rng.random() < 0.2 else assumed.pod.metadata.labels
                    meta = structs.replace(assumed.pod.metadata, labels=labels)
                    confirmed = structs.replace(assumed.pod, metadata=meta)
                    for side in sides:
                        side.cache.add_pod(confirmed)
                    placed[-1] = confirmed
    for side in sides:
        side.cache.check_invariants()
