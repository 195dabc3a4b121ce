"""Violations of an invariant."""

from __future__ import annotations

from kubesched.base.errors import KubeschedError


class Violation(KubeschedError):
    """A property does not hold."""

    def __init__(self, property_: str, detail: str) -> None:
        super().__init__(f"{property_}: {detail}")
        self.property = property_
        self.detail = detail


class Complaints:
    """Collects violations where raising would be swallowed; the world raises the first of them."""

    def __init__(self) -> None:
        self._first: Violation | None = None

    def add(self, property_: str, detail: str) -> None:
        if self._first is None:
            self._first = Violation(property_, detail)

    def raise_first(self) -> None:
        if self._first is not None:
            raise self._first
