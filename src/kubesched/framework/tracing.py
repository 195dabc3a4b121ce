"""The scheduler's interface to a tracer, which the application provides."""

from __future__ import annotations

from contextvars import Context
from typing import Protocol

from kubesched.api.core_v1 import Pod


class AttemptTracing(Protocol):
    """Spans of scheduling attempts.

    The span of an attempt is current in the context that `begin` returns. The whole attempt runs in
    it, binding included, so that extension points and API calls find their parent span.
    """

    def begin(self, pod: Pod, profile: str, attempt: int) -> Context | None:
        """The context of a new attempt's span; None if it is not in the sample."""
        ...

    def point_done(self, point: str, started: float, ended: float, code: str) -> None:
        """An extension point has run; times are the clock's monotonic seconds."""
        ...

    def attempt_done(self, result: str) -> None:
        """The attempt of the current context has ended: `scheduled`, `unschedulable` or `error`."""
        ...
