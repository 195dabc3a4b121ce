"""Victims of a group: units tried in rounds, as rows, equal trying each against every member."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest
from group_scenarios import Groups

from kubesched.framework.preemption.reprieve import Reprieve


def beyond_their_node(rng: Random) -> dict[str, Any]:
    """What makes pods look at other nodes, or at pods on them, or nothing."""
    selector = {"matchLabels": {"app": rng.choice("xyz")}}
    key = rng.choice(("kubernetes.io/hostname", "kubernetes.io/hostname", "zone"))
    term = {"labelSelector": selector, "topologyKey": key}
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


def victims_of(seed: int, *, with_engine: bool = True) -> tuple[list[str], dict[str, str]]:
    """The pods that a gang evicts in a random cluster, in order, and its nominations."""
    rng = Random(seed)
    with Groups() as world:
        if not with_engine:
            world.assembly.scheduler.cycle.algorithm.engine = None
        for number in range(rng.randint(2, 6)):
            zones = rng.choice(({"zone": "a"}, {"zone": "b"}, {}))
            world.node(f"n{number}", rng.randint(2, 6), **zones)
        for number in range(rng.randint(0, 2)):
            mode = {rng.choice(("single", "all")): {}}
            world.group(f"v{number}", 0, priority=-number, disruptionMode=mode)
        for number in range(rng.randint(3, 14)):
            group = rng.choice(("", "", "v0", "v1"))
            priority = -int(group[1:]) if group else rng.randint(-3, 3)
            labels = {"app": rng.choice("xy")}
            cpu = rng.choice((0.5, 1, 2))
            spec = beyond_their_node(rng) if rng.random() < 0.2 else {}
            world.pods(group, f"old{number}", cpu=cpu, priority=priority, labels=labels, **spec)
        if rng.random() < 0.5:
            world.budget("b", rng.randint(0, 1), app="x")
        world.settle()
        members = [f"new{number}" for number in range(rng.randint(1, 5))]
        world.group("g", rng.randint(1, len(members)), priority=10)
        kinds = [(beyond_their_node(rng), rng.choice("xyz")) for _ in range(rng.randint(1, 2))]
        cpu = rng.choice((1, 1.5, 2))
        for member in members:
            spec, app = rng.choice(kinds)
            world.pods("g", member, cpu=cpu, priority=10, labels={"app": app}, **spec)
        world.settle()
        return world.client.deleted, world.nominations()


SEEDS = range(160)
PARTS = [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 10))]
"""All but the first are slow: together they take ten seconds of CPU time."""


@cache
def usual(seed: int) -> tuple[tuple[list[str], dict[str, str]], frozenset[tuple[bool, ...]]]:
    """The victims as they are found by default, and what was tried on the way."""
    seen = set()
    try_round = Reprieve._try

    def noted(self, tried):
        condemned = try_round(self, tried)
        beyond = any(looks_beyond for _, _, looks_beyond in tried)
        seen.add((len(tried) > 1, beyond, self._are_independent, bool(condemned)))
        return condemned

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reprieve, "_try", noted)
        return victims_of(seed), frozenset(seen)


@pytest.mark.parametrize("part", PARTS)
def test_units_tried_in_rounds_equal_those_tried_against_all_members(part, monkeypatch):
    in_rounds = [usual(seed)[0] for seed in SEEDS[part::10]]
    monkeypatch.setattr(Reprieve, "_keys_affected_by", lambda *_: None)
    monkeypatch.setattr(Reprieve, "concerned", lambda _, units: units)
    assert [victims_of(seed) for seed in SEEDS[part::10]] == in_rounds


@pytest.mark.parametrize("part", PARTS)
def test_members_placed_by_answers_of_their_class_evict_the_same(part):
    by_class = [usual(seed)[0] for seed in SEEDS[part::10]]
    assert [victims_of(seed, with_engine=False) for seed in SEEDS[part::10]] == by_class


@pytest.mark.slow
def test_these_clusters_have_victims_with_and_without_the_shortcut():
    assert sum(bool(usual(seed)[0][0]) for seed in SEEDS) > 30
    seen = frozenset().union(*(usual(seed)[1] for seed in SEEDS))
    in_rounds_beyond = {(True, True, True, True), (False, True, True, False)}
    one_by_one = {(False, True, False, True), (False, True, False, False)}
    on_their_nodes = {(True, False, True, True), (True, False, False, True)}
    assert in_rounds_beyond | one_by_one | on_their_nodes <= seen
