"""Histories of a small cluster in which pods preempt: pods come, go and start, nominations,
budgets, nodes and time change.
"""

from __future__ import annotations

from random import Random

from random_victims import random_victim, random_world

from kubesched.api.core_v1 import PodStatus
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.base.clock import ManualClock
from kubesched.testing import make_node


class History:
    """A world that changes."""

    def __init__(self, world_type, rng: Random) -> None:
        self.rng = rng
        self.world = random_world(world_type, rng)
        self.made = 0
        self.rivals: list[tuple[str, str]] = []

    def some_pod(self):
        pods = [pod for _, pod in self.world.table.all_pods()]
        return self.rng.choice(pods) if pods else None

    def change(self) -> None:
        getattr(self, self.rng.choice(CHANGES))()

    def pod_comes(self) -> None:
        self.made += 1
        node = self.rng.choice([*self.world.table.row_of])
        self.world.add(random_victim(self.rng, f"new-{self.made}").on(node))

    def pod_goes(self) -> None:
        if (pod := self.some_pod()) is not None:
            self.world.cache.remove_pod(pod.pod)

    def pod_starts(self) -> None:
        if (pod := self.some_pod()) is not None:
            start = self.rng.choice([None, "2026-01-01T03:00:00Z", "2026-01-01T13:00:00Z"])
            self.world.change(pod.pod, status=PodStatus(start_time=start))

    def nomination(self) -> None:
        self.made += 1
        node = self.rng.choice([*self.world.table.row_of])
        self.world.nominate(node, f"rival-{self.made}", "500m", self.rng.choice([0, 5, 9]))
        self.rivals.append((f"rival-{self.made}", node))

    def nomination_ends(self) -> None:
        if self.rivals:
            name, _ = self.rivals.pop()
            self.world.nominator.delete_nominated_pod(self.world.queued[f"default/{name}"].pod)

    def budget(self) -> None:
        labels = {"app": self.rng.choice(["web", "db"])}
        self.world.budget(f"b{self.rng.randrange(3)}", self.rng.randrange(3), **labels)

    def no_budgets(self) -> None:
        budgets = self.world.listers.of(PodDisruptionBudget)
        for budget in list(budgets.list()):
            budgets.remove(budget.metadata.namespace, budget.metadata.name)

    def time_passes(self) -> None:
        self.world.clock.advance(self.rng.choice([1, 3600, 4 * 3600]))

    def clock_is_set_back(self) -> None:
        self.world.clock = ManualClock(self.world.clock.now() - 3600)

    def node_changes(self) -> None:
        node = make_node(f"n{self.rng.randrange(10)}").capacity(
            cpu=self.rng.choice(["1", "2"]), memory="8Gi", pods=20
        )
        if self.rng.random() < 0.2:
            node.taint("dedicated", "x")
        self.world.add_node(node)

    def node_goes(self) -> None:
        names = [*self.world.table.row_of]
        if len(names) > 1:
            self.world.cache.remove_node(self.rng.choice(names))


CHANGES = (
    *["pod_comes", "pod_goes", "pod_starts", "nomination", "nomination_ends", "time_passes"] * 3,
    "budget",
    "no_budgets",
    "clock_is_set_back",
    "node_changes",
    "node_goes",
)
