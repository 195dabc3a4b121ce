"""The parts of a scheduler that depend on whether pods are scheduled in groups."""

from __future__ import annotations

from typing import Any

from kubesched.api.resources import RequestOptions
from kubesched.framework.groups.states import GroupStates
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.scheduler.cache.cache import Cache
from kubesched.scheduler.event_handlers import EventHandlers
from kubesched.scheduler.queue.scheduling_queue import SchedulingQueue
from kubesched.scheduler.scheduler import Scheduler


class Parts:
    """The parts of a scheduler of single pods."""

    groups: GroupStates | None = None

    def cache(self, table: NodeTable, accounted: RequestOptions) -> Cache:
        return Cache(table, accounted)

    def queue(self, **settings: Any) -> SchedulingQueue:  # noqa: ANN401  # the class's own
        return SchedulingQueue(**settings)

    def scheduler(self, **parts: Any) -> Scheduler:  # noqa: ANN401  # as above
        return Scheduler(**parts)

    def handlers(self, *parts: Any, **settings: Any) -> EventHandlers:  # noqa: ANN401  # as above
        return EventHandlers(*parts, **settings)
