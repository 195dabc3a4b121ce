"""What a run tells: its trace, hashed as a whole with the last lines kept, and violations."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from kubesched.base.errors import KubeschedError
from kubesched.framework.runtime import guard
from kubesched.lab.simulation.census import Census

KEPT_LINES = 60
SIMULATED = "simulated failure"
"""In the text of every exception that a simulated plugin raises."""


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


class Pending(NamedTuple):
    """Why the world has not settled."""

    what: str
    promise: str = "all that can be placed is placed once faults stop"
    """The property that does not hold if this lasts."""
    is_late: bool = False
    """No event may have reported the change, see `liveness.LATE_BOUND_S`."""
    has_victims: bool = False
    """A pod could be placed by preemption."""


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


class UnexpectedErrors(logging.Handler):
    """Complains about exceptions of Python's own that the scheduler caught and logged.

    A plugin or an event handler may raise anything, and the scheduler goes on. What faults lead to
    are exceptions of the package, or of the operating system.
    """

    def __init__(self, complain: Callable[[str, str], None]) -> None:
        super().__init__()
        self._complain = complain

    def emit(self, record: logging.LogRecord) -> None:
        error = getattr(record, "values", {}).get("err")
        while isinstance(error, BaseException) and error.__cause__ is not None:
            error = error.__cause__
        is_own = type(error).__module__ == "builtins" and isinstance(error, Exception)
        is_unexpected = (is_own and not isinstance(error, OSError)) or record.name == guard.__name__
        if is_unexpected and SIMULATED not in str(error):
            self._complain("no exception is unexpected", f"{record.getMessage()}: {error!r}")

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Get the errors that are logged inside, instead of all other handlers."""
        root, of_plugins = logging.root, guard.log._logger
        before = root.handlers, root.level
        root.handlers = [self]
        root.setLevel(logging.ERROR)
        of_plugins.setLevel(logging.DEBUG)  # where an exception is logged again at -v=4
        try:
            yield
        finally:
            root.handlers, level = before
            root.setLevel(level)
            of_plugins.setLevel(logging.NOTSET)
