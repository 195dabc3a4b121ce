"""Queries of the scheduling queue: which pod is in which queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kubesched.api.core_v1 import Pod
from kubesched.base.metrics import SchedulerMetrics
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.scheduler.queue.active import ACTIVE, ActiveQueue
from kubesched.scheduler.queue.backoff import BACKOFF, BackoffQueue
from kubesched.scheduler.queue.hints import HintMap
from kubesched.scheduler.queue.in_flight import InFlight
from kubesched.scheduler.queue.incoming import Incoming
from kubesched.scheduler.queue.nominator import Nominator
from kubesched.scheduler.queue.unschedulable import GATED, UNSCHEDULABLE, UnschedulablePods


class Queued(NamedTuple):
    """A pod that waits."""

    place: str
    info: QueuedPodInfo
    retries_at: float | None = None
    """When its backoff ends, or that of its group."""
    gate: QueuedPodInfo | None = None
    """The pod that PreEnqueue refused: itself, or another one of its group."""


class QueueContents:
    """Read access to, and checks of, activeQ, backoffQ, unschedulablePods and in-flight pods."""

    _active: ActiveQueue
    _backoff: BackoffQueue
    _pool: UnschedulablePods
    _in_flight: InFlight
    _hints: HintMap
    _metrics: SchedulerMetrics
    nominator: Nominator

    def _show_sizes(self, incoming: Incoming) -> None:
        """`pending_pods` reads the sizes from here."""
        readings: dict[str, Callable[[], float]] = {
            ACTIVE: lambda: len(self._active),
            BACKOFF: lambda: len(self._backoff),
            UNSCHEDULABLE: lambda: self._pool.ungated_count,
            GATED: lambda: self._pool.gated_count,
        }
        for queue, read in readings.items():
            self._metrics.pending_pods.labels(queue).read_from(read)
        incoming.unlisted = readings

    def get_pod(self, namespace: str, name: str) -> QueuedPodInfo | None:
        """The entry of a queued pod. Read-only."""
        return self._find_entry(f"{namespace}/{name}")

    def is_behind_head(self, namespace: str, name: str) -> bool:
        """True if the pod waits for another pod of its class that is tried for all."""
        return self._pool.is_behind_head(f"{namespace}/{name}")

    def place_of(self, namespace: str, name: str) -> str | None:
        """The pod's queue as in `pending_pods` (active, backoff, unschedulable, gated), or None."""
        return self.place_of_key(f"{namespace}/{name}")

    def place_of_key(self, key: str) -> str | None:
        """Like `place_of`, by `namespace/name`."""
        if key in self._active:
            return ACTIVE
        if key in self._backoff:
            return BACKOFF
        info = self._pool.get(key)
        if info is None:
            return None
        return GATED if info.is_gated else UNSCHEDULABLE

    def pending_pods(self) -> tuple[list[Pod], str]:
        """All queued pods, and a readable summary."""
        queues: tuple[Iterable[QueuedPodInfo], ...] = (self._active, self._backoff, self._pool)
        pods = [info.pod_info.pod for queue in queues for info in queue]
        return pods, "activeQ:{}; backoffQ:{}; unschedulableEntities:{}".format(*self.sizes)

    def entries(self) -> list[Queued]:
        """Every queued pod, in scheduling order where there is one. Read-only."""
        queues = {ACTIVE: self._active.in_order(), BACKOFF: self._backoff.in_order()}
        return [
            *(
                Queued(place, info, info.backoff_expiration)
                for place, infos in queues.items()
                for info in infos
            ),
            *(
                Queued(GATED, info, gate=info) if info.is_gated else Queued(UNSCHEDULABLE, info)
                for info in self._pool
            ),
        ]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Number of pods in activeQ, backoffQ and unschedulablePods."""
        return len(self._active), len(self._backoff), len(self._pool)

    def pods_in_active_q(self) -> list[Pod]:
        return [info.pod_info.pod for info in self._active]

    def unschedulable_pods(self) -> list[Pod]:
        """Pods waiting for an event, gated ones included."""
        return [info.pod_info.pod for info in self._pool]

    def in_flight_uids(self) -> list[str]:
        """Pods being tried, longest in flight first."""
        return list(self._in_flight)

    @property
    def in_flight_count(self) -> int:
        return len(self._in_flight)

    def _find_queued(self, key: str) -> PodInfo | None:
        info = self._find_entry(key)
        return None if info is None else info.pod_info

    def _find_entry(self, key: str) -> QueuedPodInfo | None:
        for queue in (self._active, self._backoff, self._pool):
            info = queue.get(key)
            if info is not None:
                return info
        return None

    # Checks.

    def _check(self, *, can_pop_backoff: bool) -> None:
        for part in (self._active, self._backoff, self._pool, self._in_flight, self.nominator):
            part.check_invariants()
        self._check_places()
        # If Pop does not take from backoffQ, gated pods may be there: PreEnqueue runs on leaving.
        self._check_gates((self._active, self._backoff) if can_pop_backoff else (self._active,))
        self._check_sizes()

    def _check_places(self) -> None:
        """Every pod is in one place, and no pod waits for a head that will not be tried."""
        queues: tuple[Iterable[QueuedPodInfo], ...] = (self._active, self._backoff)
        infos = [info for queue in queues for info in queue]
        keys = [info.pod_info.key for info in (*infos, *self._pool)]
        assert len(keys) == len(set(keys)), "a pod waits in two places"
        tried = {*(info.pod_info.uid for info in infos), *self._in_flight}
        assert tried.issuperset(self._pool.heads()), "pods wait behind one that is gone"

    def _check_gates(self, poppable: Iterable[Iterable[QueuedPodInfo]]) -> None:
        """No gated pod can be popped; every pod in the pool has plugins that can release it."""
        assert not any(info.is_gated for queue in poppable for info in queue), (
            "a gated pod may be popped"
        )
        for info in self._pool:
            assert info.unschedulable_plugins or info.pending_plugins, (
                f"{info} waits without a rejecting plugin"
            )
            if info.is_gated:
                events = self._hints.events_of(info.gating_plugin)
                assert info.gating_plugin_events == events, f"{info} listens wrongly"

    def _check_sizes(self) -> None:
        """`pending_pods` matches the contents."""
        sizes = {
            queue: self._metrics.pending_pods.labels(queue).current()
            for queue in (ACTIVE, BACKOFF, UNSCHEDULABLE, GATED)
        }
        gated = sum(info.is_gated for info in self._pool)
        expected = (len(self._active), len(self._backoff), len(self._pool) - gated, gated)
        assert tuple(sizes.values()) == expected, (
            f"pending_pods says {sizes}, the queue holds {expected}"
        )
