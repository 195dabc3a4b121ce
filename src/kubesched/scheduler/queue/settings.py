"""Settings of the queue."""

from __future__ import annotations

from dataclasses import dataclass

from kubesched.config.references import DEFAULT_REFERENCE, Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """Settings of the queue."""

    initial_backoff_s: float = 1.0
    """First backoff after a failed attempt; doubles with every further one."""
    max_backoff_s: float = 10.0
    """Longest backoff; 0 disables it."""
    max_in_unschedulable_s: float = 300.0
    """A pod is retried after this long without a helpful event."""
    pop_from_backoff_q: bool = True
    """Feature gate SchedulerPopFromBackoffQ: pop rejected pods early if the scheduler is idle."""
    plugin_metrics_sample_percent: float = 10.0
    reference: Reference = DEFAULT_REFERENCE
    tries_resizes: bool = False
    """Bound pods with a deferred resize are queued, each for itself."""
