"""A trace: the initial cluster, and later arrivals, changes and departures.

Times are seconds from the beginning of the trace. Pods leave in one of two ways, depending on the
source: `lifetime_s` after their binding (batch work, with a fixed duration), or at `leaves_s`
whether bound or not (deleted by a user, a controller or an autoscaler).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kubesched.api.core_v1 import Pod
from kubesched.base.errors import KubeschedError
from kubesched.config.features import FeatureGates
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.insight.state.cluster_state import ClusterState


class TraceError(KubeschedError):
    """A trace cannot be read or played; with file, line and reason."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod is submitted."""

    time_s: float
    pod: Pod
    lifetime_s: float | None = None
    """How long it runs once bound; None if the trace does not end it that way."""
    leaves_s: float | None = None
    """When it is deleted, bound or not; None if the trace does not delete it."""


@dataclass(frozen=True, slots=True)
class Put:
    """An object other than an arriving pod is created or replaced."""

    time_s: float
    obj: Any


@dataclass(frozen=True, slots=True)
class Remove:
    """An object is deleted."""

    time_s: float
    obj: Any
    evicts: bool = True
    """For a node: whether its pods are removed with it. Recordings contain their deletions."""


@dataclass(frozen=True, slots=True)
class PodChange:
    """A waiting or running pod's own fields change: labels, gates, deletion in progress."""

    time_s: float
    pod: Pod
    """The new pod; its node and status belong to the replay."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The recorded scheduler popped a pod here."""

    time_s: float


@dataclass(frozen=True, slots=True)
class Flush:
    """The recorded queue flushed pods with an expired backoff or stay."""

    time_s: float


@dataclass(frozen=True, slots=True)
class CallReturned:
    """An API call about a pod returned: `bind`, or a plugin's `patch` or `delete`."""

    time_s: float
    verb: str
    pod: str
    """Its key."""


Event = Arrival | Put | Remove | PodChange | Turn | Flush | CallReturned


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSettings:
    """The settings of a recorded scheduler."""

    config: KubeSchedulerConfiguration
    gates: FeatureGates
    seed: int
    max_in_unschedulable_s: float
    placements: dict[str, str]
    """Pod UID -> the node that was last chosen for it."""
    usual_s: dict[str, float] = field(default_factory=dict)
    """Verb of a call -> the median of its durations, for calls that were not recorded."""
    monotonic_s: float = 0.0
    """The scheduler's clock at second 0. Backoffs end at its whole seconds."""
    left_out: str = ""
    """Inputs of the recorded scheduler that a model does not have, counted."""


@dataclass(slots=True, kw_only=True)
class Trace:
    """The result of a reader."""

    name: str
    """The files, for display."""
    format: str
    digest: str
    """Digest of all input: equal digests, equal traces."""
    state: ClusterState
    """Objects that exist at second 0."""
    events: Sequence[Event]
    """Sorted by time; at equal times in order of occurrence."""
    begins_at: float = 0.0
    """Unix time of second 0, if the source knows it."""
    notes: list[str] = field(default_factory=list)
    shares_gpus: bool = False
    """Whether pods request parts of a GPU, so that devices must be distinguished."""
    schedules_from_s: float = 0.0
    """Of recordings: when the scheduler began to take pods."""
    resubmits: bool = True
    """Whether evicted pods return, with their whole lifetime; recordings contain that already."""
    own: OwnSettings | None = None
    """Of recordings: their settings."""

    @property
    def ends_s(self) -> float:
        """Time of the last event in the trace itself."""
        return max((_last_of(event) for event in self.events), default=0.0)

    @property
    def arrivals(self) -> list[Arrival]:
        return [event for event in self.events if isinstance(event, Arrival)]


def _last_of(event: Event) -> float:
    if isinstance(event, Arrival):
        return max(event.time_s + (event.lifetime_s or 0.0), event.leaves_s or 0.0)
    return event.time_s
