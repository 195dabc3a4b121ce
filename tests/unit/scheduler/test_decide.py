"""Decisions beside an extender: one for explanations leaves no trace, although it is awaited."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

from frameworks import default_framework

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.extenders import ExtenderFilterResult
from kubesched.framework.handle import Handle
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.scheduler.algorithm import ScheduleResult, SchedulingAlgorithm
from kubesched.scheduler.classes import ClassEngine
from kubesched.scheduler.extended_algorithm import ExtendedAlgorithm
from kubesched.scheduler.scheduling_cycle import SchedulingCycle
from kubesched.testing import make_node, make_pod

EXTENDER = SimpleNamespace(
    name="http://extender",
    is_ignorable=False,
    is_filter=True,
    is_prioritizer=False,
    is_binder=False,
    is_interested=lambda pod: "extended" in pod.metadata.name,
)


class World:
    """A cluster of which a part is looked at for every pod, so that each search begins
    elsewhere.
    """

    def __init__(self) -> None:
        table = NodeTable()
        for number in range(400):
            table.set_node(make_node(f"n{number}").capacity(cpu="4", memory="8Gi").build())
        self.framework = default_framework(table, Handle(table=table))
        self.seen: list[tuple[int, object]] = []
        self.points = 0
        self.algorithm = SchedulingAlgorithm(
            table,
            Random(1),
            parallelism=1,
            percentage_of_nodes_to_score=30,
            engine=ClassEngine(table),
        )
        extended = ExtendedAlgorithm(self.algorithm, [EXTENDER])
        queue = SimpleNamespace(nominator=SimpleNamespace(node_of=lambda uid: ""))
        self.cycle = SchedulingCycle(self.algorithm, None, queue, extended)

    async def filter(self, pod, nodes):
        """The extender's answer, given while the decision is under way."""
        self.seen.append((self.algorithm.next_start, self.algorithm.engine))
        return ExtenderFilterResult(tuple(node.metadata.name for node in nodes))

    async def prioritize(self, pod, nodes):
        return [(node.metadata.name, self.points) for node in nodes if self.points]

    async def decide(self, name: str) -> ScheduleResult:
        EXTENDER.filter, EXTENDER.prioritize = self.filter, self.prioritize
        pod = PodInfo(make_pod(name).cpu("1").build())
        decided = self.cycle.decide(self.framework, CycleState(), pod)
        return decided if isinstance(decided, ScheduleResult) else await decided


async def test_the_next_search_begins_where_it_would_have():
    world = World()
    engine = world.algorithm.engine
    world.algorithm.next_start = 7
    for name in ("plain", "extended"):
        assert isinstance(await world.decide(name), ScheduleResult)
        assert world.algorithm.next_start == 7, name
        assert world.algorithm.engine is engine
        assert not engine.classes.all_answers(), "nothing is learned"


async def test_attempts_meanwhile_are_not_disturbed():
    world = World()
    engine = world.algorithm.engine
    world.algorithm.next_start = 7
    await world.decide("extended")
    assert world.seen == [(7, engine)]


async def test_ties_of_nodes_that_an_extender_scored_are_drawn():
    """Even with one worker, whose own ties fall as upstream's heap lets them fall."""
    world = World()
    for points, are_drawn in ((0, False), (5, True)):
        world.points = points
        chosen = {(await world.decide("extended")).node_name for _ in range(10)}
        assert (len(chosen) > 1) is are_drawn
