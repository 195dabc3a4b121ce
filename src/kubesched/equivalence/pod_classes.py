"""The cache of equivalence classes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Final

from kubesched.api.core_v1 import Pod
from kubesched.equivalence.known_failure import KnownFailure
from kubesched.equivalence.plan import Plan
from kubesched.snapshot.pods import Derived, LabelKey, label_key_of

CLASS_LIMIT: Final = 256
"""Classes kept at most."""
BYTES_PER_ROW: Final = 40
"""Approximate cost of a class."""
BYTES_LIMIT: Final = 256 * 1024 * 1024
"""Memory limit of all classes; a very large cluster keeps fewer classes."""
PATIENCE: Final = 4
"""A class is evicted for a new one if it went unused for this many look-ups per class kept."""
SEEN_LIMIT: Final = 4096
"""Signatures remembered. A class is created when a signature is seen again, so one-off pods cost nothing."""


class PodClass:
    """One class: the plugins' memo, the plan for placing its pods, and the last failure."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.last_used = 0
        self.memo: dict[Hashable, Any] = {}
        self.derived = Derived()
        self.label_key: LabelKey | None = None
        self.plan: Plan | None = None
        self.is_unplannable = False
        """A plugin's rule failed: every pod of the class gets the full evaluation."""
        self.failure: KnownFailure | None = None

    def label_key_for(self, pod: Pod) -> LabelKey:
        """The same for all pods of the class."""
        if self.label_key is None:
            self.label_key = label_key_of(pod)
        return self.label_key


class ClassCache:
    """Classes by signature; the least recently used is dropped, if it has been unused for long enough.

    With more classes in active use than fit, the present ones stay. Plain LRU would evict every class before its next
    pod comes.
    """

    def __init__(self, limit: int = CLASS_LIMIT) -> None:
        self._limit = limit
        self._tick = 0
        self._classes: OrderedDict[bytes, PodClass] = OrderedDict()
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def get(self, key: bytes | None, rows: int = 0) -> PodClass | None:
        """The class of a signature, for a table of that many rows; None on first sight and for pods without signature."""
        if not key:
            return None
        self._tick += 1
        pod_class = self._classes.get(key)
        if pod_class is not None:
            self._classes.move_to_end(key)
            pod_class.last_used = self._tick
            return pod_class
        if key not in self._seen:
            self._seen[key] = None
            if len(self._seen) > SEEN_LIMIT:
                self._seen.popitem(last=False)
            return None
        if not self._make_room(min(self._limit, BYTES_LIMIT // (BYTES_PER_ROW * max(rows, 1)))):
            return None
        del self._seen[key]
        pod_class = self._classes[key] = PodClass(key)
        pod_class.last_used = self._tick
        return pod_class

    def _make_room(self, limit: int) -> bool:
        """Drop unused classes down to the limit; False if all are in use."""
        while len(self._classes) >= max(limit, 1):
            oldest = next(iter(self._classes.values()))
            is_over = len(self._classes) > max(limit, 1)
            if not is_over and self._tick - oldest.last_used < PATIENCE * limit:
                return False
            del self._classes[oldest.key]
        return True

    def classes(self) -> list[PodClass]:
        """All classes, least recently used first."""
        return list(self._classes.values())

    def clear(self) -> None:
        self._classes.clear()
        self._seen.clear()
