"""Sets of rows are made when they are read, and are then as if they had always been there."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from kubesched.equivalence.ranking import SortedRanking

ROWS = 3_000


def ranking_of(rng, levels):
    ranking = SortedRanking(ROWS)
    rows = np.array(sorted(rng.sample(range(ROWS), 2_000)), dtype=np.intp)
    zones = np.array([rng.randrange(2) for _ in rows], dtype=np.int64)
    level = np.array([rng.randrange(levels) for _ in rows], dtype=np.int64)
    ranking.put_all(rows, [zones], level)
    return ranking, rows


def test_the_choice_of_the_best_makes_the_sets_it_needs():
    ranking, _ = ranking_of(Random(1), 50)
    groups = ranking.live_groups()
    assert not any([len(group.sets) for group in groups])
    ties = ranking.best(groups, [0, 0])
    assert [len(group.sets) for group in groups] == [1, 1]
    best = np.flatnonzero((ranking.level == 49) & (ranking.group_of >= 0)).tolist()
    assert [ties.nth(n) for n in range(ties.count)] == best


@pytest.mark.parametrize("seed", range(10))
def test_rows_move_between_sets_whether_these_were_read_or_not(seed):
    rng = Random(seed)
    ranking, rows = ranking_of(rng, 12)
    for _ in range(200):
        row = int(rng.choice(rows))
        match rng.randrange(3):
            case 0:
                ranking.put(row, (rng.randrange(2),), rng.randrange(14))
            case 1:
                ranking.relevel_one(row, rng.randrange(14))
            case _:
                ranking.remove(row)
    ranking.check_invariants()


def test_a_copy_makes_its_own_sets():
    ranking, _ = ranking_of(Random(2), 3)
    (group, *_) = ranking.live_groups()
    copy = group.copy()
    level = group.levels[-1]
    before = copy.sets[level].rows().tolist()
    for row in before:
        ranking.remove(row)
    assert level not in group.levels
    assert copy.sets[level].rows().tolist() == before
