"""The smallest sets of pods whose deletion undoes given conditions on a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, islice

import numpy as np

from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.insight.explain.amounts import free_of
from kubesched.insight.explain.fixes.conditions import Condition
from kubesched.insight.explain.reasons import INSUFFICIENT, INSUFFICIENT_RESOURCE, TOO_MANY_PODS

LARGEST_SET = 3
MOST_CHECKS = 64
"""Sets with sufficient sums that are checked with the filters, per node and size."""

Check = Callable[[Sequence[PodInfo]], bool]


def may_be_deleted(pod: PodInfo) -> bool:
    """Whether the pod stays deleted: DaemonSet pods and static pods are recreated at once."""
    owner = pod.pod.metadata.controller()
    return pod.pod.metadata.deletion_timestamp is None and (
        owner is None or owner.kind not in ("DaemonSet", "Node")
    )


def smallest_deletions(
    table: NodeTable,
    row: int,
    pod: PodInfo,
    conditions: Sequence[Condition],
    check: Check,
    order: Callable[[PodInfo], tuple[float, str]],
) -> list[PodInfo] | None:
    """The smallest, least important set of pods whose deletion undoes all conditions on the node.

    `check` runs the filters; `order` is the cost of a pod. None if no set of at most `LARGEST_SET`
    pods suffices.
    """
    present = sorted(filter(may_be_deleted, table.pods[row].values()), key=order)
    resources = [
        condition.reason.removeprefix(INSUFFICIENT)
        for condition in conditions
        if condition.code == INSUFFICIENT_RESOURCE.code
    ]
    missing = [pod.requests.get(name) - free_of(table, name, row)[0] for name in resources]
    offers = [[other.requests.get(name) for name in resources] for other in present]
    if any(condition.code == TOO_MANY_PODS.code for condition in conditions):
        room = int(table.allowed_pods.array[row] - table.pod_count.array[row])
        missing.append(1 - room)
        offers = [[*offer, 1] for offer in offers]
    for size in range(1, min(LARGEST_SET, len(present)) + 1):
        sums = np.array(offers, dtype=np.int64).reshape(len(present), -1)
        for chosen in islice(_enough(sums, missing, size), MOST_CHECKS):
            candidates = [present[at] for at in chosen]
            if check(candidates):
                return candidates
    return None


def _enough(
    offers: np.ndarray[tuple[int, int], np.dtype[np.int64]], missing: Sequence[int], size: int
) -> Iterator[tuple[int, ...]]:
    """Sets of that many rows whose sums cover the shortage, in order."""
    count = len(offers)
    if not missing:
        yield from combinations(range(count), size)
        return
    needed = np.array(missing)
    largest = np.sort(offers, axis=0)[-size:].sum(axis=0)
    if (largest < needed).any():
        return  # even the largest amounts do not suffice
    for first in combinations(range(count), size - 1):
        start = first[-1] + 1 if first else 0
        left = needed - offers[list(first)].sum(axis=0)
        enough = np.flatnonzero((offers[start:] >= left).all(axis=1))
        yield from ((*first, start + int(last)) for last in enough)
