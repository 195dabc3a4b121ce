"""Status patches in a lane of their own, behind the bindings.

A failing pod's condition must not hold up pods that succeed. Patches wait here by pod; a newer one for the same pod
replaces the older, so the last word is never lost and the lane never grows beyond the number of pods. The body is
worked out against the informer's newest version of the pod at the moment of sending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from kubesched.api.core_v1 import Pod, PodCondition
from kubesched.clock import Clock
from kubesched.errors import KubeschedError
from kubesched.framework.handle import Lister, SchedulerClient
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.pod_status import status_patch, write_status
from kubesched.logs import get_logger

log = get_logger(__name__)

WORKERS = 8


class _Wanted:
    """What a pod's status should say."""

    __slots__ = ("condition", "nomination", "pod")

    def __init__(
        self, pod: Pod, condition: PodCondition | None, nomination: NominatingInfo | None
    ) -> None:
        self.pod = pod
        self.condition = condition
        self.nomination = nomination

    def absorb(self, newer: _Wanted) -> None:
        """A later wish wins, part by part."""
        self.pod = newer.pod
        if newer.condition is not None:
            self.condition = newer.condition
        if newer.nomination is not None and newer.nomination.override:
            self.nomination = newer.nomination


class StatusWriter:
    """Writes conditions and nominations, a few at a time; one pod's patches never overtake each other."""

    def __init__(
        self, client: SchedulerClient, pods: Lister[Pod], clock: Clock, random: Random
    ) -> None:
        self._client = client
        self._pods = pods
        self._clock = clock
        self._random = random
        self._wanted: dict[str, _Wanted] = {}
        self._writing: dict[str, asyncio.Event] = {}
        """Set when the write has come to its end."""
        self._wake = asyncio.Event()
        self.on_idle: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._wanted) + len(self._writing)

    def put(
        self, pod: Pod, condition: PodCondition | None, nomination: NominatingInfo | None
    ) -> None:
        """Ask for a pod's status to be brought to this, soon. Nothing is queued when it says so already."""
        if (
            status_patch(self._current(pod), condition, nomination, 0.0) is None
            and pod.metadata.uid not in self._wanted
        ):
            return
        if log.enabled(3):
            _log_wish(pod, condition, nomination)
        wish = _Wanted(pod, condition, nomination)
        waiting = self._wanted.get(pod.metadata.uid)
        if waiting is None:
            self._wanted[pod.metadata.uid] = wish
        else:
            waiting.absorb(wish)
        self._wake.set()

    def _current(self, pod: Pod) -> Pod:
        """The informer's version of what goes by the pod's name."""
        return self._pods.get(pod.metadata.namespace, pod.metadata.name) or pod

    async def run(self) -> None:
        """Serve the lane until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._serve())

    async def drain(self) -> None:
        """Write what is waiting, then return. For shutdown; the caller bounds it."""
        while self._wanted:
            await self._write_next()

    async def flush(self, uid: str) -> None:
        """Return when nothing is left to be written about a pod.

        Its binding waits for this: a condition that arrives afterwards would call a bound pod unschedulable.
        """
        while True:
            under_way = self._writing.get(uid)
            if under_way is not None:
                await under_way.wait()
            elif uid in self._wanted:
                await self._write_one(uid)
            else:
                return

    async def _serve(self) -> None:
        while True:
            if not await self._write_next():
                self._wake.clear()
                if not len(self):
                    self.on_idle()
                await self._wake.wait()

    async def _write_next(self) -> bool:
        uid = next((uid for uid in self._wanted if uid not in self._writing), None)
        if uid is None:
            return False
        await self._write_one(uid)
        return True

    async def _write_one(self, uid: str) -> None:
        wish = self._wanted.pop(uid)
        done = self._writing[uid] = asyncio.Event()
        try:
            await self._write(wish)
        finally:
            del self._writing[uid]
            done.set()
            self._wake.set()

    async def _write(self, wish: _Wanted) -> None:
        def patch() -> dict[str, Any] | None:
            current = self._current(wish.pod)
            if current.spec.node_name or current.metadata.uid != wish.pod.metadata.uid:
                # Somebody bound it, or made it anew: what was found out about it is not true any more. (Upstream calls
                # the bound pod unschedulable, and nobody ever takes that back.)
                return None
            return status_patch(current, wish.condition, wish.nomination, self._clock.now())

        try:
            await write_status(self._client, wish.pod, patch, self._random)
        except KubeschedError as error:
            log.error("Error updating pod", error, pod=wish.pod)

    def statistics(self) -> Mapping[str, Any]:
        return {"waiting": len(self._wanted), "writing": len(self._writing)}


def _log_wish(pod: Pod, condition: PodCondition | None, nomination: NominatingInfo | None) -> None:
    told: dict[str, object] = {"pod": pod}
    if condition is not None:
        told["conditionType"] = condition.type
        told["conditionStatus"] = condition.status
        told["conditionReason"] = condition.reason
    if nomination is not None:
        told["nominatedNodeName"] = nomination.node_name
        told["nominatingMode"] = int(nomination.override)
    log.info("Updating pod condition and nominated node name", v=3, **told)
