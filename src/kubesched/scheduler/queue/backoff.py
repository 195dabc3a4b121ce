"""backoffQ: pods whose attempt failed and that may be retried once their backoff expires.

Two heaps. The *plain* heap holds pods that a plugin rejected; Pop may take its head early when
activeQ is empty. The *error* heap holds pods whose attempt failed with an error; they always wait
for their backoff, because an immediate retry would probably fail again and add load to the failing
component.

Backoff with the defaults: 1, 2, 4, 8, 10, 10 ... seconds, doubling with each failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import floor, inf
from typing import Any, Final

from kubesched.base.logs import get_logger
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.scheduler.queue.heap import KeyedHeap

log = get_logger(__name__)

BACKOFF: Final = "backoff"
FLUSH_PERIOD_S: Final = 1.0
"""Flush period of expired backoffs, and the window within which expiries count as equal."""

_NEVER: Final = -inf
_NANOSECONDS: Final = 1_000_000_000
_MAX_SHIFT: Final = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffPolicy:
    """How long a pod backs off after a failed attempt.

    With `whole_seconds` times are rounded down to the second, so that pods whose backoff expires in
    the same second can be ordered by priority.
    """

    initial_s: float = 1.0
    max_s: float = 10.0
    whole_seconds: bool = True
    _initial_ns: int = field(init=False, repr=False)
    _max_ns: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_initial_ns", round(self.initial_s * _NANOSECONDS))
        object.__setattr__(self, "_max_ns", round(self.max_s * _NANOSECONDS))

    def expiration(self, info: QueuedPodInfo) -> float:
        """When the backoff expires; minus infinity without a failure. Cached in the entry."""
        if info.backoff_expiration is not None:
            return info.backoff_expiration
        # Errors are counted separately: an error does not inherit a long history of rejections.
        failures = info.consecutive_errors_count or info.unschedulable_count
        if self._max_ns == 0 or failures == 0:
            return _NEVER
        # Seconds exactly, the fraction rounded: one multiplication is off by hundreds of ns.
        whole = floor(info.timestamp)
        fraction_ns = round((info.timestamp - whole) * _NANOSECONDS)
        end_ns = whole * _NANOSECONDS + fraction_ns + self._rest_ns(failures)
        ends = float(end_ns // _NANOSECONDS) if self.whole_seconds else end_ns / _NANOSECONDS
        info.backoff_expiration = ends
        return ends

    def is_backing_off(self, info: QueuedPodInfo, now: float) -> bool:
        """Upstream: a backoff that expires in the current second lasts up to 1 s longer."""
        return self.expiration(info) >= (floor(now) if self.whole_seconds else now)

    def _rest_ns(self, failures: int) -> int:
        shift = min(failures - 1, _MAX_SHIFT)
        if self._initial_ns > self._max_ns >> shift:
            return self._max_ns
        return self._initial_ns << shift


class BackoffQueue:
    """Both heaps as one queue."""

    __slots__ = ("_error", "_plain", "policy")

    def __init__(
        self, policy: BackoffPolicy, active_rank: Callable[[QueuedPodInfo], Any] | None
    ) -> None:
        """`active_rank` orders rejected pods with expiry in one window; None: by expiry alone."""
        self.policy = policy
        self._error: KeyedHeap[QueuedPodInfo] = KeyedHeap(policy.expiration)
        self._plain: KeyedHeap[QueuedPodInfo] = KeyedHeap(
            policy.expiration
            if active_rank is None
            else lambda info: (policy.expiration(info), active_rank(info))
        )

    def put(self, key: str, info: QueuedPodInfo, turn: int | None = None) -> None:
        rejected = bool(info.unschedulable_plugins or info.pending_plugins)
        target, other = (self._plain, self._error) if rejected else (self._error, self._plain)
        target.put(key, info, turn)
        if other.remove(key) is not None:
            # The queue never adds a pod twice. If it does anyway, the pod must have only one entry.
            log.error(
                "Pod was added to the backoff queue while it was there already",
                pod=info.pod_info.pod,
            )

    def put_newer(self, key: str, info: QueuedPodInfo) -> None:
        """Replace a pod's entry with a newer version, in the same heap."""
        (self._plain if key in self._plain else self._error).put_newer(key, info)

    def pop_rejected(self) -> QueuedPodInfo | None:
        """Pop the first rejected pod, expired or not; never a pod that failed with an error."""
        return self._plain.pop()

    def pop_rested(self, now: float) -> list[QueuedPodInfo]:
        """Pop all pods with expired backoff: rejected pods first, then errors."""
        expired: list[QueuedPodInfo] = []
        for heap in (self._plain, self._error):
            while (head := heap.peek()) is not None and not self.policy.is_backing_off(head, now):
                heap.pop()
                expired.append(head)
        return expired

    def earliest_expiration(self) -> float | None:
        """Earliest backoff expiry, or None if the queue is empty."""
        heads = (heap.peek() for heap in (self._plain, self._error))
        return min(
            (self.policy.expiration(head) for head in heads if head is not None), default=None
        )

    def remove(self, key: str) -> QueuedPodInfo | None:
        removed = self._plain.remove(key)
        return removed if removed is not None else self._error.remove(key)

    def get(self, key: str) -> QueuedPodInfo | None:
        info = self._plain.get(key)
        return info if info is not None else self._error.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self._plain or key in self._error

    def __len__(self) -> int:
        return len(self._plain) + len(self._error)

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        yield from self._plain
        yield from self._error

    def by_arrival(self) -> list[QueuedPodInfo]:
        """The members of each heap in order of arrival."""
        return [*self._plain.by_arrival(), *self._error.by_arrival()]

    def in_order(self) -> list[QueuedPodInfo]:
        """All members by expiry."""
        return sorted((*self._plain, *self._error), key=self.policy.expiration)

    def check_invariants(self) -> None:
        self._plain.check_invariants()
        self._error.check_invariants()
        for info in self._plain:
            assert info.pod_info.key not in self._error, f"{info} is in both backoff heaps"
