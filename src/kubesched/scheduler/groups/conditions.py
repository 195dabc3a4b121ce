"""Writes the condition PodGroupInitiallyScheduled.

One write per group at a time; a newer wish replaces one that waits. What was written last is
remembered until the watch shows another version of the group, so that a retry right after a
success does not undo it.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Final, NamedTuple

from kubesched.api.meta import Condition
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.api.times import format_time
from kubesched.base.clock import Clock
from kubesched.base.errors import KubeschedError, NotFound
from kubesched.base.logs import get_logger
from kubesched.framework.handle import SchedulerClient, Spawn
from kubesched.framework.pod_status import with_retries
from kubesched.framework.status import Status

log = get_logger(__name__)

INITIALLY_SCHEDULED: Final = "PodGroupInitiallyScheduled"
SCHEDULED: Final = "Scheduled"


class Wish(NamedTuple):
    """The condition that a group should have."""

    status: str
    reason: str
    message: str


def wish_of(status: Status) -> Wish:
    if status.is_success:
        return Wish("True", SCHEDULED, "")
    reason = "Unschedulable" if status.is_rejected else "SchedulerError"
    return Wish("False", reason, status.message)


class GroupConditions:
    """Conditions of PodGroups, written in the background."""

    def __init__(self, client: SchedulerClient, clock: Clock, spawn: Spawn, jitter: Random) -> None:
        self._client = client
        self._clock = clock
        self._spawn = spawn
        self._jitter = jitter
        self._written: dict[str, Wish] = {}
        """The last wish by UID, unless its write failed or the group is gone."""
        self._known: dict[str, str] = {}
        """The version of the group that the wish was made for, until the watch shows another."""
        self._busy: set[str] = set()

    def put(self, group: PodGroup, wish: Wish) -> None:
        """Write a condition, unless the group has it or was scheduled before: True is final."""
        uid, version = group.metadata.uid, group.metadata.resource_version
        last = _present(group)
        if uid in self._busy or self._known.get(uid) == version:
            last = self._written.get(uid, last)
        if last == wish or (last is not None and last.status == "True"):
            return
        self._written[uid], self._known[uid] = wish, version
        if uid not in self._busy:
            self._busy.add(uid)
            name = f"{group.metadata.namespace}/{group.metadata.name}"
            self._spawn(self._write(group), f"condition of pod group {name}")

    def shown(self, group: PodGroup) -> None:
        """The watch shows a new version of the group, which counts from now on."""
        self._known.pop(group.metadata.uid, None)

    @property
    def are_shown(self) -> bool:
        """Whether the watch has shown all that was written."""
        return not self._known

    def forget(self, group: PodGroup) -> None:
        self._written.pop(group.metadata.uid, None)
        self._known.pop(group.metadata.uid, None)

    async def _write(self, group: PodGroup) -> None:
        meta, shown = group.metadata, _present(group)
        done: Wish | None = None
        try:
            while (wish := self._written.get(meta.uid)) is not None and wish != done:
                condition = {"type": INITIALLY_SCHEDULED, **wish._asdict()}
                if shown is None or shown.status != wish.status:
                    condition["lastTransitionTime"] = format_time(self._clock.now())
                patch = {"metadata": {"uid": meta.uid}, "status": {"conditions": [condition]}}
                write = partial(self._client.patch_status, PodGroup, meta.namespace, meta.name)
                await with_retries(partial(write, patch), self._jitter)
                done = shown = wish
        except NotFound:
            self.forget(group)
        except KubeschedError as error:
            log.error("Failed to update pod group condition", error, podGroup=meta.name)
            self.forget(group)  # the next attempt writes it again
        finally:
            self._busy.discard(meta.uid)


def _present(group: PodGroup) -> Wish | None:
    conditions: list[Condition] = group.status.conditions or []
    for condition in conditions:
        if condition.type == INITIALLY_SCHEDULED:
            return Wish(condition.status, condition.reason, condition.message)
    return None
