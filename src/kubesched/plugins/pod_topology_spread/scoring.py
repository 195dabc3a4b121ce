"""Soft constraints: the fewer matching pods in a node's domains, the better."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from kubesched.framework.interfaces import MAX_NODE_SCORE
from kubesched.framework.traits import OwnPods, Trait, domain_trait
from kubesched.plugins.pod_topology_spread.constraints import HOSTNAME, Counted
from kubesched.snapshot.columns import ABSENT, Ints, Mask
from kubesched.snapshot.views import NodeColumns


class SoftConstraint(NamedTuple):
    """A constraint and what one matching pod weighs in it."""

    counted: Counted
    weight: float


class ScoreState(NamedTuple):
    """What PreScore found. With `has_ignored`, some feasible nodes lack a topology label and score 0."""

    constraints: tuple[SoftConstraint, ...]
    has_ignored: bool


def weigh(counted: tuple[Counted, ...], feasible: NodeColumns, *, requires_all: bool) -> ScoreState:
    """Weights grow with the number of domains among the feasible nodes."""
    ignored = ignored_nodes(counted, feasible) if requires_all else None
    if ignored is not None and not ignored.any():
        ignored = None
    among = None if ignored is None else ~ignored
    soft = []
    for each in counted:
        key = each.constraint.topology_key
        if key == HOSTNAME:
            size = feasible.number_of_nodes(among)
        else:
            # Nodes without the label, where they count at all, make one domain together.
            size = feasible.number_of_values(key, among)
        soft.append(SoftConstraint(each, natural_log(size + 2)))
    return ScoreState(tuple(soft), ignored is not None)


def ignored_nodes(counted: tuple[Counted, ...], nodes: NodeColumns) -> Mask:
    """Nodes lacking a topology label of some constraint."""
    lacking = np.zeros(len(nodes), dtype=np.bool_)
    for each in counted:
        lacking |= nodes.label_ids(each.constraint.topology_key) == ABSENT
    return lacking


def raw_scores(state: ScoreState, nodes: NodeColumns) -> Ints:
    """Weighted pods per node, rounded half away from zero. High is bad."""
    total = np.zeros(len(nodes), dtype=np.float64)
    for (constraint, counter, domains), weight in state.constraints:
        ids = nodes.label_ids(constraint.topology_key)
        if constraint.topology_key == HOSTNAME:
            # Upstream: a host's own pods count whatever the inclusion policies say about the host.
            here = counter.per_row[nodes.rows] * weight + float(constraint.max_skew - 1)
            total += np.where(ids == ABSENT, 0.0, here)
        elif len(nodes) < len(domains.counts):
            here = domains.counts.take(ids) * weight + float(constraint.max_skew - 1)
            total += np.where(ids == ABSENT, 0.0, here)
        else:
            by_value = domains.counts * weight + float(constraint.max_skew - 1)
            by_value[-1] = 0.0
            total += by_value.take(ids)
    if state.has_ignored:
        total[ignored_nodes(tuple(c.counted for c in state.constraints), nodes)] = 0.0
    return np.floor(total + 0.5).astype(np.int64)


def traits(state: ScoreState) -> list[Trait] | None:
    """Nodes are told apart by the pods that count for them."""
    found: list[Trait] = []
    for (constraint, counter, domains), _ in state.constraints:
        trait = (
            OwnPods(counter, domains.column)
            if constraint.topology_key == HOSTNAME
            else domain_trait(domains, counter)
        )
        if trait is None:
            return None
        found.append(trait)
    return found


def normalized(state: ScoreState, scores: Ints, nodes: NodeColumns) -> Ints:
    """Turn "high is bad" into 0..100; ignored nodes get 0 and have no say in the extremes."""
    counted = tuple(c.counted for c in state.constraints)
    ignored = ignored_nodes(counted, nodes) if state.has_ignored else None
    taking_part = scores if ignored is None else scores[~ignored]
    if not len(taking_part):
        return np.zeros_like(scores)
    highest, lowest = int(taking_part.max()), int(taking_part.min())
    if highest == 0:
        final = np.full_like(scores, MAX_NODE_SCORE)
    else:
        final = MAX_NODE_SCORE * (highest + lowest - scores) // highest
    if ignored is not None:
        final[ignored] = 0
    return final


_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_L1, _L2, _L3, _L4, _L5, _L6, _L7 = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)
_HALF_SQRT2 = np.sqrt(2.0) / 2.0


@lru_cache(maxsize=4096)
def natural_log(number: int) -> float:
    """ln(number) in the very steps upstream's mathematics library takes: the last bit can decide a score."""
    fraction, exponent = np.frexp(float(number))
    f1, k = float(fraction), int(exponent)
    if f1 < _HALF_SQRT2:
        f1 *= 2
        k -= 1
    f = f1 - 1
    s = f / (2 + f)
    s2 = s * s
    s4 = s2 * s2
    t1 = s2 * (_L1 + s4 * (_L3 + s4 * (_L5 + s4 * _L7)))
    t2 = s4 * (_L2 + s4 * (_L4 + s4 * _L6))
    r = t1 + t2
    half_square = 0.5 * f * f
    return k * _LN2_HIGH - ((half_square - (s * (half_square + r) + k * _LN2_LOW)) - f)
