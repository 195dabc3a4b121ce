"""The cache of equivalence classes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Final

from kubesched.api.core_v1 import Pod
from kubesched.equivalence.known_failure import KnownFailure
from kubesched.equivalence.plan import Plan
from kubesched.snapshot.pods import Derived, LabelKey, label_key_of

CLASS_LIMIT: Final = 4096
"""Classes kept at most. What is large is not kept here (`row_layers`)."""


class PodClass:
    """One class: the plugins' memo, the plan for placing its pods, and the last failure."""

    __slots__ = (
        "derived",
        "failure",
        "is_unplannable",
        "key",
        "label_key",
        "memo",
        "plan",
        "shape",
    )

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.shape = b""
        """Equal for classes that differ only in labels and owner; computed when a plan is first thought of."""
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
    """Classes by signature; the least recently used is dropped."""

    def __init__(self, limit: int = CLASS_LIMIT) -> None:
        self._limit = limit
        self._classes: OrderedDict[bytes, PodClass] = OrderedDict()

    def get(self, key: bytes | None) -> PodClass | None:
        """The class of a signature; None for pods without one."""
        if not key:
            return None
        pod_class = self._classes.get(key)
        if pod_class is None:
            pod_class = self._classes[key] = PodClass(key)
            if len(self._classes) > self._limit:
                self._classes.popitem(last=False)
        else:
            self._classes.move_to_end(key)
        return pod_class

    def classes(self) -> list[PodClass]:
        """All classes, least recently used first."""
        return list(self._classes.values())

    def clear(self) -> None:
        self._classes.clear()
