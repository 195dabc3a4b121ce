"""The cache of equivalence classes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any, Final, NamedTuple

from kubesched.equivalence.known_failure import KnownFailure
from kubesched.equivalence.plan import Plan
from kubesched.equivalence.signature import ClassKey
from kubesched.snapshot.pods import Derived, LabelKey

CLASS_LIMIT: Final = 4096
"""Classes kept at most. What is large is not kept here (`row_layers`)."""
SHAPES_BYTES_LIMIT: Final = 16 * 1024 * 1024
"""Bytes of their shapes. What a class holds is some twenty times that, if its pods name much."""
SIGNATURE_LIMIT: Final = 1024
"""Signatures of which the class is remembered. Pods with labels of their own have as many signatures as there are pods."""


class PodClass:
    """One class: the plugins' memo, the plan for placing its pods, and the last failure."""

    __slots__ = (
        "derived",
        "failure",
        "is_unplannable",
        "key",
        "memo",
        "plan",
    )

    def __init__(self, key: ClassKey) -> None:
        self.key = key
        self.memo: dict[Hashable, Any] = {}
        self.derived = Derived()
        self.plan: Plan | None = None
        self.is_unplannable = False
        """A plugin's rule failed: every pod of the class gets the full evaluation."""
        self.failure: KnownFailure | None = None

    @property
    def shape(self) -> bytes:
        """Equal for classes that differ only in labels and owner."""
        return self.key[0]


class Recent(NamedTuple):
    """What was found out about a pod when it was classified."""

    version: Sequence[Hashable]
    """The version of what tells labels apart."""
    pod_class: PodClass
    label_key: LabelKey


class ClassCache:
    """Classes by key; the least recently used is dropped."""

    def __init__(self, limit: int = CLASS_LIMIT) -> None:
        self._limit = limit
        self._classes: OrderedDict[ClassKey, PodClass] = OrderedDict()
        self._bytes = 0
        self._recent: dict[bytes, Recent] = {}
        """By signature."""

    def recall(self, signature: bytes, version: Sequence[Hashable]) -> Recent | None:
        """The class of the last pod with the same labels, if no selector has changed since."""
        recent = self._recent.get(signature)
        if recent is None or recent.version != version:
            return None
        self._classes.move_to_end(recent.pod_class.key)
        return recent

    def remember(self, signature: bytes, recent: Recent) -> None:
        """For `recall`."""
        if len(self._recent) >= SIGNATURE_LIMIT:
            self._recent.clear()
        self._recent[signature] = recent

    def get(self, key: ClassKey) -> PodClass:
        """The class of that key."""
        pod_class = self._classes.get(key)
        if pod_class is None:
            pod_class = self._classes[key] = PodClass(key)
            self._bytes += len(key[0])
            while len(self._classes) > self._limit or self._bytes > SHAPES_BYTES_LIMIT:
                (shape, _), _ = self._classes.popitem(last=False)
                self._bytes -= len(shape)
                self._recent.clear()
        else:
            self._classes.move_to_end(key)
        return pod_class

    def classes(self) -> list[PodClass]:
        """All classes, least recently used first."""
        return list(self._classes.values())

    def clear(self) -> None:
        self._classes.clear()
        self._bytes = 0
        self._recent.clear()
