"""The clock by which heartbeats are judged.

The kubelets of simulated nodes run in the process that judges them. On a loaded host they fall behind with their
heartbeats, which says nothing about the nodes. This clock is late by as much as they are: a node is silent only if its
kubelet had its turn and did not use it.
"""

from __future__ import annotations

from collections.abc import Callable

from kubesched.clock import Clock

LEASE_NAMESPACE = "kube-node-lease"


class HeartbeatClock:
    """Monotonic time, less the lag of this process's own kubelets."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lag_s: Callable[[], float] = float

    def follow(self, lag_s: Callable[[], float]) -> None:
        """Be late by what `lag_s` says: how long the oldest heartbeat has been due."""
        self._lag_s = lag_s

    def monotonic(self) -> float:
        return self._clock.monotonic() - self._lag_s()
