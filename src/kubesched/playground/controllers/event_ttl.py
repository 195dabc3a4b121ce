"""Deletes events after an hour, or earlier if there are too many."""

from __future__ import annotations

from collections import deque

from kubesched.base.errors import NotFound
from kubesched.playground.apimachinery.objects import JsonObject, key_of, split_key
from kubesched.playground.client.controller import Controller, ControllerContext

SWEEP = "sweep"
SWEEP_S = 30.0
BURST = 500


class EventExpiry(Controller[str]):
    """Deletes old events, the oldest first."""

    name = "event-ttl"

    def __init__(
        self, context: ControllerContext, *, ttl_s: float = 3600.0, limit: int = 50_000
    ) -> None:
        super().__init__(context)
        self._ttl_s = ttl_s
        self._limit = limit
        self._arrivals: deque[tuple[float, str]] = deque()
        self._last_change: dict[str, float] = {}
        self.watch("events", self._event_changed)
        self.queue.add_after(SWEEP, SWEEP_S)

    def sync(self, key: str) -> float | None:
        now = self.clock.monotonic()
        for _ in range(BURST):
            if not self._arrivals:
                return SWEEP_S
            arrived, name = self._arrivals[0]
            changed = self._last_change.get(name)
            is_surplus = len(self._last_change) > self._limit
            if changed is None or changed > arrived:
                self._arrivals.popleft()  # deleted, or repeated since and queued again further back
                continue
            if not is_surplus and now - changed < self._ttl_s:
                return min(SWEEP_S, self._ttl_s - (now - changed))
            self._arrivals.popleft()
            self._last_change.pop(name, None)
            try:
                self.api.delete("events", *split_key(name))
            except NotFound:
                continue
        return 0.0

    def _event_changed(self, kind: str, event: JsonObject, old: JsonObject | None) -> None:
        key = key_of(event)
        if kind == "DELETED":
            self._last_change.pop(key, None)
            return
        now = self.clock.monotonic()
        self._last_change[key] = now
        self._arrivals.append((now, key))
        if len(self._last_change) > self._limit:
            self.queue.add(SWEEP)
