"""What `capacity` and `plan` answer: plain records, whose JSON form is what `-o json` prints."""

from __future__ import annotations

import msgspec

from kubesched.explain.model import Preemption, Reason, Verdict


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


def to_json(record: Record) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record), indent=2)
