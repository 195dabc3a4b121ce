"""A shared ranking with some rows told apart, as an overlay or split into groups, against one made from scratch."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from kubesched.equivalence.overlay import Overlay
from kubesched.equivalence.ranking import SortedRanking

ROWS = 3000


class Pods:
    """A trait with a number for some rows, 0 for the others."""

    def __init__(self, by_row):
        self.by_row = by_row

    def at(self, row):
        return self.by_row.get(row, 0)


def summary(ranking, points_of):
    """Counts by points, the best rows, and whether samples belong to their groups."""
    groups = ranking.live_groups()
    points = [points_of(ranking.sample(group)) for group in groups]
    counts = {}
    for group, own in zip(groups, points, strict=True):
        counts[own] = counts.get(own, 0) + group.count
    best = ranking.best(groups, points)
    rows = [best.nth(n) for n in range(best.count)]
    assert rows == sorted(set(rows))
    some = groups[::2]
    return (
        counts,
        rows,
        [ranking.rows_of([group], ROWS).sum() for group in some] == [group.count for group in some],
    )


@pytest.mark.parametrize("kind", ["sorted", "unsorted", "split"])
@pytest.mark.parametrize("seed", range(30))
def test_rows_told_apart_by_few_pods(seed, kind):
    rng = Random(seed)
    rows = np.array(sorted(rng.sample(range(ROWS), 2000)), dtype=np.intp)
    zone = {row: rng.randrange(3) for row in rows.tolist()}
    level = {row: rng.choice([100, 101, 140]) for row in rows.tolist()}
    pods = Pods({rng.randrange(ROWS): rng.randint(1, 2) for _ in range(rng.choice([1, 5, 60]))})
    if seed % 3 == 0:  # the only rows of a zone, or of the highest level
        for row in list(pods.by_row):
            if row in zone:
                zone[row], level[row] = 3, 150
    columns = [np.array([zone[row] for row in rows.tolist()])]
    levels = np.array([level[row] for row in rows.tolist()])

    base = SortedRanking(ROWS)
    base.put_all(rows, columns, levels)
    expected = SortedRanking(ROWS)
    counted = np.array([pods.at(row) for row in rows.tolist()])
    expected.put_all(rows, [*columns, counted], levels)
    if kind == "split":
        ranking = base.split(set(pods.by_row), lambda row: (zone[row], pods.at(row)))
        ranking.check_invariants()
        base.check_invariants()
        assert set(ranking.groups) == set(expected.groups)
    else:
        ranking = (
            Overlay(base, set(pods.by_row), [pods])
            if kind == "sorted"
            else base.with_rows_apart(pods.by_row, lambda row: (pods.at(row),))
        )
        base.check_invariants()

    weight = rng.choice([0, 20, 40])

    def points_of(row):
        return zone[row] * 3 - weight * pods.at(row)

    assert summary(ranking, points_of) == summary(expected, points_of)
