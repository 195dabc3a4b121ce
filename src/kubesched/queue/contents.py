"""What waits where: the queries of the scheduling queue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubesched.api.core_v1 import Pod
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.queue.active import ACTIVE, ActiveQueue
from kubesched.queue.backoff import BACKOFF, BackoffQueue
from kubesched.queue.unschedulable import UNSCHEDULABLE, UnschedulablePods

GATED: Final = "gated"


class QueueContents:
    """activeQ, backoffQ and unschedulablePods, read."""

    def __init__(self, active: ActiveQueue, backoff: BackoffQueue, pool: UnschedulablePods) -> None:
        self._active = active
        self._backoff = backoff
        self._pool = pool

    def get_pod(self, namespace: str, name: str) -> QueuedPodInfo | None:
        """The entry of a pod that waits in some queue. Not to be changed."""
        return self._find_entry(f"{namespace}/{name}")

    def is_behind_head(self, namespace: str, name: str) -> bool:
        """Whether a pod waits until another pod of its class has been tried for all."""
        return self._pool.classes.is_behind_head(f"{namespace}/{name}")

    def place_of(self, namespace: str, name: str) -> str | None:
        """Where a pod waits, in the words of `pending_pods`: active, backoff, unschedulable, gated; None if nowhere."""
        return self.place_of_key(f"{namespace}/{name}")

    def place_of_key(self, key: str) -> str | None:
        """The same, by `namespace/name`."""
        if key in self._active:
            return ACTIVE
        if key in self._backoff:
            return BACKOFF
        info = self._pool.get(key)
        if info is None:
            return None
        return GATED if info.is_gated else UNSCHEDULABLE

    def pending_pods(self) -> tuple[list[Pod], str]:
        """Every waiting pod, and a summary for people."""
        queues: tuple[Iterable[QueuedPodInfo], ...] = (self._active, self._backoff, self._pool)
        pods = [info.pod_info.pod for queue in queues for info in queue]
        return pods, "activeQ:{}; backoffQ:{}; unschedulablePods:{}".format(*self.sizes)

    def entries(self) -> list[tuple[str, QueuedPodInfo]]:
        """(place, entry) of every waiting pod, in the order of trial where there is one. Not to be changed."""
        pool = [(GATED if info.is_gated else UNSCHEDULABLE, info) for info in self._pool]
        return [
            *((ACTIVE, info) for info in self._active.in_order()),
            *((BACKOFF, info) for info in self._backoff.in_order()),
            *pool,
        ]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Pods in activeQ, backoffQ and unschedulablePods."""
        return len(self._active), len(self._backoff), len(self._pool)

    def pods_in_active_q(self) -> list[Pod]:
        return [info.pod_info.pod for info in self._active]

    def unschedulable_pods(self) -> list[Pod]:
        """Pods waiting for an event, gated ones included."""
        return [info.pod_info.pod for info in self._pool]

    def _find_entry(self, key: str) -> QueuedPodInfo | None:
        for queue in (self._active, self._pool, self._backoff):
            info = queue.get(key)
            if info is not None:
                return info
        return None
