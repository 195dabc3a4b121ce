"""Victims of a group: what is tried on the unit's nodes alone equals trying every member."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from group_scenarios import Groups

from kubesched.framework.preemption.group_preemption import GroupPreemptor


def beyond_their_node(rng: Random) -> dict[str, Any]:
    """What makes members look at other nodes, or at pods on them, or nothing."""
    selector = {"matchLabels": {"app": rng.choice("xyz")}}
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    spread = {**term, "maxSkew": rng.randint(1, 3), "whenUnsatisfiable": "DoNotSchedule"}
    return rng.choice(
        (
            {},
            {"affinity": {"podAffinity": required}},
            {"affinity": {"podAntiAffinity": required}},
            {"topologySpreadConstraints": [spread]},
        )
    )


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
        spec = beyond_their_node(rng)
        cpu = rng.choice((1, 1.5, 2))
        world.pods("g", *members, cpu=cpu, priority=10, labels={"app": "x"}, **spec)
        world.settle()
        return sorted(world.client.deleted), world.nominations()


SEEDS = range(100)


@pytest.mark.parametrize("part", range(10))
def test_a_unit_is_in_the_way_only_of_members_on_its_nodes(part, monkeypatch):
    shortcut = [victims_of(seed) for seed in SEEDS[part::10]]
    monkeypatch.setattr(GroupPreemptor, "_is_local", lambda *_: False)
    assert [victims_of(seed) for seed in SEEDS[part::10]] == shortcut


def test_these_clusters_have_victims_with_and_without_the_shortcut(monkeypatch):
    answers = Counter()
    is_local = GroupPreemptor._is_local

    def counted(self, unit, placed):
        looks_beyond = any(pod.spec.affinity is not None for pod in self._members)
        answers[looks_beyond, answer := is_local(self, unit, placed)] += 1
        return answer

    monkeypatch.setattr(GroupPreemptor, "_is_local", counted)
    assert sum(bool(victims_of(seed)[0]) for seed in SEEDS) > 12
    assert answers.keys() == {(False, True), (False, False), (True, True), (True, False)}
