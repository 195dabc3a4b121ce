"""CycleState: the state of plugins during one attempt to place one pod."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Set
from typing import Any, Protocol, TypeVar

from kubesched.api.core_v1 import Pod
from kubesched.framework.status import Code

T = TypeVar("T")


class CallTimer(Protocol):
    """Times the plugin calls of one attempt."""

    def call(self, plugin: Any, point: str, function: Callable[..., T], *arguments: object) -> T:  # noqa: ANN401  # any plugin
        """Call and measure; returns or raises what the function does."""
        ...

    async def call_async(
        self,
        plugin: Any,  # noqa: ANN401  # any plugin
        point: str,
        function: Callable[..., object],
        *arguments: object,
    ) -> object:
        """The same for a function that may return an awaitable."""
        ...

    def observe(self, plugin: str, point: str, code: Code, started: float) -> None:
        """Note a call that began at `started` and ends now."""
        ...


PODS_TO_ACTIVATE = "kubernetes.io/pods-to-activate"
"""Key of the `PodsToActivate` every attempt starts with."""


class PodsToActivate:
    """Pods that a plugin wants moved to the active queue once this attempt has succeeded, by `namespace/name`.

    Clones share it: what a plugin adds during a what-if counts as well.
    """

    __slots__ = ("pods",)

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}

    def clone(self) -> PodsToActivate:
        return self


class CycleState:
    """Keyed storage of one attempt, plus the sets of plugins to skip.

    Values that a what-if may change implement `clone`; all others are shared by clones.
    """

    # The runtime's own. Defaults are the class's, since most attempts change few of them.
    # Bits of `framework.runtime.timing`: the counted extension points that this attempt reached.
    points_reached = 0
    # Set in the sample of attempts whose plugin calls are timed.
    timer: CallTimer | None = None
    skip_filter_plugins: Set[str] = frozenset()
    skip_score_plugins: Set[str] = frozenset()
    skip_pre_bind_plugins: Set[str] = frozenset()
    parallel_pre_bind_plugins: Set[str] = frozenset()
    skip_all_post_filter_plugins = False
    # Values that plugins keep for all pods of this pod's equivalence class; None for a pod without
    # one.
    class_memo: dict[Hashable, Any] | None = None
    # The pod fits nowhere, and at this moment neither would any other pod of its class, for the
    # same reasons.
    fails_as_class = False
    # How many pods had been taken from the queue when this attempt began.
    cycle = 0
    # Equal for pods that batching may treat as one; None for a pod that has none.
    signature: bytes | None = None

    def __init__(self) -> None:
        self._data: dict[str, Any] = {}

    def read(self, key: str) -> Any:  # noqa: ANN401  # each plugin knows the type behind its own key
        """The stored value; KeyError with upstream's text when there is none."""
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
        """A copy of everything stored."""
        return dict(self._data)

    def adopt(self, entries: dict[str, Any]) -> None:
        """Store several values at once."""
        self._data.update(entries)

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """A value that depends on the pod's equivalence class only: made once per class, or once for a pod without one."""
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
        """A copy for a what-if: values with a `clone` of their own are cloned, the rest and flag sets are shared."""
        copy = CycleState()
        vars(copy).update(vars(self))
        copy._data = {
            key: value.clone() if hasattr(value, "clone") else value
            for key, value in self._data.items()
        }
        return copy


class StateNotFound(LookupError):
    """A plugin read state that was not written in this attempt."""

    def __init__(self, key: str) -> None:
        super().__init__("not found")
        self.key = key
