"""Selects the nodes to show: all, one, or the most informative ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kubesched.framework.nodes.columns import Indices
from kubesched.insight.explain.evaluation import Evaluation
from kubesched.insight.explain.judging import rejected_rows

Selection = Callable[[Evaluation], Indices]
"""Maps the matrix to the rows to show, in display order."""


def every_node(evaluation: Evaluation) -> Indices:
    """Feasible nodes by total, then the others by the number of reasons against them."""
    return np.concatenate((by_total(evaluation), nearest(evaluation)))


def in_node_order(evaluation: Evaluation) -> Indices:
    return evaluation.rows


def no_node(evaluation: Evaluation) -> Indices:
    return evaluation.rows[:0]


def one_node(name: str) -> Selection:
    def select(evaluation: Evaluation) -> Indices:
        row = evaluation.table.row_of.get(name)
        return np.array([] if row is None else [row], dtype=np.intp)

    return select


def telling_nodes(limit: int) -> Selection:
    """The best nodes, the nearest to fitting, and one for every distinct set of reasons."""

    def select(evaluation: Evaluation) -> Indices:
        best = by_total(evaluation)
        others = nearest(evaluation)
        distinct = first_of_each_set(evaluation, others)
        share = limit if not len(others) else max(limit // 2, limit - len(others))
        ordered = np.concatenate((best[:share], others[:3], distinct))
        _, first = np.unique(ordered, return_index=True)
        chosen = ordered[np.sort(first)][:limit]
        # Same order as in `every_node`.
        return np.concatenate((best[np.isin(best, chosen)], others[np.isin(others, chosen)]))

    return select


def by_total(evaluation: Evaluation) -> Indices:
    """Feasible rows, the highest total first, then in node order."""
    if evaluation.totals is None:
        return evaluation.feasible
    return evaluation.feasible[np.argsort(-evaluation.totals, kind="stable")]


def nearest(evaluation: Evaluation) -> Indices:
    """Rejected rows: the fewest reasons first, then the smallest shortage, then in node order."""
    rejected = rejected_rows(evaluation)
    rows = evaluation.rows[rejected[evaluation.rows]]
    if not len(rows):
        return rows
    counts = evaluation.failure_counts[rows]
    return rows[np.lexsort((_shortage(evaluation, rows), counts))]


def _shortage(
    evaluation: Evaluation, rows: Indices
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The shortage of the requested resources, as the sum of the missing shares."""
    table, requests = evaluation.table, evaluation.pod.requests
    missing = np.zeros(len(rows), dtype=np.float64)
    for resource, column in table.resource_index.items():
        wanted = requests.get(resource)
        if wanted:
            free = table.allocatable[column].array[rows] - table.requested[column].array[rows]
            missing += np.clip(wanted - free, 0, wanted) / wanted
    return missing


def first_of_each_set(evaluation: Evaluation, rows: Indices) -> Indices:
    """The first of the given rows for every distinct combination of rejections."""
    if not len(rows):
        return rows
    columns = [rejections.ids[rows] for rejections in evaluation.rejections]
    _, first = np.unique(np.stack(columns), axis=1, return_index=True)
    return rows[np.sort(first)]
