"""Candidates: nodes on which evicting some pods would make room, and the choice between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.framework.extenders import Victims
from kubesched.preemption.importance import NOT_STARTED, started_us
from kubesched.snapshot.columns import Indices, Ints

PRIORITY_OFFSET: Final = 2**31
"""Added to every priority before summing, so that an additional victim always costs more."""

ScoreFunction = Callable[[str], int]
"""Node name -> score; the node with the highest is preferred."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node and the pods to be evicted from it."""

    node_name: str
    victims: Victims


@dataclass(frozen=True, slots=True)
class CandidateCount:
    """How many candidates are enough."""

    minimum_percentage: int = 10
    minimum_absolute: int = 100

    def of(self, nodes: int) -> int:
        """For that many potential nodes; never more than there are."""
        return min(max(nodes * self.minimum_percentage // 100, self.minimum_absolute), nodes)


def visiting_order(rows: Indices, random: Random) -> Indices:
    """The rows rotated to a random start, so that preemption does not always hit the same nodes."""
    offset = random.randrange(len(rows))
    return np.roll(rows, -offset)


class Quota:
    """Decides when the dry run has enough candidates.

    # Upstream: at most `size` candidates without budget violations are kept, and `size` with. The search ends with at
    # least one of the former and `size` in total, so it goes on while every candidate violates a budget.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._sparing = 0
        self._violating = 0
        self.is_filled = False

    def admit(self, violations: Ints) -> Indices:
        """Given the violations of the next candidates, the indices of those that are kept."""
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


class Shortlist(Protocol):
    """Candidates and the values the choice depends on: one entry per candidate, in order of preference."""

    @property
    def pdb_violations(self) -> Ints: ...

    @property
    def highest_priority(self) -> Ints:
        """Priority of the first victim: the most important one, unless an extender changed the order."""
        ...

    @property
    def priority_sum(self) -> Ints: ...

    @property
    def victim_count(self) -> Ints: ...

    @property
    def earliest_start(self) -> Ints:
        """Of the victims with the highest priority."""
        ...

    def __len__(self) -> int: ...

    def candidate(self, index: int) -> Candidate: ...


class ListedCandidates:
    """A shortlist of `Candidate` objects."""

    def __init__(self, candidates: Sequence[Candidate], now_us: int) -> None:
        self._candidates = candidates
        victims = [candidate.victims for candidate in candidates]
        self.pdb_violations = _ints([listed.pdb_violations for listed in victims])
        self.highest_priority = _ints([_priority(listed.pods[0]) for listed in victims])
        self.priority_sum = _ints(
            [sum(_priority(pod) + PRIORITY_OFFSET for pod in listed.pods) for listed in victims]
        )
        self.victim_count = _ints([len(listed.pods) for listed in victims])
        self.earliest_start = _ints([_earliest_start(listed.pods, now_us) for listed in victims])

    def __len__(self) -> int:
        return len(self._candidates)

    def candidate(self, index: int) -> Candidate:
        return self._candidates[index]


class Part(NamedTuple):
    """Some candidates of a shortlist, with their positions in the visiting order."""

    source: Shortlist
    chosen: Indices
    places: Indices


class JoinedCandidates:
    """A shortlist made of parts of others, in visiting order, candidates without budget violations first.

    Only the chosen candidate is built as an object.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        violations = self._column(lambda source: source.pdb_violations)
        places = _joined([part.places for part in parts])
        order = np.lexsort((places, violations > 0))
        sizes = [len(part.chosen) for part in parts]
        self._part: Indices = np.repeat(np.arange(len(parts)), sizes)[order]
        self._index: Indices = _joined([part.chosen for part in parts])[order]
        self.pdb_violations = violations[order]
        self.highest_priority = self._column(lambda source: source.highest_priority)[order]
        self.priority_sum = self._column(lambda source: source.priority_sum)[order]
        self.victim_count = self._column(lambda source: source.victim_count)[order]
        self.earliest_start = self._column(lambda source: source.earliest_start)[order]

    def _column(self, of: Callable[[Shortlist], Ints]) -> Ints:
        return _joined([of(part.source)[part.chosen] for part in self._parts])

    def __len__(self) -> int:
        return len(self._index)

    def candidate(self, index: int) -> Candidate:
        source = self._parts[int(self._part[index])].source
        return source.candidate(int(self._index[index]))


def candidates_of(shortlist: Shortlist) -> list[Candidate]:
    return [shortlist.candidate(index) for index in range(len(shortlist))]


def best_of(shortlist: Shortlist) -> Candidate:
    """The least disruptive candidate.

    Criteria in order: fewest budget violations; lowest priority of the most important victim; smallest sum of
    priorities; fewest victims; the most important victims running for the shortest time. The first one wins a tie.
    """
    left: Indices = np.arange(len(shortlist))
    for scores in (
        -shortlist.pdb_violations,
        -shortlist.highest_priority,
        -shortlist.priority_sum,
        -shortlist.victim_count,
        shortlist.earliest_start,
    ):
        here = scores[left]
        left = left[here == here.max()]
        if len(left) == 1:
            break
    return shortlist.candidate(int(left[0]))


def best_by(candidates: Sequence[Candidate], scores: Sequence[ScoreFunction]) -> Candidate:
    """The best candidate by a plugin's own criteria, in their order; the first one wins a tie."""
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


def _earliest_start(pods: Sequence[Pod], now_us: int) -> int:
    highest = max(_priority(pod) for pod in pods)
    starts = [started_us(pod) for pod in pods if _priority(pod) == highest]
    return min(now_us if start == NOT_STARTED else start for start in starts)


def _priority(pod: Pod) -> int:
    return pod.spec.priority or 0


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _joined(parts: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
