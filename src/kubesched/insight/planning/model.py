"""Results of `capacity` and `plan`: plain records whose JSON form is printed by `-o json`."""

from __future__ import annotations

import msgspec

from kubesched.insight.explain.model import Preemption, Reason, Verdict


class Record(msgspec.Struct, rename="camel"):
    """Base of the records: camel case in JSON, every field always present."""


class ZoneStop(Record):
    """What stops a pod in one zone."""

    zone: str
    """Empty for nodes without a zone label."""
    nodes: int
    reasons: dict[str, int]
    """The plugin's reason -> nodes of the zone."""


class Stop(Record):
    """Why a pod fits nowhere."""

    pod: str
    verdict: Verdict
    summary: str
    message: str
    """The message that the scheduler would write into the pod's condition."""
    reasons: list[Reason] = []
    zones: list[ZoneStop] = []
    preemption: Preemption | None = None
    """What preemption would evict; counting replicas evicts nothing."""


class Part(Record):
    """One workload whose replicas are counted."""

    kind: str
    name: str
    per_replica: int
    """Its pods per replica of the whole; several files count in proportion."""


class Capacity(Record):
    """How many more replicas fit."""

    source: str
    parts: list[Part]
    replicas: int
    """Or gangs."""
    gang: int
    """Pods of a gang, which start together; 0 if the pods have no group."""
    pods: int
    """Pods placed, including those of an incomplete last replica."""
    is_limited: bool
    """Whether counting ended at the requested limit, not at the cluster's."""
    zones: dict[str, int]
    nodes: dict[str, int]
    next: Stop | None
    """What stops the next pod; None at the limit."""
    pending: int
    """Pods that were pending in the state and still are."""
    notes: list[str]


class Placed(Record):
    """A pod that got a node."""

    pod: str
    node: str
    zone: str
    was_pending: bool
    """Whether it was already pending in the state."""


class Moved(Record):
    """A pod that left a node and was placed on another."""

    pod: str
    from_node: str
    replacement: str
    to_node: str
    zone: str


class Evicted(Record):
    """A pod that left its node."""

    pod: str
    node: str
    by: str
    """`drain`, `delete`, `scale`, `rollout`, `removal` (of its node) or `preemption`."""
    replacement: str
    """The pod that replaces it; empty if none does."""


class Kept(Record):
    """A pod that cannot be evicted from a node to be drained."""

    pod: str
    node: str
    reason: str


class Unplaced(Record):
    """Similar pods that got no node."""

    pods: list[str]
    was_pending: bool
    stop: Stop
    """The stop of the first pod."""


class Amount(Record):
    """Requested amount of a resource in the scheduler's unit: thousandths of a cpu, bytes, or 1."""

    requested: int
    allocatable: int


class Utilisation(Record):
    """Requests of the pods on nodes that are not cordoned."""

    nodes: int
    resources: dict[str, Amount]
    zones: dict[str, dict[str, Amount]]


class Plan(Record):
    """What would happen."""

    source: str
    is_complete: bool
    """Whether every affected pod has a node, and every node to be drained is empty."""
    placed: list[Placed]
    """In order of arrival."""
    moved: list[Moved]
    evicted: list[Evicted]
    kept: list[Kept]
    unplaced: list[Unplaced]
    nodes_added: list[str]
    nodes_removed: list[str]
    before: Utilisation
    after: Utilisation
    tightest: str
    """The resource with the largest requested share afterwards, which runs out next."""
    notes: list[str]
