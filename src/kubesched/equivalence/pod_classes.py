"""The cache of equivalence classes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any, Final

from kubesched.api.core_v1 import Pod
from kubesched.equivalence.known_failure import KnownFailure
from kubesched.equivalence.plan import Plan
from kubesched.equivalence.signature import ClassKey
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
        "labels",
        "memo",
        "plan",
    )

    def __init__(self, key: ClassKey) -> None:
        self.key = key
        self.memo: dict[Hashable, Any] = {}
        self.derived = Derived()
        self.labels: Mapping[str, str] | None = None
        self.label_key: LabelKey | None = None
        self.plan: Plan | None = None
        self.is_unplannable = False
        """A plugin's rule failed: every pod of the class gets the full evaluation."""
        self.failure: KnownFailure | None = None

    @property
    def shape(self) -> bytes:
        """Equal for classes that differ only in labels and owner."""
        return self.key[0]

    def label_key_for(self, pod: Pod) -> LabelKey:
        """Kept for the pod after: usually it has the same labels."""
        labels = pod.metadata.labels
        if self.label_key is None or self.labels != labels:
            self.labels, self.label_key = labels, label_key_of(pod)
        return self.label_key


class ClassCache:
    """Classes by signature; the least recently used is dropped."""

    def __init__(self, limit: int = CLASS_LIMIT) -> None:
        self._limit = limit
        self._classes: OrderedDict[ClassKey, PodClass] = OrderedDict()

    def get(self, key: ClassKey) -> PodClass:
        """The class of that key."""
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
