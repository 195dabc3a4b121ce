"""Placing members side by side finds what trying the placements one after the other does."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from group_scenarios import Groups

from kubesched.framework.groups.states import GroupKey
from kubesched.framework.groups.tree import GroupCycle
from kubesched.framework.runtime.maybe_async import finish
from kubesched.scheduler.groups import placing
from kubesched.scheduler.groups.side_by_side import place_side_by_side
from kubesched.testing import make_node

RACK = {"topology": [{"key": "rack"}]}
LABELS = {"app": "g"}
TERM = {"labelSelector": {"matchLabels": LABELS}, "topologyKey": "kubernetes.io/hostname"}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": LABELS},
}
ELSEWHERE: list[dict[str, Any]] = [
    {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}},
    {"topologySpreadConstraints": [SPREAD]},
]
"""Of members that have to be tried one after the other."""


class Middle(Random):
    """Draws the one in the middle: results do not depend on the order of draws."""

    def randrange(self, start: int, *_: Any) -> int:  # type: ignore[override]
        return start // 2


class World(Groups):
    """Nodes in racks, all of which are scored."""

    def __init__(self, config: str = "") -> None:
        super().__init__(gates="TopologyAwareWorkloadScheduling", config=config)
        self.cycles = self.assembly.scheduler.groups  # type: ignore[attr-defined]
        self.algorithm = self.cycles.cycle.algorithm
        self.cycles.random = self.algorithm.random = Middle()
        self.algorithm.parallelism = 16

    def outcome(self) -> list[Any]:
        """What comes out in every placement of group g, and where walks go on."""
        self.algorithm.next_start = 17
        root = self.cycles.tree(self.cycles.queue.find_entity(GroupKey("default", "g")))
        run = self.cycles.placing(self.cycles.validated(root), GroupCycle())
        chosen = finish(run.run(root))[root.key]
        self.cycles.cache.check_invariants()
        return [
            self.algorithm.next_start,
            *(
                (
                    name,
                    each.status.code,
                    each.status.message,
                    each.any_scheduled,
                    [(m.info.pod_info.key, m.status.message, m.result) for m in each.members],
                )
                for name, each in (
                    ("", chosen),
                    *((placement.name, each) for placement, each in run.trials[root.key]),
                )
            ),
        ]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many placements were decided side by side, in each call."""
    numbers: list[int] = []

    def counting(*arguments: Any) -> Any:
        results = place_side_by_side(*arguments)
        numbers.append(len(results))
        return results

    monkeypatch.setattr(placing, "place_side_by_side", counting)
    return numbers


def outcomes(world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[Any]]:
    side_by_side = world.outcome()
    with monkeypatch.context() as patch:
        patch.setattr(placing, "place_side_by_side", lambda *_: {})
        return side_by_side, world.outcome()


def fill(world: World, random: Random) -> None:
    """Random nodes and pods on them; in some clusters some nodes are preferred."""
    taints = random.choice([("NoSchedule",), ("NoSchedule",), ("NoSchedule", "PreferNoSchedule")])
    for number in range(random.randrange(3, 30)):
        node = make_node(f"n{number}")
        node.capacity(
            cpu=str(random.choice((1, 2, 4))), memory="8Gi", pods=str(random.choice((2, 110)))
        )
        node.label("kubernetes.io/hostname", f"n{number}")
        if random.random() < 0.95:
            node.label("rack", f"rack{random.randrange(4)}")
        if random.random() < 0.1:
            node.taint("special", "", random.choice(taints))
        world.add(node.build())
        for at in range(random.choice((0, 0, 1, 2))):
            cpu = random.choice((0.1, 0.5, 1))
            world.pods("", f"old-{number}-{at}", cpu=cpu, nodeName=f"n{number}")


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_both_ways_agree(first: int, found: list[int], monkeypatch: pytest.MonkeyPatch):
    for seed in range(first, first + 30):
        random = Random(seed)
        with World() as world:
            fill(world, random)
            count = random.randrange(1, 6)
            world.group("g", random.choice((0, 1, count)), schedulingConstraints=RACK)
            cpu = random.choice((0.1, 0.5, 1))
            for number in range(count):
                spec = random.choice(ELSEWHERE) if random.random() < 0.05 else {}
                other = random.random() < 0.2
                world.pods("g", f"g{number}", cpu=0.2 if other else cpu, labels=LABELS, **spec)
            one, other_way = outcomes(world, monkeypatch)
            assert one == other_way, f"seed {seed}"
    assert sum(found) > 30, "most are decided side by side"


def racks(world: World, **spec: Any) -> None:
    """Two racks of two nodes, and a gang of two."""
    for number in range(4):
        world.node(f"n{number}", 4, rack=f"rack{number // 2}")
    world.group("g", 2, schedulingConstraints=RACK)
    world.pods("g", "a", "b", labels=LABELS, **spec)


def test_a_node_takes_several_members(found: list[int], monkeypatch: pytest.MonkeyPatch):
    with World() as world:
        racks(world)
        world.pods("g", *"cdef")
        one, other = outcomes(world, monkeypatch)
        assert one == other
        assert found == [2]


PORT = [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}]


@pytest.mark.parametrize("spec", [*ELSEWHERE, {"containers": PORT}])
def test_members_that_see_more_than_levels(
    spec: dict[str, Any], found: list[int], monkeypatch: pytest.MonkeyPatch
):
    with World() as world:
        racks(world, **spec)
        one, other = outcomes(world, monkeypatch)
        assert one == other
        assert found == [0]


def test_samples_and_one_worker(found: list[int], monkeypatch: pytest.MonkeyPatch):
    with World() as world:
        for number in range(404):
            world.node(f"n{number}", 4, rack=f"rack{number % 2}")
        world.group("g", 2, schedulingConstraints=RACK)
        world.pods("g", "a", "b")
        world.algorithm.percentage_of_nodes_to_score = 60
        one, other = outcomes(world, monkeypatch)
        assert one == other
        world.algorithm.percentage_of_nodes_to_score = 100
        world.algorithm.parallelism = 1
        one, other = outcomes(world, monkeypatch)
        assert one == other
        assert found == [0, 0]


def test_a_nominated_pod_keeps_its_room(found: list[int], monkeypatch: pytest.MonkeyPatch):
    with World() as world:
        racks(world)
        world.pods("", "vip", cpu=4, priority=1)
        world.change_pod("vip", "status", nominatedNodeName="n0")
        one, other = outcomes(world, monkeypatch)
        assert one == other
        assert found == [1], "rack0 has one node left"


def test_metrics_of_placements(found: list[int]):
    with World() as world:
        racks(world)
        world.settle()
        metrics = world.cycles.metrics
        labels = ("feasible", "default-scheduler")
        assert metrics.placement_evaluations_total.labels(*labels).value == 2
        assert metrics.placement_evaluation_duration_seconds.labels(*labels).count == 2
        assert found == [2]
