"""A trace: the cluster at its beginning, and what arrives, changes and leaves afterwards.

Times are seconds from the beginning of the trace. Pods leave in one of two ways, and a reader
chooses the one its source knows: `lifetime_s` after they were bound (batch work, which takes its
time wherever and whenever it runs), or at `leaves_s` whether bound or not (a user, a controller or
an autoscaler deleted them then).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kubesched.api.core_v1 import Pod
from kubesched.base.errors import KubeschedError
from kubesched.config.features import FeatureGates
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.insight.recording.reader import Run
from kubesched.insight.state.cluster_state import ClusterState


class TraceError(KubeschedError):
    """A trace cannot be read or played: file, line, and why."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod is submitted."""

    time_s: float
    pod: Pod
    lifetime_s: float | None = None
    """How long it runs once bound; None if the trace does not end it that way."""
    leaves_s: float | None = None
    """When it is deleted, bound or not; None if the trace does not."""


@dataclass(frozen=True, slots=True)
class Put:
    """An object other than an arriving pod is created, or replaced."""

    time_s: float
    obj: Any


@dataclass(frozen=True, slots=True)
class Remove:
    """An object is deleted."""

    time_s: float
    obj: Any
    evicts: bool = True
    """Of a node: whether its pods go with it. A recording has their deletion as well."""


@dataclass(frozen=True, slots=True)
class PodChange:
    """A waiting or running pod's own fields change: labels, gates, deletion in progress."""

    time_s: float
    pod: Pod
    """As it is afterwards; where it runs and its status are the replay's own."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The recorded scheduler took a pod off its queue here."""

    time_s: float


@dataclass(frozen=True, slots=True)
class Flush:
    """The recorded queue looked for pods whose backoff or stay was over."""

    time_s: float


@dataclass(frozen=True, slots=True)
class CallReturned:
    """A call of a plugin to the API server returned: `patch` or `delete` of a pod."""

    time_s: float
    verb: str
    pod: str
    """Its key."""


Event = Arrival | Put | Remove | PodChange | Turn | Flush | CallReturned


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSettings:
    """What a recorded scheduler ran with."""

    config: KubeSchedulerConfiguration
    gates: FeatureGates
    seed: int
    max_in_unschedulable_s: float
    placements: dict[str, str]
    """Pod's uid -> the node that was chosen for it last."""
    monotonic_s: float = 0.0
    """What the scheduler's clock showed at second 0. Backoffs end at its whole seconds."""
    run: Run
    """The recording itself, in memory: under these settings it is played record by record."""
    left_out: str = ""
    """Inputs of the recorded scheduler that a model of other settings does not have, counted."""


@dataclass(slots=True, kw_only=True)
class Trace:
    """What a reader returns."""

    name: str
    """The files, for people."""
    format: str
    digest: str
    """Of everything that was read: equal digests, equal traces."""
    state: ClusterState
    """Objects that exist at second 0."""
    events: Sequence[Event]
    """By time; among equal times in the order in which they happen."""
    begins_at: float = 0.0
    """Unix time of second 0, where the source knows it."""
    notes: list[str] = field(default_factory=list)
    shares_gpus: bool = False
    """Whether pods ask for parts of a GPU, so that devices must be told apart."""
    schedules_from_s: float = 0.0
    """Of recordings: when the scheduler began to take pods."""
    resubmits: bool = True
    """Whether evicted pods come back, with their whole lifetime. A recording has what controllers
    did by itself.
    """
    own: OwnSettings | None = None
    """Of recordings: what they were made with."""

    @property
    def ends_s(self) -> float:
        """When the last thing that the trace itself knows happens."""
        return max((_last_of(event) for event in self.events), default=0.0)

    @property
    def arrivals(self) -> list[Arrival]:
        return [event for event in self.events if isinstance(event, Arrival)]


def _last_of(event: Event) -> float:
    if isinstance(event, Arrival):
        return max(event.time_s + (event.lifetime_s or 0.0), event.leaves_s or 0.0)
    return event.time_s
