"""The group queue's shortcuts leave it as asking every member would.

PreEnqueue is asked of the last members until one is refused, and one member speaks for those that
the same plugins rejected. The plain way, which is kube-scheduler's, asks all of them each time.
"""

from __future__ import annotations

from random import Random
from types import MethodType

import pytest
from group_scenarios import Groups

from kubesched.api.core_v1 import Pod
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.framework.groups.states import is_gang
from kubesched.scheduler.groups.group_queue import GroupSchedulingQueue
from kubesched.scheduler.groups.queued_group import QueuedGroup

GATE = [{"name": "example.com/wait"}]
STEPS = 30


def _ask_all(queue: GroupSchedulingQueue, entity: QueuedGroup) -> bool:
    entity.gate = None
    entity.rejected()
    for info in entity:
        queue._transitions.pre_enqueue.run(info)
        if info.is_gated:
            entity.gate = info
    return not entity.is_gated


def _plain() -> Groups:
    world = Groups(1, 2)
    queue = world.assembly.scheduler.queue
    queue._pre_enqueue = MethodType(_ask_all, queue)
    queue._answers_for_all = lambda _info, _event: False
    return world


def _state(world: Groups) -> object:
    queue = world.assembly.scheduler.queue
    entities = {
        str(entity.root): (
            entity.gate and (entity.gate.gating_plugin, entity.gate.pod_info.key),
            entity.timestamp,
            entity.attempts,
            entity.unschedulable_count,
            entity.consecutive_errors_count,
            [info.pod_info.name for info in entity],
        )
        for entity in queue._entities()
    }
    pods = {
        pod.metadata.name: (
            pod.spec.node_name,
            world.place_in_queue(pod.metadata.name),
            world.message(pod.metadata.name),
        )
        for pod in world.objects(Pod)
    }
    return entities, pods


class Histories:
    """The same changes in several worlds."""

    def __init__(self, seed: int, *worlds: Groups) -> None:
        self.random, self.worlds, self.count = Random(seed), worlds, 0

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def pick(self, kind: type) -> str | None:
        names = sorted(obj.metadata.name for obj in self.worlds[0].objects(kind))
        return self.random.choice(names) if names else None

    def members(self, group: str, count: int) -> None:
        for _ in range(count):
            gates = GATE if self.random.random() < 0.3 else []
            name, cpu = self.name("p"), self.random.choice((0.5, 1))
            priority = 100 if self.random.random() < 0.1 else 0
            for world in self.worlds:
                world.pods(group, name, cpu=cpu, priority=priority, schedulingGates=gates)

    def gang(self) -> None:
        name, size = self.name("g"), self.random.randint(1, 4)
        minimum = self.random.choice((0, size, size, size + 1))
        is_first = self.random.random() < 0.5
        if not is_first:
            self.members(name, size)
        for world in self.worlds:
            world.group(name, minimum)
        if is_first:
            self.members(name, size)

    def member(self) -> None:
        if (group := self.pick(PodGroup)) is not None:
            self.members(group, 1)

    def ungate(self) -> None:
        gated = sorted(
            pod.metadata.name for pod in self.worlds[0].objects(Pod) if pod.spec.scheduling_gates
        )
        if gated:
            name = self.random.choice(gated)
            for world in self.worlds:
                world.change_pod(name, "spec", schedulingGates=[])

    def delete_pod(self) -> None:
        if (name := self.pick(Pod)) is not None:
            for world in self.worlds:
                world.delete(world.pod(name))

    def delete_group(self) -> None:
        if (name := self.pick(PodGroup)) is not None:
            for world in self.worlds:
                world.delete(world.find(PodGroup, "default", name))

    def change_minimum(self) -> None:
        name = self.pick(PodGroup)
        group = None if name is None else self.worlds[0].find(PodGroup, "default", name)
        if group is not None and is_gang(group):
            count = self.random.randint(1, 4)
            for world in self.worlds:
                world.min_count(group.metadata.name, count)

    def add_node(self) -> None:
        name, cpu = self.name("m"), self.random.choice((0.5, 1))
        for world in self.worlds:
            world.node(name, cpu)

    def wait(self) -> None:
        seconds = self.random.choice((0.3, 1, 5, 400))
        for world in self.worlds:
            world.advance(seconds)

    def step(self) -> None:
        what = (
            *(self.gang, self.ungate, self.ungate, self.wait, self.wait),
            *(self.member, self.delete_pod, self.change_minimum),
            *(self.delete_group, self.add_node),
        )
        self.random.choice(what)()
        if self.random.random() < 0.7:
            for world in self.worlds:
                world.settle()


@pytest.mark.parametrize("seed", range(12))
def test_shortcuts_leave_the_queue_as_asking_all_members_would(seed: int) -> None:
    with Groups(1, 2) as short, _plain() as plain:
        histories = Histories(seed, short, plain)
        for _ in range(STEPS):
            histories.step()
            assert _state(short) == _state(plain)
