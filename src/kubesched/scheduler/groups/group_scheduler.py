"""The scheduling loop with groups."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from kubesched.scheduler.groups.group_cycle import GroupCycles
from kubesched.scheduler.groups.group_queue import GroupSchedulingQueue
from kubesched.scheduler.groups.queued_group import QueuedGroup
from kubesched.scheduler.scheduler import (
    QUEUE_EMPTY,
    AssumedGroup,
    AttemptOutcome,
    Scheduler,
    Suspended,
)
from kubesched.scheduler.scheduling_cycle import Assumed


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


async def _assumed(members: Awaitable[list[Assumed]]) -> AssumedGroup:
    return AssumedGroup(await members)
