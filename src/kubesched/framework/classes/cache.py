"""The classes that are kept, and what each of them holds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Final, NamedTuple

from kubesched.api.core_v1 import Pod
from kubesched.framework.classes.columns import ClassColumns
from kubesched.framework.classes.plan import Plan
from kubesched.framework.diagnosis import Diagnosis
from kubesched.framework.interfaces import PreFilterPlugin, PreScorePlugin
from kubesched.framework.runtime.replay import Replay
from kubesched.snapshot.pods import Derived, LabelKey, label_key_of

CLASS_LIMIT: Final = 256
"""Classes kept at most."""
BYTES_PER_ROW: Final = 40
"""What a class costs, about."""
BYTES_LIMIT: Final = 256 * 1024 * 1024
"""What all classes may cost together; in a very large cluster there are fewer of them."""
PATIENCE: Final = 4
"""A class gives way to a new one if it was not asked for while all others could have been, this many times over."""
SEEN_LIMIT: Final = 4096
"""Signatures remembered: a class is made when a signature comes a second time, so one-off pods cost nothing."""


class KnownFailure(NamedTuple):
    """Why the class fits nowhere, while `position` stays the same. A position of None has no equal."""

    position: Hashable
    diagnosis: Diagnosis


class PodClass:
    """One class: what plugins remember about it (`memo`), and whichever of plan and columns serves it."""

    __slots__ = (
        "columns",
        "derived",
        "failure",
        "is_unplannable",
        "key",
        "label_key",
        "last_used",
        "memo",
        "plan",
        "pre_filter",
        "pre_score",
        "was_planned",
    )

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.last_used = 0
        self.memo: dict[Hashable, Any] = {}
        self.derived = Derived()
        self.label_key: LabelKey | None = None
        self.plan: Plan | None = None
        self.was_planned = False
        """There has been a plan: if it is gone, an attempt without columns will make the next."""
        self.is_unplannable = False
        """Some plugin tells nodes apart in a way that no plan can follow: columns have to do."""
        self.columns: ClassColumns | None = None
        self.failure: KnownFailure | None = None
        self.pre_filter: Replay[PreFilterPlugin] | None = None
        self.pre_score: Replay[PreScorePlugin] | None = None

    def label_key_for(self, pod: Pod) -> LabelKey:
        """The same for all pods of the class."""
        found = self.label_key
        if found is None:
            found = self.label_key = label_key_of(pod)
        return found


class ClassCache:
    """Classes by signature, least recently used dropped first.

    With more classes in use than can be kept, those that are here stay: if each made room for the next, none would be
    here when its next pod comes.
    """

    def __init__(self, limit: int = CLASS_LIMIT) -> None:
        self._limit = limit
        self._tick = 0
        self._classes: OrderedDict[bytes, PodClass] = OrderedDict()
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def get(self, key: bytes | None, rows: int = 0) -> PodClass | None:
        """The class of a signature, in a table of that many rows; None at first sight and for pods without one."""
        if not key:
            return None
        self._tick += 1
        found = self._classes.get(key)
        if found is not None:
            self._classes.move_to_end(key)
            found.last_used = self._tick
            return found
        if key not in self._seen:
            self._seen[key] = None
            if len(self._seen) > SEEN_LIMIT:
                self._seen.popitem(last=False)
            return None
        if not self._make_room(min(self._limit, BYTES_LIMIT // (BYTES_PER_ROW * max(rows, 1)))):
            return None
        del self._seen[key]
        found = self._classes[key] = PodClass(key)
        found.last_used = self._tick
        return found

    def _make_room(self, limit: int) -> bool:
        """Drop what is too much; False when all that is here is in use."""
        while len(self._classes) >= max(limit, 1):
            oldest = next(iter(self._classes.values()))
            is_over = len(self._classes) > max(limit, 1)
            if not is_over and self._tick - oldest.last_used < PATIENCE * limit:
                return False
            del self._classes[oldest.key]
        return True

    def classes(self) -> list[PodClass]:
        """Those kept now, least recently used first."""
        return list(self._classes.values())

    def clear(self) -> None:
        self._classes.clear()
        self._seen.clear()
