"""Announcements: reports a new reason to pods that were settled with their class.

An attempt for each of them would have written its condition. So their conditions are written too, a
slice at a time, but only if the reason has changed since the last report, which is rare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from kubesched.framework.queued_pod import QueuedPodInfo

SLICE: Final = 100
"""Pods reported per slice: about a millisecond."""


@dataclass(slots=True)
class ClassFailure:
    """A failed attempt whose outcome holds for every pod of the class."""

    message: str
    tell: Callable[[QueuedPodInfo], None]
    """Reports the failure for another pod of the class."""
    settled: int = 0
    """Set by the queue: number of other pods rejected with this one."""


class Announcements:
    """Pending reports by pod. A newer report replaces an older one."""

    def __init__(self, find: Callable[[str], QueuedPodInfo | None]) -> None:
        """`find` returns the entry of a pod that waits with its class."""
        self._find = find
        self._pending: dict[str, ClassFailure] = {}

    def announce(self, keys: Iterable[str], failure: ClassFailure) -> None:
        self._pending.update(dict.fromkeys(keys, failure))

    def drop(self, key: str) -> None:
        """Drop the report of a pod that had its own attempt."""
        self._pending.pop(key, None)

    def tell_some(self) -> None:
        """Report to some more pods that still wait with their class."""
        for key in [*islice(self._pending, SLICE)]:
            failure = self._pending.pop(key)
            info = self._find(key)
            if info is not None:
                failure.tell(info)

    def tell_all(self) -> None:
        while self._pending:
            self.tell_some()

    def __bool__(self) -> bool:
        return bool(self._pending)
