"""Soft constraints: nodes score higher the fewer matching pods their domains have."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kubesched.framework.interfaces import MAX_NODE_SCORE
from kubesched.framework.nodes.columns import ABSENT, Levels, Mask, extremes
from kubesched.framework.nodes.views import NodeColumns
from kubesched.plugins.pod_topology_spread.constraints import HOSTNAME, Counted

Floats = npt.NDArray[np.float64]

_SMALL: Final = 2**23
"""Raw scores up to this, times twice the highest final score, fit in 32 bits."""
_NOTHING: Final = 0.0
_MANY: Final = 8192
"""With more nodes than this, each pass over them counts."""


class SoftConstraint(NamedTuple):
    """A constraint and the weight of one matching pod."""

    counted: Counted
    weight: float


class ScoreState(NamedTuple):
    """The PreScore state; with `has_ignored`, nodes that lack a topology label score 0."""

    constraints: tuple[SoftConstraint, ...]
    has_ignored: bool


ALL_IGNORED = ScoreState((), has_ignored=True)
"""No node has all the labels: none takes part in scoring, regardless of pods."""


def weigh(counted: tuple[Counted, ...], feasible: NodeColumns, *, requires_all: bool) -> ScoreState:
    """Weights grow with the number of domains among the feasible nodes."""
    ignored: Mask | None = None
    if requires_all and any(feasible.may_lack(c.constraint.topology_key) for c in counted):
        ignored = ignored_nodes(counted, feasible)
        if not ignored.any():
            ignored = None
    among = None if ignored is None else ~ignored
    soft = []
    for constraint_counts in counted:
        key = constraint_counts.constraint.topology_key
        if key == HOSTNAME:
            size = len(feasible) if among is None else int(np.count_nonzero(among))
        else:
            # Nodes without the label, if they count at all, form one domain.
            size = feasible.number_of_values(key, among)
        soft.append(SoftConstraint(constraint_counts, natural_log(size + 2)))
    return ScoreState(tuple(soft), ignored is not None)


def ignored_nodes(counted: tuple[Counted, ...], nodes: NodeColumns) -> Mask:
    """Nodes that lack a topology label of some constraint."""
    lacking = np.zeros(len(nodes), dtype=np.bool_)
    for constraint_counts in counted:
        lacking |= nodes.label_ids(constraint_counts.constraint.topology_key) == ABSENT
    return lacking


def raw_scores(state: ScoreState, nodes: NodeColumns) -> Levels:
    """Weighted pods per node, rounded half away from zero. Lower is better."""
    if state is ALL_IGNORED:
        return np.zeros(len(nodes), dtype=np.int32)
    hosts = [c for c, _ in state.constraints if c.constraint.topology_key == HOSTNAME]
    if nodes.is_bare or not hosts or len(nodes) <= _MANY:
        return _scores(state, nodes, has_pods=not nodes.is_bare)
    # In a large cluster most nodes have no such pod.
    at = (nodes.part_of(hosts[0].counter.per_row) != 0).nonzero()[0]
    if len(hosts) > 1 or 8 * len(at) > len(nodes):
        return _scores(state, nodes)
    scores = _scores(state, nodes, has_pods=False)
    scores[at] = _scores(state, nodes.among(at))
    return scores


def _scores(state: ScoreState, nodes: NodeColumns, *, has_pods: bool = True) -> Levels:
    """Raw scores; without `has_pods`, as if the nodes had no pods that count by host."""
    largest = sum(
        c.constraint.max_skew + c.counter.total * weight for c, weight in state.constraints
    )
    kind = np.int32 if largest < _SMALL else np.int64
    total: Floats | float = _NOTHING
    for number, ((constraint, counter, domains), weight) in enumerate(state.constraints, 1):
        key, allowed = constraint.topology_key, float(constraint.max_skew - 1)
        if key == HOSTNAME and not has_pods and not nodes.may_lack(key):
            total += allowed
            continue
        if key == HOSTNAME:
            # Upstream: a host's own pods count whatever the inclusion policies say about the host.
            pods = nodes.part_of(counter.per_row) if has_pods else np.zeros(len(nodes))
        elif len(nodes) < len(domains.counts):
            pods = domains.counts.take(nodes.label_ids(key))
        else:
            table: Floats = np.multiply(domains.counts, weight, dtype=np.float64)
            table += allowed
            table[-1] = 0.0
            is_last = number == len(state.constraints)
            if is_last and isinstance(total, float) and not state.has_ignored:
                return _rounded(total + table, kind).take(nodes.label_ids(key))
            total = _plus(total, table.take(nodes.label_ids(key)))
            continue
        here: Floats = np.multiply(pods, weight, dtype=np.float64)
        here += allowed
        if nodes.may_lack(key):
            here[nodes.label_ids(key) == ABSENT] = 0.0
        total = _plus(total, here)
    if isinstance(total, float):
        total = np.full(len(nodes), total)
    if state.has_ignored:
        total[ignored_nodes(tuple(c.counted for c in state.constraints), nodes)] = 0.0
    return _rounded(total, kind)


def _rounded(total: Floats, kind: type[np.int32 | np.int64]) -> Levels:
    total += 0.5
    return total.astype(kind)  # never negative, so truncation rounds down


def _plus(total: Floats | float, more: Floats) -> Floats:
    if total is not _NOTHING:
        more += total
    return more


def normalized(state: ScoreState, scores: Levels, nodes: NodeColumns) -> Levels:
    """Inverts raw scores to 0..100; ignored nodes get 0 and do not affect the extremes."""
    if state is ALL_IGNORED:
        return np.zeros_like(scores)
    counted = tuple(c.counted for c in state.constraints)
    ignored = ignored_nodes(counted, nodes) if state.has_ignored else None
    taking_part = scores if ignored is None else scores[~ignored]
    if not len(taking_part):
        return np.zeros(len(scores), dtype=np.int16)
    lowest, highest = extremes(taking_part)
    if highest in (0, lowest):
        final: Levels = np.full(len(scores), MAX_NODE_SCORE, dtype=np.int16)
    else:
        inverted = highest + lowest - scores
        inverted *= MAX_NODE_SCORE
        inverted //= highest
        final = inverted.astype(np.int16)
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
    """ln(number) computed like Go's math.Log: the last bit can decide a score."""
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
