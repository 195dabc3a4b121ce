"""Classes of pods, and their cached answers.

Pods of a class are equal in everything plugins may read. Answers by row depend on less: unless a
plugin declares otherwise, not on labels, owner and claim names. Classes that differ only in these
have one *shape* and share its answers:

    PodClass   web-1    shape 100m, 500Mi    values that plugins remember for the class
    PodClass   web-2    shape 100m, 500Mi         "
                           |
    Answers             100m, 500Mi          columns of verdicts and scores, last failure
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Final

from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import Derived, PodInfo, label_key_of
from kubesched.scheduler.classes.known_failure import KnownFailure
from kubesched.scheduler.classes.row_columns import FilterColumns, ScoreColumns
from kubesched.scheduler.classes.signature import SIGNATURES_BYTES_LIMIT

CLASS_LIMIT: Final = 4096
"""Maximum number of classes. Large data is stored by shape."""
BYTES_LIMIT: Final = 128 * 1024 * 1024
"""Limit for the answers of all shapes (LRU)."""
BYTES_PER_ROW: Final = 16


class PodClass:
    """Pods that no plugin can distinguish."""

    __slots__ = ("derived", "label_key", "memo", "shape", "signature")

    def __init__(self, pod: PodInfo, signature: bytes, shape: bytes) -> None:
        self.signature = signature
        self.shape = shape
        self.memo: dict[Hashable, Any] = {}
        """See `CycleState.remember`."""
        self.derived = Derived()
        self.label_key = label_key_of(pod.pod)


class Answers:
    """The cached answers for the classes of one shape."""

    __slots__ = ("failure", "filters", "is_given_up", "scores")

    def __init__(self) -> None:
        self.is_given_up = False
        """True if a plugin's rule failed: every pod gets the full evaluation."""
        self.drop()

    def drop(self) -> None:
        """Drop everything: scores and failure depend on the filters."""
        self.filters: FilterColumns | None = None
        self.scores: ScoreColumns | None = None
        self.failure: KnownFailure | None = None


class ClassCache:
    """Classes by signature and answers by shape."""

    def __init__(self, table: NodeTable, limit: int = CLASS_LIMIT) -> None:
        self._table = table
        self._limit = limit
        self._classes: OrderedDict[bytes, PodClass] = OrderedDict()
        self._signatures_bytes = 0
        self._answers: OrderedDict[bytes, Answers] = OrderedDict()
        self._shapes_bytes = 0

    def get(self, pod: PodInfo, signature: bytes, shape: bytes) -> PodClass:
        """The class of a pod with that signature."""
        pod_class = self._classes.get(signature)
        if pod_class is None:
            pod_class = self._classes[signature] = PodClass(pod, signature, shape)
            self._signatures_bytes += len(signature)
            while (
                len(self._classes) > self._limit or self._signatures_bytes > SIGNATURES_BYTES_LIMIT
            ):
                dropped, _ = self._classes.popitem(last=False)
                self._signatures_bytes -= len(dropped)
        else:
            self._classes.move_to_end(signature)
        return pod_class

    def answers(self, shape: bytes) -> Answers:
        """The cached answers for a shape."""
        answers = self._answers.get(shape)
        if answers is None:
            answers = self._answers[shape] = Answers()
            fitting = min(self._limit, BYTES_LIMIT // (BYTES_PER_ROW * self._table.capacity))
            self._shapes_bytes += len(shape)
            while (
                len(self._answers) > max(fitting, 1) or self._shapes_bytes > SIGNATURES_BYTES_LIMIT
            ):
                dropped, _ = self._answers.popitem(last=False)
                self._shapes_bytes -= len(dropped)
        else:
            self._answers.move_to_end(shape)
        return answers

    def all_answers(self) -> list[Answers]:
        """The answers of all shapes, least recently used first."""
        return list(self._answers.values())

    def clear(self) -> None:
        self._classes.clear()
        self._answers.clear()
        self._signatures_bytes = self._shapes_bytes = 0
