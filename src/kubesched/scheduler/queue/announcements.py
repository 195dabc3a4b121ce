"""Announcements: pods that were settled with their class, and not tried, learn the new reason.

Trying each of them would have written its condition. So the condition is written for each of them
too, a slice at a time, but only when the reason has changed since they were told last: mostly it
has not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from kubesched.framework.queued_pod import QueuedPodInfo

SLICE: Final = 100
"""Pods told in one go: about a millisecond."""


@dataclass(slots=True)
class ClassFailure:
    """A failed attempt whose outcome holds for every pod of the class."""

    message: str
    tell: Callable[[QueuedPodInfo], None]
    """Reports it for another pod of the class."""
    settled: int = 0
    """Set by the queue: how many other pods were rejected with this one."""


class Announcements:
    """Which pods still have to be told what; of several things, the last."""

    def __init__(self, find: Callable[[str], QueuedPodInfo | None]) -> None:
        """`find` gives the entry of a pod that waits with its class."""
        self._find = find
        self._pending: dict[str, ClassFailure] = {}

    def announce(self, keys: Iterable[str], failure: ClassFailure) -> None:
        self._pending.update(dict.fromkeys(keys, failure))

    def drop(self, key: str) -> None:
        """A pod was tried itself."""
        self._pending.pop(key, None)

    def tell_some(self) -> None:
        """Tell some more pods, as far as they still wait with their class."""
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
