"""Victims of a group: what is tried on the unit's nodes alone equals trying every member."""

from __future__ import annotations

from random import Random

import pytest
from group_scenarios import Groups

from kubesched.framework.preemption.group_preemption import GroupPreemptor


def victims_of(seed: int) -> tuple[list[str], dict[str, str]]:
    """The pods that a gang evicts in a random cluster, and its nominations."""
    rng = Random(seed)
    with Groups(*(rng.randint(2, 6) for _ in range(rng.randint(2, 5)))) as world:
        for number in range(rng.randint(0, 2)):
            mode = {rng.choice(("single", "all")): {}}
            world.group(f"v{number}", 0, priority=-number, disruptionMode=mode)
        for number in range(rng.randint(3, 12)):
            group = rng.choice(("", "", "v0", "v1"))
            priority = -int(group[1:]) if group else rng.randint(-3, 3)
            labels = {"app": rng.choice("xy")}
            cpu = rng.choice((0.5, 1, 2))
            world.pods(group, f"old{number}", cpu=cpu, priority=priority, labels=labels)
        world.budget("b", rng.randint(0, 1), app="x")
        world.settle()
        members = [f"new{number}" for number in range(rng.randint(1, 5))]
        world.group("g", rng.randint(1, len(members)), priority=10)
        world.pods("g", *members, cpu=rng.choice((1, 1.5, 2)), priority=10)
        world.settle()
        return sorted(world.client.deleted), world.nominations()


@pytest.mark.parametrize("seed", range(40))
def test_a_unit_is_in_the_way_only_of_members_on_its_nodes(seed, monkeypatch):
    shortcut = victims_of(seed)
    monkeypatch.setattr(GroupPreemptor, "_concerned", lambda self, unit, placed: placed)
    assert victims_of(seed) == shortcut


def test_these_clusters_have_victims():
    assert sum(bool(victims_of(seed)[0]) for seed in range(40)) > 5
