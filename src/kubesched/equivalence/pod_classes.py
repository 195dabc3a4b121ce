"""The cache of equivalence classes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

from kubesched.api.core_v1 import Pod
from kubesched.equivalence.known_failure import KnownFailure
from kubesched.equivalence.plan import Plan
from kubesched.equivalence.signature import ClassKey
from kubesched.snapshot.pods import Derived, LabelKey, label_key_of

CLASS_LIMIT: Final = 4096
"""Classes kept at most. What is large is not kept here (`row_layers`)."""
SIGNATURE_LIMIT: Final = 1024
"""Signatures of which the class is remembered. Pods with labels of their own have as many signatures as there are pods."""


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
    """Classes by key; the least recently used is dropped."""

    def __init__(self, limit: int = CLASS_LIMIT) -> None:
        self._limit = limit
        self._classes: OrderedDict[ClassKey, PodClass] = OrderedDict()
        self._recent: dict[bytes, tuple[Sequence[Hashable], PodClass]] = {}
        """By signature, with the version of what tells labels apart."""

    def recall(self, signature: bytes, version: Sequence[Hashable]) -> PodClass | None:
        """The class of the last pod with the same labels, if no selector has changed since."""
        recent = self._recent.get(signature)
        if recent is None or recent[0] != version:
            return None
        self._classes.move_to_end(recent[1].key)
        return recent[1]

    def remember(self, signature: bytes, version: Sequence[Hashable], pod_class: PodClass) -> None:
        """For `recall`."""
        if len(self._recent) >= SIGNATURE_LIMIT:
            self._recent.clear()
        self._recent[signature] = (version, pod_class)

    def get(self, key: ClassKey) -> PodClass:
        """The class of that key."""
        pod_class = self._classes.get(key)
        if pod_class is None:
            pod_class = self._classes[key] = PodClass(key)
            if len(self._classes) > self._limit:
                self._classes.popitem(last=False)
                self._recent.clear()
        else:
            self._classes.move_to_end(key)
        return pod_class

    def classes(self) -> list[PodClass]:
        """All classes, least recently used first."""
        return list(self._classes.values())

    def clear(self) -> None:
        self._classes.clear()
        self._recent.clear()
