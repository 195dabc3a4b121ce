"""PreFilter and PreScore answers that depend on the pod alone: found once per pod class, then taken as found.

A plugin that declares so (`pre_filter_is_per_class`, `pre_score_is_per_class`) is not called again for further pods
of a class; what it stored in the cycle state is put there as if it had been.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from kubesched.framework.cycle_state import CycleState

P = TypeVar("P")


class Replay(Generic[P]):
    """What the per-class plugins of one phase did, and which plugins still have to be asked each time."""

    __slots__ = ("_before", "_version", "entries", "rest", "skipped")

    def __init__(self, version: int) -> None:
        self._version = version
        self.entries: dict[str, Any] = {}
        self.skipped: set[str] = set()
        self.rest: list[P] = []
        self._before: dict[str, Any] = {}

    def serves(self, version: int) -> bool:
        """Answers may speak of resource columns; a new one makes them stale."""
        return self._version == version

    def apply(self, state: CycleState, skipped: set[str]) -> Sequence[P]:
        """Put everything in place; returns the plugins that remain to be run."""
        state.adopt(self.entries)
        skipped.update(self.skipped)
        return self.rest

    def watch(self, state: CycleState) -> None:
        """Note what is in the state before a per-class plugin runs."""
        self._before = state.entries()

    def note(self, state: CycleState, plugin_name: str, *, skipped: bool) -> None:
        """Keep what the plugin has just stored, and whether it opted out."""
        before = self._before
        self.entries.update({k: v for k, v in state.entries().items() if before.get(k) is not v})
        if skipped:
            self.skipped.add(plugin_name)
