"""Status: a plugin's verdict as a value, and its consequences.

A missing status (`None`) and a Success status mean the same thing everywhere. Codes are documented
by their consequence, because that is what a plugin author has to choose between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final


class Code(IntEnum):
    """What happens next. The numbers are upstream's and appear in logs."""

    SUCCESS = 0
    """Continue."""
    ERROR = 1
    """An error: the attempt ends and the pod is retried after backoff, without an event."""
    UNSCHEDULABLE = 2
    """Rejected; preemption may help. The pod waits for an event that the plugin registered."""
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3
    """Rejected, and evicting pods would not change that."""
    WAIT = 4
    """Permit only: hold the pod until it is allowed, rejected or the timeout expires."""
    SKIP = 5
    """The plugin does not apply to this pod (PreFilter, PreScore, PreBindPreFlight, Bind)."""
    PENDING = 6
    """Rejected until an external component acts; its event lets the pod skip backoff."""

    @property
    def upstream_name(self) -> str:
        """The name used in metrics and messages."""
        return _CODE_NAMES[self]


_CODE_NAMES: Final = {code: code.name.title().replace("_", "") for code in Code}
_REJECTED: Final = frozenset(
    {Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING}
)


class Status:
    """A verdict: code, reasons, optionally the error behind it, and the plugin it came from.

    Immutable by convention; `with_plugin` gives a tagged copy. Plugins leave `plugin` empty, the
    runtime fills it in.
    """

    __slots__ = ("code", "error", "plugin", "reasons")

    def __init__(
        self,
        code: Code,
        reasons: Iterable[str] = (),
        *,
        error: Exception | None = None,
        plugin: str = "",
    ) -> None:
        self.code = code
        self.reasons: tuple[str, ...] = tuple(reasons)
        self.error = error
        self.plugin = plugin

    @property
    def is_success(self) -> bool:
        return self.code is Code.SUCCESS

    @property
    def is_rejected(self) -> bool:
        """True if the pod was rejected, as opposed to an error."""
        return self.code in _REJECTED

    @property
    def all_reasons(self) -> tuple[str, ...]:
        """The error's text, if any, then the reasons."""
        return (str(self.error), *self.reasons) if self.error is not None else self.reasons

    @property
    def message(self) -> str:
        return ", ".join(self.all_reasons)

    def as_error(self) -> Exception | None:
        """The error to report as the cause; None for Success, Wait and Skip."""
        if self.code in (Code.SUCCESS, Code.WAIT, Code.SKIP):
            return None
        return self.error if self.error is not None else StatusError(self.message)

    def with_plugin(self, plugin: str) -> Status:
        return (
            self
            if self.plugin == plugin
            else Status(self.code, self.reasons, error=self.error, plugin=plugin)
        )

    def __eq__(self, other: object) -> bool:
        if other is None:
            return self.is_success
        if not isinstance(other, Status):
            return NotImplemented
        if self.is_success and other.is_success:
            return True
        return (
            self.code is other.code
            and self.reasons == other.reasons
            and self.plugin == other.plugin
            and _same_error(self.error, other.error)
        )

    __hash__ = None  # type: ignore[assignment]  # equality follows error chains

    def __repr__(self) -> str:
        tag = f" by {self.plugin}" if self.plugin else ""
        return f"<Status {self.code.upstream_name}{tag}: {self.message}>"


class StatusError(Exception):
    """An error whose whole content is a status message."""


def error_status(error: Exception | str, *, plugin: str = "") -> Status:
    return Status(
        Code.ERROR,
        error=error if isinstance(error, Exception) else StatusError(error),
        plugin=plugin,
    )


def unschedulable(*reasons: str) -> Status:
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)


SKIP: Final = Status(Code.SKIP)
"""Plugins return this constant instead of building their own."""


def code_of(status: Status | None) -> Code:
    return Code.SUCCESS if status is None else status.code


def _same_error(a: Exception | None, b: Exception | None) -> bool:
    """True for the same object, or if one was raised `from` the other; texts do not count."""
    if a is b:
        return True
    if a is None or b is None:
        return False
    return _wraps(a, b) or _wraps(b, a)


def _wraps(outer: BaseException, inner: BaseException) -> bool:
    seen: BaseException | None = outer
    while seen is not None:
        if seen is inner:
            return True
        seen = seen.__cause__
    return False


class NodeToStatus:
    """Verdicts by node name, and a default verdict for all other nodes."""

    __slots__ = ("_explicit", "absent_status")

    def __init__(
        self, explicit: Mapping[str, Status] | None = None, absent_status: Status | None = None
    ) -> None:
        self._explicit: dict[str, Status] = dict(explicit or {})
        self.absent_status = absent_status or unresolvable()

    @property
    def explicit(self) -> Mapping[str, Status]:
        return self._explicit

    def get(self, node_name: str) -> Status:
        return self.explicit.get(node_name, self.absent_status)

    def set(self, node_name: str, status: Status) -> None:
        self._explicit[node_name] = status

    def __len__(self) -> int:
        """Number of nodes with an explicit verdict."""
        return len(self.explicit)

    def nodes_for_code(self, node_names: Sequence[str], code: Code) -> list[str]:
        """Names among `node_names` whose verdict has that code, by the cheaper of two loops."""
        if self.absent_status.code is code:
            if not self.explicit:
                return list(node_names)
            return [name for name in node_names if self.get(name).code is code]
        known = set(node_names)
        return [
            name for name, status in self.explicit.items() if status.code is code and name in known
        ]

    def histogram(self, node_count: int) -> list[str]:
        """`<count> <reason>` per distinct reason over all nodes, sorted as text: `10 x` < `2 y`."""
        counts = self._count_reasons()
        absent = node_count - len(self)
        if absent > 0:
            for reason in self.absent_status.all_reasons:
                counts[reason] += absent
        return sorted(f"{count} {reason}" for reason, count in counts.items())

    def _count_reasons(self) -> Counter[str]:
        """Number of explicit verdicts per reason."""
        counts: Counter[str] = Counter()
        for status in self.explicit.values():
            counts.update(status.all_reasons)
        return counts
