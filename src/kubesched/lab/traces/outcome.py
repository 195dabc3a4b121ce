"""What one trace came to under one configuration and seed: plain records with a stable JSON form."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, rename="camel", kw_only=True):
    """Base of the records: camel case in JSON, every field always present."""


class Waits(Record):
    """Seconds from a pod's first submission to its first binding, over the pods that were placed."""

    p50: float
    p90: float
    p99: float
    mean: float
    longest: float


class Series(Record):
    """Figures at regular moments of the trace."""

    at_s: list[float]
    utilisation: dict[str, list[float]]
    """Resource -> requested by placed pods, as a share of what the nodes have."""
    fragmentation: dict[str, list[float]]
    """Resource -> the plain measure."""
    gpu_fragmentation: list[float]
    """The published measure; empty without shared GPUs."""
    pending: list[int]
    nodes_used: list[int]


class Outcome(Record):
    """The figures of one cell."""

    config: str
    seed: int
    submitted: int
    placed: int
    """Pods that got a node, counted once however often they were evicted."""
    unplaced: int
    """Pods that never got one."""
    evictions: int
    attempts: int
    waits: Waits
    utilisation: dict[str, float]
    """Means over the samples."""
    fragmentation: dict[str, float]
    gpu_fragmentation: float | None
    nodes_used: float
    """Nodes with a pod of the trace, the mean over time."""
    nodes_used_most: int
    cost: float | None
    """Hours in use × price, over the nodes; None without prices."""
    wait_quantiles: list[float]
    """Seconds at 0, 1, … 100 %."""
    series: Series
    placements: str
    """A digest of which pod went where, in order of binding: equal digests, equal placements."""
    notes: list[str]


def encode(outcome: Outcome) -> bytes:
    return msgspec.json.encode(outcome)


def decode(data: bytes) -> Outcome:
    """Raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=Outcome)
