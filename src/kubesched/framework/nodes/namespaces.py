"""Namespace labels, for the namespace selectors of affinity terms."""

from __future__ import annotations

from collections.abc import Mapping

_NO_LABELS: Mapping[str, str] = {}


class NamespaceLabels:
    """Namespace -> labels. A new `version` invalidates resolved selectors."""

    def __init__(self) -> None:
        self._labels: dict[str, Mapping[str, str]] = {}
        self.version = 0

    def put(self, name: str, labels: Mapping[str, str] | None) -> None:
        labels = labels or _NO_LABELS
        if self._labels.get(name) != labels or name not in self._labels:
            self._labels[name] = labels
            self.version += 1

    def remove(self, name: str) -> None:
        if self._labels.pop(name, None) is not None:
            self.version += 1

    def labels_of(self, name: str) -> Mapping[str, str]:
        """The namespace's labels; empty if it is unknown."""
        return self._labels.get(name, _NO_LABELS)

    def items(self) -> list[tuple[str, Mapping[str, str]]]:
        return list(self._labels.items())
