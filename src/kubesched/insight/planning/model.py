"""What `capacity` and `plan` answer: plain records, whose JSON form is what `-o json` prints."""

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
    """Reason, as the plugin says it -> nodes of the zone."""


class Stop(Record):
    """Why a pod fits nowhere."""

    pod: str
    verdict: Verdict
    summary: str
    message: str
    """As the scheduler would write it into the pod's condition."""
    reasons: list[Reason]
    zones: list[ZoneStop]
    preemption: Preemption | None
    """What it would evict; counting replicas evicts nothing."""


class Part(Record):
    """One workload whose replicas are counted."""

    kind: str
    name: str
    per_replica: int
    """Pods of it in one replica of the whole: several files count in proportion."""


class Capacity(Record):
    """How many more replicas fit."""

    source: str
    parts: list[Part]
    replicas: int
    pods: int
    """Pods placed; more than the whole replicas come to if the last one fits in part."""
    is_limited: bool
    """Whether counting ended at the limit that was asked for, not at the cluster's."""
    zones: dict[str, int]
    nodes: dict[str, int]
    next: Stop | None
    """What stops the next pod; None at the limit."""
    pending: int
    """Pods that were pending in the state and stay so."""
    notes: list[str]


class Placed(Record):
    """A pod that got a node."""

    pod: str
    node: str
    zone: str
    was_pending: bool
    """Whether it was pending in the state already."""


class Moved(Record):
    """A pod that left a node and came back elsewhere."""

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
    """`drain`, `delete`, `scale`, `removal` (of its node) or `preemption`."""
    replacement: str
    """The pod that comes back in its place; empty if none does."""


class Kept(Record):
    """A pod on a node to be drained that cannot be evicted."""

    pod: str
    node: str
    reason: str


class Unplaced(Record):
    """Pods alike that got no node."""

    pods: list[str]
    was_pending: bool
    stop: Stop
    """Of the first of them."""


class Amount(Record):
    """How much of a resource is requested, in the scheduler's unit: thousandths of a cpu, bytes, pieces."""

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
    """Whether every pod that the changes concern has a node, and every node to be drained is empty.
    """
    placed: list[Placed]
    """In the order in which the pods came."""
    moved: list[Moved]
    evicted: list[Evicted]
    kept: list[Kept]
    unplaced: list[Unplaced]
    nodes_added: list[str]
    nodes_removed: list[str]
    before: Utilisation
    after: Utilisation
    tightest: str
    """The resource of which the largest share is requested afterwards: what runs out next."""
    notes: list[str]
