"""The parts of a scheduler that places groups of pods."""

from __future__ import annotations

from typing import Any

from kubesched.api.resources import RequestOptions
from kubesched.config.features import FeatureGates
from kubesched.framework.groups.states import GroupStates
from kubesched.framework.handle import SchedulerClient
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.scheduler.cache.cache import Cache
from kubesched.scheduler.event_handlers import EventHandlers
from kubesched.scheduler.groups.conditions import GroupConditions
from kubesched.scheduler.groups.group_cache import GroupCache
from kubesched.scheduler.groups.group_cycle import GroupCycles
from kubesched.scheduler.groups.group_handlers import GroupEventHandlers
from kubesched.scheduler.groups.group_queue import GroupSchedulingQueue
from kubesched.scheduler.groups.group_scheduler import GroupScheduler
from kubesched.scheduler.parts import Parts
from kubesched.scheduler.queue.scheduling_queue import SchedulingQueue
from kubesched.scheduler.scheduler import Scheduler


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
