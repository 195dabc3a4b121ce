"""Trying members in many placements at once, where levels alone decide (`classes.row_columns`).

The level of a node depends on that node and its pods. So a copy of each member can be counted on
the best node of every rack at the same time; the next member then finds other levels there.

    rack            a                 b
    1st member    151  151  150     151   90     a copy on node 0 of a, one on node 0 of b
    2nd member    148  151  150     148   90     on node 1 of a, on node 0 of b
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.groups.tree import Placement
from kubesched.framework.nodes.columns import Indices
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.runtime import Framework
from kubesched.scheduler.algorithm import ScheduleResult, SchedulingAlgorithm


def place_side_by_side(
    framework: Framework,
    algorithm: SchedulingAlgorithm,
    members: Sequence[tuple[PodInfo, CycleState]],
    placements: Sequence[Placement],
) -> dict[int, list[ScheduleResult]]:
    """The nodes of the members, whose states must be new, by the index of the placement.

    Placements in which a member has no two feasible nodes are left out: a single one is not scored,
    and without any there are reasons to be found. Copies are in the sums of rows only. Plugins of
    others might look for more. Ours that do skip the members (`algorithm.levels`), which then have
    neither affinity, constraints nor claims, so that Reserve has nothing to do for them either.
    """
    sizes = np.array([len(placement.rows) for placement in placements])
    rows = np.concatenate([np.sort(placement.rows) for placement in placements])  # as for ties
    if (
        algorithm.parallelism == 1  # the order of the nodes matters, as it does for samples
        or any(algorithm.nodes_to_find(framework, size) < size for size in set(sizes.tolist()))
        or not framework.ignores_names  # plugins of others
        or not set(framework.reserve) <= set(framework.deciding_plugins)
        or any(pod.host_ports for pod, _ in members)
        or not sizes.all()
        or np.bincount(rows).max() > 1  # a node is in two placements
    ):
        return {}
    table, names, draw = algorithm.table, algorithm.table.names, algorithm.random.randrange
    begins, is_left = sizes.cumsum() - sizes, np.ones(len(sizes), dtype=np.bool_)
    steps: list[tuple[list[int], list[int]]] = []
    copies: list[tuple[PodInfo, Indices]] = []
    try:
        for pod, state in members:
            started = framework.now()
            by_row = algorithm.levels(framework, state, pod)
            if by_row is None:
                return {}
            levels = by_row[rows]
            feasible = np.add.reduceat(levels > 0, begins, dtype=np.intp)
            is_left &= feasible > 1
            is_best = levels == np.maximum.reduceat(levels, begins).repeat(sizes)
            ties = np.add.reduceat(is_best, begins, dtype=np.intp)
            drawn = [draw(count) if count > 1 else 0 for count in (ties * is_left).tolist()]
            chosen = rows[is_best.nonzero()[0][ties.cumsum() - ties + drawn]]
            steps.append((chosen.tolist(), feasible.tolist()))
            copies.append((pod, chosen[is_left]))
            table.count_copies(*copies[-1], 1)
            framework.algorithm_done(started)
    finally:
        for pod, counted in copies:
            table.count_copies(pod, counted, -1)
    return {
        at: [ScheduleResult(names[row[at]], count[at], int(sizes[at])) for row, count in steps]
        for at in is_left.nonzero()[0].tolist()
    }
