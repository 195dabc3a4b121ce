"""CycleState: plugin state during one scheduling attempt of one pod."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Set
from typing import Any, Protocol, TypeVar

from kubesched.api.core_v1 import Pod
from kubesched.framework.status import Code

T = TypeVar("T")


class CallTimer(Protocol):
    """Times the plugin calls of one attempt."""

    def call(
        self,
        plugin: Any,  # noqa: ANN401  # any plugin
        point: str,
        function: Callable[..., T],
        *arguments: object,
    ) -> T:
        """Call and time the function; returns its result or raises its exception."""
        ...

    async def call_async(
        self,
        plugin: Any,  # noqa: ANN401  # any plugin
        point: str,
        function: Callable[..., object],
        *arguments: object,
    ) -> object:
        """Like `call`, for a function that may return an awaitable."""
        ...

    def observe(self, plugin: str, point: str, code: Code, started: float) -> None:
        """Record a call that started at `started` and ends now."""
        ...


PODS_TO_ACTIVATE = "kubernetes.io/pods-to-activate"
"""Key of the `PodsToActivate` in every CycleState."""


class PodsToActivate:
    """Pods (`namespace/name`) that a plugin moves to the active queue if this attempt succeeds.

    Clones share it, so additions during what-if evaluation count too.
    """

    __slots__ = ("pods",)

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}

    def clone(self) -> PodsToActivate:
        return self


class CycleState:
    """Keyed storage of one attempt, plus the sets of plugins to skip.

    Values that a what-if evaluation may change implement `clone`; clones share all other values.
    """

    # Runtime internals. Class-level defaults, because most attempts change few of them.
    # Bits of `framework.runtime.timing`: the counted extension points that this attempt reached.
    points_reached = 0
    # Set only for the sampled attempts whose plugin calls are timed.
    timer: CallTimer | None = None
    skip_filter_plugins: Set[str] = frozenset()
    skip_score_plugins: Set[str] = frozenset()
    skip_pre_bind_plugins: Set[str] = frozenset()
    parallel_pre_bind_plugins: Set[str] = frozenset()
    skip_all_post_filter_plugins = False
    # Values that plugins cache per equivalence class; None for a pod without a class.
    class_memo: dict[Hashable, Any] | None = None
    # True if the pod fits nowhere and other pods of its class would now fail the same way.
    fails_as_class = False
    # Seconds of the attempt that shadow profiles took; they count in no duration.
    shadow_s = 0.0
    # Number of pods popped from the queue when this attempt began.
    cycle = 0
    # Equal for pods that batching may treat as identical; None for an unsigned pod.
    signature: bytes | None = None
    # While the members of a PodGroup are tried: the same object for all of them.
    group_trial: object | None = None

    def __init__(self) -> None:
        self._data: dict[str, Any] = {}

    def read(self, key: str) -> Any:  # noqa: ANN401  # the type depends on the key
        """The stored value; raises KeyError with upstream's message if there is none."""
        try:
            return self._data[key]
        except KeyError:
            raise StateNotFound(key) from None

    def get(self, key: str) -> Any:  # noqa: ANN401  # as above
        """The stored value or None."""
        return self._data.get(key)

    def write(self, key: str, value: object) -> None:
        self._data[key] = value

    def delete(self, key: str) -> None:
        self._data.pop(key, None)

    def entries(self) -> dict[str, Any]:
        """A copy of all stored entries."""
        return dict(self._data)

    def adopt(self, entries: dict[str, Any]) -> None:
        """Store several values at once."""
        self._data.update(entries)

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """A value computed once per equivalence class, or per attempt for a pod without one."""
        memo = self.class_memo
        if memo is None:
            return make()
        if key not in memo:
            memo[key] = make()
        value: T = memo[key]
        return value

    @property
    def pods_to_activate(self) -> PodsToActivate:
        existing = self._data.get(PODS_TO_ACTIVATE)
        if existing is None:
            existing = self._data[PODS_TO_ACTIVATE] = PodsToActivate()
        assert isinstance(existing, PodsToActivate)
        return existing

    def clone(self) -> CycleState:
        """A copy for what-if evaluation. Clones values that have `clone`; shares all else."""
        copy = CycleState()
        vars(copy).update(vars(self))
        copy._data = {
            key: value.clone() if hasattr(value, "clone") else value
            for key, value in self._data.items()
        }
        return copy


class StateNotFound(LookupError):
    """A plugin read a key that was not written in this attempt."""

    def __init__(self, key: str) -> None:
        super().__init__("not found")
        self.key = key
