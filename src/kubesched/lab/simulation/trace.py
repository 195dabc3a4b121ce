"""What a run tells: its trace, hashed as a whole with the last lines kept, and violations."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable

from kubesched.base.errors import KubeschedError
from kubesched.lab.simulation.census import Census

KEPT_LINES = 60


class Trace:
    """Append-only; two runs are equal if and only if their digests are."""

    def __init__(
        self, time: Callable[[], float], echo: Callable[[str], None] | None = None
    ) -> None:
        """`echo` receives every line."""
        self._time = time
        self._echo = echo
        self._hash = hashlib.sha256()
        self._last: deque[str] = deque(maxlen=KEPT_LINES)
        self.count = 0
        self.census = Census()
        self.kinds: Counter[str] = Counter()

    def add(self, kind: str, text: str) -> None:
        line = f"{self.count:6d} {self._time():10.4f} {kind:<8} {text}"
        self.count += 1
        self.kinds[kind] += 1
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        self._last.append(line)
        if self._echo is not None:
            self._echo(line)

    def digest(self) -> str:
        return self._hash.hexdigest()

    def last_lines(self) -> list[str]:
        return list(self._last)


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
