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
"""Classes kept at most. One costs about 30 bytes per row."""
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
        "memo",
        "plan",
        "pre_filter",
        "pre_score",
        "was_planned",
    )

    def __init__(self, key: bytes) -> None:
        self.key = key
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
    """Classes by signature, least recently used dropped first."""

    def __init__(self, limit: int = CLASS_LIMIT) -> None:
        self._limit = limit
        self._classes: OrderedDict[bytes, PodClass] = OrderedDict()
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def get(self, key: bytes | None) -> PodClass | None:
        """The class of a signature; None at first sight and for pods without one."""
        if not key:
            return None
        found = self._classes.get(key)
        if found is not None:
            self._classes.move_to_end(key)
            return found
        if key not in self._seen:
            self._seen[key] = None
            if len(self._seen) > SEEN_LIMIT:
                self._seen.popitem(last=False)
            return None
        del self._seen[key]
        found = self._classes[key] = PodClass(key)
        if len(self._classes) > self._limit:
            self._classes.popitem(last=False)
        return found

    def classes(self) -> list[PodClass]:
        """Those kept now, least recently used first."""
        return list(self._classes.values())

    def clear(self) -> None:
        self._classes.clear()
        self._seen.clear()
