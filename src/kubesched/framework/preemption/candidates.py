"""Candidates: nodes where evicting some pods would make room, and the choice between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

import numpy as np

from kubesched.framework.extenders import Victims
from kubesched.framework.nodes.columns import Indices, Ints
from kubesched.framework.preemption.importance import NOT_STARTED, started_us

PRIORITY_OFFSET: Final = 2**31
"""Added to every priority before summing, so that an additional victim always costs more."""

ScoreFunction = Callable[[str], int]
"""Node name -> score; the highest score wins."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node and the pods to be evicted from it."""

    node_name: str
    victims: Victims


@dataclass(frozen=True, slots=True)
class CandidateCount:
    """The number of candidates at which the dry run stops."""

    minimum_percentage: int = 10
    minimum_absolute: int = 100

    def of(self, nodes: int) -> int:
        """The limit for that many potential nodes, and at most `nodes`."""
        return min(max(nodes * self.minimum_percentage // 100, self.minimum_absolute), nodes)


def visiting_order(rows: Indices, random: Random) -> Indices:
    """The rows rotated to a random start, so preemption does not always hit the same nodes."""
    offset = random.randrange(len(rows))
    return np.roll(rows, -offset)


class Quota:
    """Decides when the dry run has enough candidates.

    # Upstream: at most `size` candidates without budget violations are kept, and `size` with. The
    # search ends with at least one of the former and `size` in total, so it goes on while every
    # candidate violates a budget.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._sparing = 0
        self._violating = 0
        self.is_filled = False

    def admit(self, violations: Ints) -> Indices:
        """Given the violations of the next candidates, the indices of those to keep."""
        size = self._size
        spares = violations == 0
        sparing = self._sparing + np.cumsum(spares)
        violating = self._violating + np.cumsum(~spares)
        kept = np.where(spares, sparing, violating) <= size
        enough = (sparing > 0) & (np.minimum(sparing, size) + np.minimum(violating, size) >= size)
        ends = np.flatnonzero(enough)
        last = int(ends[0]) if len(ends) else len(violations) - 1
        self.is_filled = bool(len(ends))
        if last >= 0:
            self._sparing, self._violating = int(sparing[last]), int(violating[last])
        return np.flatnonzero(kept[: last + 1])

    def copy(self) -> Quota:
        other = Quota(self._size)
        other._sparing, other._violating = self._sparing, self._violating
        return other


CRITERIA: Final = 5
"""In order: fewest budget violations; lowest priority of the first victim (the most important one
unless an extender changed the order); smallest sum of priorities; fewest victims; shortest running
time of the most important victims.
"""


class Shortlist(Protocol):
    """Candidates and their criteria: one entry per candidate, in order of preference."""

    @property
    def criteria(self) -> Ints:
        """A row for each of the `CRITERIA`, a column for each candidate; higher is better."""
        ...

    def __len__(self) -> int: ...

    def candidate(self, index: int) -> Candidate: ...

    def candidates(self) -> list[Candidate]: ...


class ListedCandidates:
    """A shortlist of `Candidate` objects."""

    def __init__(self, candidates: Sequence[Candidate], now_us: int) -> None:
        self._candidates = candidates
        by_candidate = [criteria_of(candidate.victims, now_us) for candidate in candidates]
        self.criteria: Ints = np.array(by_candidate, dtype=np.int64).reshape(-1, CRITERIA).T

    def __len__(self) -> int:
        return len(self._candidates)

    def candidate(self, index: int) -> Candidate:
        return self._candidates[index]

    def candidates(self) -> list[Candidate]:
        return list(self._candidates)


def best_of(shortlist: Shortlist) -> Candidate:
    """The least disruptive candidate by the `CRITERIA`, in order; the first one wins a tie."""
    left: Indices = np.arange(len(shortlist))
    for scores in shortlist.criteria:
        here = scores[left]
        left = left[here == here.max()]
        if len(left) == 1:
            break
    return shortlist.candidate(int(left[0]))


def best_by(candidates: Sequence[Candidate], scores: Sequence[ScoreFunction]) -> Candidate:
    """The best candidate by a plugin's own criteria, in order; the first one wins a tie."""
    left = list(candidates)
    for score in scores:
        points = [score(candidate.node_name) for candidate in left]
        best = max(points)
        left = [c for c, own in zip(left, points, strict=True) if own == best]
        if len(left) == 1:
            break
    return left[0]


def victims_by_node(candidates: Sequence[Candidate]) -> Mapping[str, Victims]:
    return {candidate.node_name: candidate.victims for candidate in candidates}


def criteria_of(victims: Victims, now_us: int) -> list[int]:
    """The `CRITERIA` of a node with these victims."""
    priorities = [pod.spec.priority or 0 for pod in victims.pods]
    starts = [
        started_us(pod)
        for pod, priority in zip(victims.pods, priorities, strict=True)
        if priority == max(priorities)
    ]
    return [
        -victims.pdb_violations,
        -priorities[0],
        -sum(priority + PRIORITY_OFFSET for priority in priorities),
        -len(priorities),
        min(now_us if start == NOT_STARTED else start for start in starts),
    ]
