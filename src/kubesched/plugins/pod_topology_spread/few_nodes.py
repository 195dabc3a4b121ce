"""The same answers for a few nodes, one by one: nodes that stand for all nodes of their kind.

For three zones a dozen array operations cost more than the handful of look-ups there is to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kubesched.framework.interfaces import MAX_NODE_SCORE
from kubesched.plugins.pod_topology_spread.constraints import HOSTNAME, Counted
from kubesched.plugins.pod_topology_spread.filtering import FilterState
from kubesched.plugins.pod_topology_spread.scoring import natural_log


def judge_of(found: FilterState) -> Callable[[int], bool]:
    """Does a row pass, as the counters stand when asked? For a state without changes in thought."""
    rules = [
        (
            each.counted.domains,
            each.counted.constraint.max_skew - each.self_match,
            each.counted.constraint.min_domains,
        )
        for each in found.constraints
    ]

    def passes(row: int) -> bool:
        for domains, room, min_domains in rules:
            pods = domains.count_in_domain_of(row)
            if pods < 0:
                return False  # it lacks the label
            smallest = domains.smallest if domains.domain_count >= min_domains else 0
            if pods > room + smallest:
                return False
        return True

    return passes


def final_scores(
    counted: Sequence[Counted], rows: Sequence[int], counts: Sequence[int], *, requires_all: bool
) -> list[int]:
    """What `scoring` makes of these rows and the number of nodes each stands for, step by step the same."""
    domain_ids = [[int(each.domains.column.ids[row]) for row in rows] for each in counted]
    places = range(len(rows))
    taking_part = [
        at for at in places if not requires_all or all([ids[at] >= 0 for ids in domain_ids])
    ]
    if not taking_part:
        return [0] * len(rows)
    totals = [0.0] * len(rows)
    for each, ids in zip(counted, domain_ids, strict=True):
        weight = natural_log(_size(each, ids, counts, taking_part) + 2)
        extra = float(each.constraint.max_skew - 1)
        if each.constraint.topology_key == HOSTNAME:
            cells = each.counter.cells
            for at in taking_part:
                totals[at] += cells[rows[at]] * weight + extra if ids[at] >= 0 else 0.0
        else:
            pods = each.domains.counts
            for at in taking_part:
                totals[at] += int(pods[ids[at]]) * weight + extra if ids[at] >= 0 else 0.0
    raw = {at: math.floor(totals[at] + 0.5) for at in taking_part}
    highest, lowest = max(raw.values()), min(raw.values())
    final = [0] * len(rows)
    for at, score in raw.items():
        final[at] = (
            MAX_NODE_SCORE * (highest + lowest - score) // highest if highest else MAX_NODE_SCORE
        )
    return final


def _size(
    each: Counted, ids: Sequence[int], counts: Sequence[int], taking_part: Sequence[int]
) -> int:
    """How many nodes there are for the hostname, how many values otherwise; lacking the label is a value too."""
    if each.constraint.topology_key == HOSTNAME:
        return sum([counts[at] for at in taking_part])
    if each.domains.column.shared:
        return len({ids[at] for at in taking_part})
    with_label = sum([counts[at] for at in taking_part if ids[at] >= 0])
    return with_label + any([ids[at] < 0 for at in taking_part])
