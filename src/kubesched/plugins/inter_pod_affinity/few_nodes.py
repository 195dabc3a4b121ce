"""The same answers for a few nodes, one by one: nodes that stand for all nodes of their kind.

For three zones a dozen array operations cost more than the handful of look-ups there is to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubesched.framework.interfaces import MAX_NODE_SCORE
from kubesched.plugins.inter_pod_affinity.filtering import FilterState
from kubesched.plugins.inter_pod_affinity.scoring import ScoreState


def judge_of(found: FilterState) -> Callable[[int], bool]:
    """Does a row pass, as the counters stand when asked? For a state without changes in thought."""
    required = [each.domains for each in found.affinity]
    forbidden = [each.domains for each in found.anti]
    forbidden += [each.domains for each in found.existing]

    def passes(row: int) -> bool:
        for domains in forbidden:
            if domains.count_in_domain_of(row) > 0:
                return False
        lacks_pod = False
        for domains in required:
            pods = domains.count_in_domain_of(row)
            if pods < 0:
                return False  # it lacks the label
            lacks_pod = lacks_pod or not pods
        return not lacks_pod or found.is_first_of_its_kind()

    return passes


def final_scores(found: ScoreState, rows: Sequence[int]) -> list[int]:
    """From lowest = 0 to highest = 100, with upstream's rounding (see `scoring.normalized`)."""
    contributions = found.contributions
    scores = [
        sum(
            [
                max(domains.count_in_domain_of(row), 0) * weight
                for domains, weight, _ in contributions
            ]
        )
        for row in rows
    ]
    lowest, highest = min(scores), max(scores)
    if lowest == highest:
        return [0] * len(scores)
    span = float(highest - lowest)
    return [int((score - lowest) / span * float(MAX_NODE_SCORE)) for score in scores]
