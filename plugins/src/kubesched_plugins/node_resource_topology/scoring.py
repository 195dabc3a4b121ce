"""Scores of a node by what its NUMA zones have left."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kubesched.framework import MAX_NODE_SCORE
from kubesched_plugins.node_resource_topology.args import (
    BALANCED_ALLOCATION,
    LEAST_ALLOCATED,
    LEAST_NUMA_NODES,
    MOST_ALLOCATED,
)
from kubesched_plugins.node_resource_topology.topology import (
    POD_SCOPE,
    Amounts,
    Demand,
    Topology,
    Zone,
)

UNKNOWN_DISTANCE: Final = 255
_ONE: Final = 10**9

Weights = Mapping[str, int]
Strategy = Callable[[Amounts, Amounts, Weights], int]


def score_of(demand: Demand, topology: Topology, strategy: str, weights: Weights) -> int:
    """The score of a node for a Guaranteed pod."""
    is_pod_scope = topology.config.scope == POD_SCOPE
    wanted = (demand.pod_requests,) if is_pod_scope else demand.requests
    if strategy == LEAST_NUMA_NODES:
        return _least_numa_nodes(wanted, topology)
    if not topology.is_single_numa_node:
        return 0
    scores = [_worst_zone(_STRATEGIES[strategy], each, topology.zones, weights) for each in wanted]
    return sum(scores) // len(scores)


def _worst_zone(
    strategy: Strategy, wanted: Amounts, zones: Sequence[Zone], weights: Weights
) -> int:
    """The lowest score of the zones; 0 means that a zone does not fit and does not count."""
    worst = 0
    for zone in zones:
        score = strategy(wanted, zone.available, weights)
        if worst == 0 or (score != 0 and score < worst):
            worst = score
    return worst


def _whole(amount: int) -> int:
    """In whole units, rounded away from zero."""
    return -(-amount // _ONE) if amount >= 0 else amount // _ONE


def _weighed(wanted: Amounts, left: Amounts, weights: Weights, *, is_least: bool) -> int:
    total = weight_sum = 0
    for name, amount in wanted.items():
        weight = max(weights.get(name, 1), 1)
        weight_sum += weight
        has = left.get(name, 0)
        if has and amount <= has:
            size, part = -(-has // _ONE), -(-amount // _ONE)  # as `_whole`, of what is not negative
            total += weight * ((size - part if is_least else part) * MAX_NODE_SCORE // size)
    return total // weight_sum if weight_sum else 0


def _least_allocated(wanted: Amounts, left: Amounts, weights: Weights) -> int:
    return _weighed(wanted, left, weights, is_least=True)


def _most_allocated(wanted: Amounts, left: Amounts, weights: Weights) -> int:
    return _weighed(wanted, left, weights, is_least=False)


def _balanced_allocation(wanted: Amounts, left: Amounts, weights: Weights) -> int:
    del weights
    fractions = []
    for name, amount in wanted.items():
        size = _whole(left.get(name, 0))
        fraction = _whole(amount) / size if size else 1.0
        if fraction > 1:
            return 0
        fractions.append(fraction)
    count = len(fractions)
    if count < 2:
        return MAX_NODE_SCORE
    mean = sum(fractions) / count
    squares = compensation = 0.0
    for fraction in fractions:
        off = fraction - mean
        squares += off * off
        compensation += off
    variance = (squares - compensation * compensation / count) / (count - 1)
    return int((1 - variance) * MAX_NODE_SCORE)


_STRATEGIES: Final[Mapping[str, Strategy]] = {
    LEAST_ALLOCATED: _least_allocated,
    MOST_ALLOCATED: _most_allocated,
    BALANCED_ALLOCATION: _balanced_allocation,
}


# -- fewest zones ----------------------------------------------------------------------------------


def _least_numa_nodes(wanted: Sequence[Amounts], topology: Topology) -> int:
    """Higher, the fewer zones are needed; a little higher if no others are nearer to each other."""
    zones = [Zone(zone.id, dict(zone.available), zone.costs) for zone in topology.zones]
    most, all_near = 0, True
    for amounts in wanted:
        if not any(name in zone.available for name in amounts for zone in zones):
            continue
        found = _fewest_zones(amounts, zones)
        if found is None:
            return 0
        needed, is_near = found
        all_near = all_near and is_near
        most = max(most, len(needed))
        _take(amounts, zones, sorted(zones[at].id for at in needed))
    if most == 0:
        return MAX_NODE_SCORE
    step = MAX_NODE_SCORE // topology.config.max_numa_nodes
    return max(0, MAX_NODE_SCORE - most * step + (step // 2 if all_near else 0))


def _fewest_zones(wanted: Amounts, zones: Sequence[Zone]) -> tuple[tuple[int, ...], bool] | None:
    """Positions of the zones needed, and whether no other choice of as many is nearer."""
    for count in range(1, len(zones) + 1):
        choices = list(itertools.combinations(range(len(zones)), count))
        distances = [_distance(zones, choice) for choice in choices]
        nearest = min(UNKNOWN_DISTANCE * count * count, *distances)
        best, best_distance = None, (UNKNOWN_DISTANCE + 1) * count * count
        for choice, distance in zip(choices, distances, strict=True):
            if distance < best_distance and _suffices(wanted, [zones[at] for at in choice]):
                if distance == nearest:
                    return choice, True
                best, best_distance = choice, distance
        if best is not None:
            return best, False
    return None


def _distance(zones: Sequence[Zone], choice: tuple[int, ...]) -> int:
    """Sum over all pairs; as many zones are compared with as many, so it serves as the mean."""
    return sum(
        zones[one].costs.get(zones[other].id, UNKNOWN_DISTANCE)
        for one in choice
        for other in choice
    )


def _suffices(wanted: Amounts, zones: Sequence[Zone]) -> bool:
    return all(
        all(name in zone.available for zone in zones)
        and (not amount or sum(zone.available[name] for zone in zones) >= amount)
        for name, amount in wanted.items()
    )


def _take(wanted: Amounts, zones: Sequence[Zone], ids: Sequence[int]) -> None:
    # The original takes ids for positions, which makes a difference if zones are not in order.
    chosen = [zones[zone_id] for zone_id in ids if zone_id < len(zones)]
    for name, amount in wanted.items():
        for zone in chosen:
            left = zone.available
            if amount and name in left:
                assert isinstance(left, dict), "a copy"
                taken = min(amount, left[name])
                left[name] -= taken
                amount -= taken
