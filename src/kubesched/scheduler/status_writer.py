"""Writes status patches in the background with separate concurrency.

Conditions of failing pods must not delay bindings. While all workers are busy, updates are pending:
they are keyed by pod and merged, so the latest state is never lost and the backlog is bounded by
the number of pods. Otherwise every update is written, as upstream does, even if the pod fails again
at once. The patch is computed when it is sent, against the informer's newest version of the pod
plus the previous write, which the watch may not show yet.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from msgspec import structs

from kubesched.api.core_v1 import Pod, PodCondition
from kubesched.api.names import key_of
from kubesched.base.clock import Clock
from kubesched.base.errors import KubeschedError
from kubesched.base.logs import get_logger
from kubesched.framework.handle import Lister, SchedulerClient
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.pod_status import status_patch, write_status

log = get_logger(__name__)

WORKERS = 8


@dataclass(slots=True)
class _Update:
    """The wanted condition and nomination of one pod."""

    pod: Pod
    condition: PodCondition | None
    nomination: NominatingInfo | None
    before: _Update | None = None
    """The update written while this one was pending."""

    def merge(self, newer: _Update) -> None:
        """Take over what the newer update sets."""
        self.pod = newer.pod
        if newer.condition is not None:
            self.condition = newer.condition
        if newer.nomination is not None and newer.nomination.override:
            self.nomination = newer.nomination


class StatusWriter:
    """Writes conditions and nominations, `WORKERS` at a time, in order for each pod."""

    def __init__(
        self, client: SchedulerClient, pods: Lister[Pod], clock: Clock, random: Random
    ) -> None:
        self.client = client
        self._pods = pods
        self._clock = clock
        self.random = random
        self._pending: dict[str, _Update] = {}
        self._writing: dict[str, asyncio.Event] = {}
        """Writes in progress by pod key; the event is set when the write ends."""
        self._begun: deque[tuple[str, _Update]] = deque()
        """Updates for idle workers that are about to wake."""
        self._idle = 0
        self._wake = asyncio.Event()
        self.on_idle: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._pending) + len(self._writing)

    def put(
        self, pod: Pod, condition: PodCondition | None, nomination: NominatingInfo | None
    ) -> None:
        """Queue an update of a pod's status.

        No-op if the status already has these values and no update is pending or in flight.
        """
        # A pending or in-flight update may have other values: this one must be written last.
        is_said = status_patch(self._current(pod), condition, nomination, 0.0) is None
        if is_said and not (self._pending or self._writing):
            return
        key = key_of(pod.metadata)
        if is_said and not self.is_pending(key):
            return
        if log.enabled(3):
            _log_update(pod, condition, nomination)
        update = _Update(pod, condition, nomination)
        pending = self._pending.get(key)
        if pending is None or pending.pod.metadata.uid != pod.metadata.uid:
            self._pending[key] = update
        else:
            pending.merge(update)
        if len(self._begun) < self._idle and key not in self._writing:
            self._begun.append(self._begin(key))
        self._wake.set()

    def _current(self, pod: Pod) -> Pod:
        """The informer's newest version of the pod of that name."""
        return self._pods.get(pod.metadata.namespace, pod.metadata.name) or pod

    async def run(self) -> None:
        """Write pending updates until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._serve())

    async def drain(self) -> None:
        """Write all pending updates, then return. For shutdown; the caller sets the time limit."""
        while self._pending or self._begun:
            await self._write_next()

    def is_pending(self, key: str) -> bool:
        """True if an update for a pod is pending or in flight, so that `flush` would wait."""
        return key in self._pending or key in self._writing

    async def flush(self, key: str) -> None:
        """Return when no update is pending or in flight for a pod, or an earlier one of that name.

        The binding waits for this: a condition written after it would mark a bound pod
        unschedulable. Patches contain no UID, so a patch for a deleted pod would change its
        successor of the same name.
        """
        while True:
            under_way = self._writing.get(key)
            if under_way is not None:
                await under_way.wait()
            elif key in self._pending:
                await self._write_one(*self._begin(key))
            else:
                return

    async def _serve(self) -> None:
        while True:
            if not await self._write_next():
                self._wake.clear()
                if not len(self):
                    self.on_idle()
                self._idle += 1
                try:
                    await self._wake.wait()
                finally:
                    self._idle -= 1

    async def _write_next(self) -> bool:
        if self._begun:
            await self._write_one(*self._begun.popleft())
            return True
        # An update waits for the same pod's write in flight, to keep the patches in order.
        key = next((key for key in self._pending if key not in self._writing), None)
        if key is None:
            return False
        await self._write_one(*self._begin(key))
        return True

    def _begin(self, key: str) -> tuple[str, _Update]:
        """Start a write: newer updates of the pod are written separately."""
        self._writing[key] = asyncio.Event()
        return key, self._pending.pop(key)

    async def _write_one(self, key: str, update: _Update) -> None:
        try:
            if await self._write(update) and (next_one := self._pending.get(key)) is not None:
                next_one.before = _both(update.before, update)
        finally:
            self._writing.pop(key).set()
            self._wake.set()

    async def _write(self, update: _Update) -> bool:
        """Write an update; True if the API server has it."""

        def patch() -> dict[str, Any] | None:
            current = self._current(update.pod)
            if current.spec.node_name or current.metadata.uid != update.pod.metadata.uid:
                # The pod was bound (by another scheduler) or recreated since: the update no longer
                # applies. Upstream marks the bound pod unschedulable for good.
                return None
            known = _with(current, update.before)
            return status_patch(known, update.condition, update.nomination, self._clock.now())

        try:
            await write_status(self.client, update.pod, patch, self.random)
        except KubeschedError as error:
            log.error("Error updating pod", error, pod=update.pod)
            return False
        return True

    def statistics(self) -> Mapping[str, Any]:
        return {"waiting": len(self._pending), "writing": len(self._writing)}


def _both(older: _Update | None, newer: _Update) -> _Update:
    newer.before = None
    if older is None:
        return newer
    older.merge(newer)
    return older


def _with(pod: Pod, written: _Update | None) -> Pod:
    """The pod including the last write, if that was for the same pod."""
    if written is None or written.pod.metadata.uid != pod.metadata.uid:
        return pod
    conditions, nominated = pod.status.conditions, pod.status.nominated_node_name
    if (new := written.condition) is not None:
        by_type = {condition.type: condition for condition in conditions or ()}
        conditions = list((by_type | {new.type: new}).values())
    if written.nomination is not None and written.nomination.override:
        nominated = written.nomination.node_name
    status = structs.replace(pod.status, conditions=conditions, nominated_node_name=nominated)
    return structs.replace(pod, status=status)


def _log_update(
    pod: Pod, condition: PodCondition | None, nomination: NominatingInfo | None
) -> None:
    told: dict[str, object] = {"pod": pod}
    if condition is not None:
        told["conditionType"] = condition.type
        told["conditionStatus"] = condition.status
        told["conditionReason"] = condition.reason
    if nomination is not None:
        told["nominatedNodeName"] = nomination.node_name
        told["nominatingMode"] = int(nomination.override)
    log.info("Updating pod condition and nominated node name", v=3, **told)
