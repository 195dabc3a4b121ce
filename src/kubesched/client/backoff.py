"""Growing, jittered pauses between attempts: for retries (`rest`) and reconnects (`reflector`)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Pauses that grow by `factor` from `initial_s` to `max_s`, plus up to `jitter` times each."""

    initial_s: float
    max_s: float
    random: random.Random = field(repr=False)
    factor: float = 2.0
    jitter: float = 1.0
    _next_s: float = field(default=0.0, init=False)

    def next_s(self) -> float:
        """The pause before the next attempt, in seconds."""
        base = self._next_s or self.initial_s
        self._next_s = min(base * self.factor, self.max_s)
        return min(base, self.max_s) * (1.0 + self.random.random() * self.jitter)

    def reset(self) -> None:
        """Restart at the first pause, after a success."""
        self._next_s = 0.0
