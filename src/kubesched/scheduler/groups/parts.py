"""The parts of a scheduler that places groups of pods: its cache, its loop, and all together."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from kubesched.api.core_v1 import Pod
from kubesched.api.resources import RequestOptions
from kubesched.config.features import FeatureGates
from kubesched.framework.groups.states import GroupStates
from kubesched.framework.handle import SchedulerClient
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.scheduler.cache.cache import Cache
from kubesched.scheduler.event_handlers import EventHandlers
from kubesched.scheduler.flight import FlightRecorder
from kubesched.scheduler.groups.conditions import GroupConditions
from kubesched.scheduler.groups.group_cycle import GroupCycles
from kubesched.scheduler.groups.group_handlers import GroupEventHandlers
from kubesched.scheduler.groups.group_queue import GroupSchedulingQueue
from kubesched.scheduler.groups.queued_group import QueuedGroup
from kubesched.scheduler.parts import Parts
from kubesched.scheduler.queue.scheduling_queue import SchedulingQueue
from kubesched.scheduler.scheduler import (
    QUEUE_EMPTY,
    AssumedGroup,
    AttemptOutcome,
    Scheduler,
    Suspended,
)
from kubesched.scheduler.scheduling_cycle import Assumed


class GroupCache(Cache):
    """Pods and nodes, and the groups that pods belong to."""

    def __init__(self, table: NodeTable, accounted: RequestOptions, groups: GroupStates) -> None:
        super().__init__(table, accounted)
        self.groups = groups

    def begin_anew(self) -> None:
        super().begin_anew()
        self.groups.begin_anew()

    def assume_pod(self, pod: PodInfo) -> None:
        super().assume_pod(pod)
        self.groups.pod_assumed(pod.pod)

    def forget_pod(self, pod: Pod) -> None:
        super().forget_pod(pod)
        self.groups.pod_forgotten(pod)

    def add_pod(self, pod: Pod) -> None:
        super().add_pod(pod)
        self.groups.pod_assigned(pod)

    def update_pod(self, old: Pod, new: Pod) -> None:
        super().update_pod(old, new)
        self.groups.pod_assigned(new)

    def remove_pod(self, pod: Pod) -> None:
        super().remove_pod(pod)
        self.groups.pod_removed(pod)


class GroupScheduler(Scheduler):
    """Tries pods and groups, whichever is next."""

    queue: GroupSchedulingQueue

    def __init__(self, *, groups: GroupCycles, **parts: Any) -> None:  # noqa: ANN401  # as above
        super().__init__(**parts)
        self.groups = groups

    def attempt(self) -> AttemptOutcome:
        if self._flight is not None:
            self._flight.tick()
        entity = self.queue.pop_entity()
        if entity is None:
            return QUEUE_EMPTY
        if isinstance(entity, QueuedGroup):
            if self._flight is not None:
                self._flight.attempt(next(iter(entity)))
            ran = self.groups.run(entity, self.is_to_be_skipped)
            return AssumedGroup(ran) if isinstance(ran, list) else Suspended(_assumed(ran))
        return self._begin(entity)

    def _take_checkpoint(self, flight: FlightRecorder) -> bool:
        # A condition that only its writer knows is not part of a checkpoint.
        return self.groups.conditions.are_shown and super()._take_checkpoint(flight)


async def _assumed(members: Awaitable[list[Assumed]]) -> AssumedGroup:
    return AssumedGroup(await members)


class GroupParts(Parts):
    """Queue, cache, loop and handlers that know groups; they share what is known about them."""

    groups: GroupStates

    def __init__(self, gates: FeatureGates, client: SchedulerClient) -> None:
        self._gates = gates
        self._client = client
        self.groups = GroupStates(composites=gates.CompositePodGroup)
        self._conditions: GroupConditions

    def cache(self, table: NodeTable, accounted: RequestOptions) -> Cache:
        return GroupCache(table, accounted, self.groups)

    def queue(self, **settings: Any) -> SchedulingQueue:  # noqa: ANN401  # the class's own
        return GroupSchedulingQueue(groups=self.groups, **settings)

    def scheduler(self, **parts: Any) -> Scheduler:  # noqa: ANN401  # as above
        spawn, jitter = parts["background"].spawn, parts["status_writer"].random
        self._conditions = GroupConditions(self._client, parts["clock"], spawn, jitter)
        shared = "cycle cache queue frameworks failures decisions metrics random flight"
        cycles = GroupCycles(
            **{name: parts[name] for name in shared.split()},
            states=self.groups,
            conditions=self._conditions,
            by_topology=self._gates.TopologyAwareWorkloadScheduling,
            policy_of_group=self._gates.PodGroupPreemptionPolicy,
        )
        return GroupScheduler(groups=cycles, **parts)

    def handlers(self, *parts: Any, **settings: Any) -> EventHandlers:  # noqa: ANN401  # as above
        return GroupEventHandlers(
            *parts, groups=self.groups, conditions=self._conditions, **settings
        )
