"""Random histories of gangs, pods and nodes: what must hold whenever nothing moves any more."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from group_scenarios import Groups

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.quantity import milli_value
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.framework.groups.states import group_of, is_gang, key_of_group, min_count

TOPOLOGY = "TopologyAwareWorkloadScheduling"
PRIORITIES = (0, 0, 100)
STEPS = 30
FLUSHED_S = 700
"""Twice the time after which gated groups are evaluated again, and any backoff."""


class History:
    """One world and what happens in it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.gates = self.random.choice(("", TOPOLOGY))
        self.world = Groups(gates=self.gates, seed=seed)
        self.numbers: Counter[str] = Counter()
        for _ in range(3):
            self.add_node()

    def name(self, kind: str) -> str:
        self.numbers[kind] += 1
        return f"{kind}{self.numbers[kind]}"

    # -- what happens ------------------------------------------------------------------------------

    def add_node(self) -> None:
        rack = self.random.choice(("r0", "r1"))
        self.world.node(self.name("n"), self.random.choice((1, 2, 4)), rack=rack)

    def remove_node(self) -> None:
        taken = {pod.spec.node_name for pod in self.world.objects(Pod)}
        free = [node for node in self.world.objects(Node) if node.metadata.name not in taken]
        if free:
            self.world.delete(self.random.choice(free))

    def add_gang(self) -> None:
        random, name = self.random, self.name("g")
        size, priority = random.choice((1, 2, 3, 4)), random.choice(PRIORITIES)
        spec = {"priority": priority, "disruptionMode": {random.choice(("single", "all")): {}}}
        if random.random() < 0.4:
            spec["schedulingConstraints"] = {"topology": [{"key": "rack"}]}
        gang = random.choice((0, size, size, max(1, size - 1)))
        members = [f"{name}-{number}" for number in range(size)]
        if random.random() < 0.3:  # pods may come first, and one by one
            self.world.pods(name, *members, cpu=random.choice((0.5, 1)), priority=priority)
            self.world.settle()
            self.world.group(name, gang, **spec)
        else:
            self.world.group(name, gang, **spec)
            self.world.pods(name, *members, cpu=random.choice((0.5, 1)), priority=priority)

    def add_pod(self) -> None:
        self.world.pods("", self.name("p"), priority=self.random.choice((-10, *PRIORITIES)))

    def add_member(self) -> None:
        groups = self.world.objects(PodGroup)
        if groups:
            group = self.random.choice(groups)
            name = group.metadata.name
            self.world.pods(name, f"{name}-{self.name('more')}", priority=group.spec.priority or 0)

    def delete_pod(self) -> None:
        pods = self.world.objects(Pod)
        if pods:
            self.world.delete(self.random.choice(pods))

    def change_minimum(self) -> None:
        gangs = [group for group in self.world.objects(PodGroup) if is_gang(group)]
        if gangs:
            name = self.random.choice(gangs).metadata.name
            self.world.min_count(name, self.random.choice((1, 2, 3)))

    def delete_group(self) -> None:
        groups = self.world.objects(PodGroup)
        if groups:
            self.world.delete(self.random.choice(groups))

    def step(self) -> None:
        what = (
            *(self.add_gang,) * 5,
            *(self.add_pod,) * 3,
            *(self.delete_pod,) * 5,
            *(self.add_member, self.add_node, self.remove_node) * 2,
            self.change_minimum,
            self.delete_group,
        )
        self.random.choice(what)()

    # -- what must hold ----------------------------------------------------------------------------

    def bound(self) -> dict[str, set[str]]:
        """Pods with a node, by group; "" for those without a group."""
        found: dict[str, set[str]] = {}
        for pod in self.world.objects(Pod):
            if pod.spec.node_name:
                key = group_of(pod)
                found.setdefault("" if key is None else key.name, set()).add(pod.metadata.uid)
        return found

    def check(self, before: dict[str, set[str]]) -> None:
        """No gang got its first pods below its minimum; nothing is left assumed or
        overcommitted.
        """
        states = self.world.assembly.scheduler.groups.states
        for name, pods in self.bound().items():
            group = self.world.find(PodGroup, "default", name) if name else None
            if group is not None and pods - before.get(name, set()):
                assert len(pods) >= min_count(group), f"{name} runs with {len(pods)} pods"
        for group in self.world.objects(PodGroup):
            state = states.state(key_of_group(group))
            assert not state.assumed, f"{group.metadata.name} has assumed pods"
        states.check_invariants()
        scheduler = self.world.assembly.scheduler
        assert scheduler.cache.assumed_count == 0
        scheduler.check_invariants()
        used: Counter[str] = Counter()
        for pod in self.world.objects(Pod):
            if pod.spec.node_name:
                used[pod.spec.node_name] += milli_value(
                    pod.spec.containers[0].resources.requests["cpu"]
                )
        for node in self.world.objects(Node):
            assert used[node.metadata.name] <= milli_value(node.status.allocatable["cpu"])

    def check_at_rest(self) -> None:
        """A scheduler that starts with the final state finds nothing that could still be placed."""
        before = self.bound()
        kept = [obj for kind in (Node, PodGroup, Pod) for obj in self.world.objects(kind)]
        with Groups(gates=self.gates, objects=kept) as fresh:
            fresh.settle()
            after = {pod.metadata.uid for pod in fresh.objects(Pod) if pod.spec.node_name}
        assert after == set().union(*before.values()), "more could be placed, or evicted"


def play(seed: int) -> History:
    history = History(seed)
    with history.world as world:
        for _ in range(STEPS):
            before = history.bound()
            history.step()
            world.settle()
            history.check(before)
            before = history.bound()
            world.run(history.random.choice((0, 1, 5, 30)))
            history.check(before)
        before = history.bound()
        world.run(FLUSHED_S)
        history.check(before)
        history.check_at_rest()
    return history


@pytest.mark.parametrize("seed", range(15))
def test_gangs_start_together_and_all_that_fits_starts(seed):
    play(seed)
