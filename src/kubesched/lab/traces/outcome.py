"""The outcome of one trace, configuration and seed: plain records with a stable JSON form."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, rename="camel", kw_only=True):
    """Base of the records: camel case in JSON, every field always present."""


class Waits(Record):
    """Seconds from a pod's first submission to its first binding, over all placed pods."""

    p50: float
    p90: float
    p99: float
    mean: float
    longest: float


class Series(Record):
    """Figures at regular times of the trace."""

    at_s: list[float]
    utilisation: dict[str, list[float]]
    """Resource -> requests of placed pods, as a share of the nodes' capacity."""
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
    """Pods that were placed, counted once regardless of evictions."""
    unplaced: int
    """Pods that were never placed."""
    evictions: int
    attempts: int
    waits: Waits
    utilisation: dict[str, float]
    """Means over the samples."""
    fragmentation: dict[str, float]
    gpu_fragmentation: float | None
    nodes_used: float
    """Nodes with a pod of the trace, averaged over time."""
    nodes_used_most: int
    series: Series
    placements: dict[str, str]
    """Pod -> the node that it got last, in the order of first bindings."""
    notes: list[str]


def encode(outcome: Outcome) -> bytes:
    return msgspec.json.encode(outcome)


def decode(data: bytes) -> Outcome:
    """Raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=Outcome)
