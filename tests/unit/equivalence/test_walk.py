"""The walk finds what a loop over the nodes in order finds, and so does the list that is kept for it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.equivalence import Walk
from kubesched.equivalence.ranking import SortedRanking, UnsortedRanking
from kubesched.equivalence.walk import WalkList


def walked_plainly(order: list[int], start: int, wanted: int, passing: set[int]):
    """Upstream's search: it ends at the first feasible node beyond those that are wanted."""
    found: list[int] = []
    for examined in range(len(order)):
        row = order[(start + examined) % len(order)]
        if row in passing:
            if len(found) == wanted:
                return found, examined
            found.append(row)
    return found, len(order)


@pytest.mark.slow
@given(
    st.integers(1, 400).flatmap(lambda count: st.permutations(range(count))),
    st.integers(0, 399),
    st.integers(1, 450),
    st.sampled_from([0.0, 0.1, 0.9, 1.0]),
    st.randoms(use_true_random=False),
)
def test_the_first_rows_that_pass(order, start, wanted, share, rng):
    passing = {row for row in order if rng.random() < share}
    mask = np.array([row in passing for row in range(len(order))])
    start %= len(order)
    rows, examined = Walk(np.array(order), start, wanted).first(mask.__getitem__)
    assert (rows.tolist(), examined) == walked_plainly(order, start, wanted, passing)


@given(
    st.integers(1, 60).flatmap(lambda count: st.permutations(range(count))),
    st.sampled_from([0.0, 0.5, 0.95, 1.0]),
    st.lists(st.tuples(st.integers(0, 59), st.integers(1, 70)), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_the_kept_list_gives_every_walk_the_same_rows(order, share, walks, rng):
    passing = {row for row in order if rng.random() < share}
    mask = np.array([row in passing for row in range(len(order))])
    kept, array = WalkList(), np.array(order)
    for start, wanted in walks:
        start %= len(order)
        rows, examined = kept.first(Walk(array, start, wanted), mask.__getitem__)
        assert (rows.tolist(), examined) == walked_plainly(order, start, wanted, passing)


ROWS = 24


@given(
    st.booleans(),
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, ROWS - 1), st.integers(0, 2)),
            st.tuples(st.just("relevel"), st.integers(0, ROWS - 1), st.integers(0, 2)),
            st.tuples(st.just("remove"), st.integers(0, ROWS - 1), st.just(0)),
            st.tuples(st.just("walk"), st.integers(0, ROWS - 1), st.integers(1, ROWS)),
            st.tuples(st.just("reorder"), st.integers(0, ROWS - 1), st.just(0)),
        ),
        max_size=80,
    ),
)
def test_walks_over_a_ranking_see_the_rows_of_now(is_sorted, steps):
    """Rows that change their group or level stay on the list, others come and go."""
    ranking = SortedRanking(ROWS) if is_sorted else UnsortedRanking(ROWS)
    rows = np.arange(0, ROWS, 2)
    if is_sorted:
        ranking.put_all(rows, [np.zeros(len(rows), dtype=np.int64)], np.ones(len(rows), np.int64))
    else:
        for row in rows.tolist():
            ranking.put(row, (0,), 1)
    passing = set(rows.tolist())
    order = np.arange(ROWS)
    for step, at, number in steps:
        if step == "put":
            ranking.put(at, (number,), number)
            passing.add(at)
        elif step == "relevel":
            assert ranking.relevel_one(at, number) == (at in passing)
        elif step == "remove":
            ranking.remove(at)
            passing.discard(at)
        elif step == "reorder":
            order = np.roll(order, at)
        else:
            # Twice through all nodes: by then the list is there.
            for wanted in (ROWS, number, number):
                found, examined = ranking.walk(Walk(order, at, wanted))
                expected = walked_plainly(order.tolist(), at, wanted, passing)
                assert (found.tolist(), examined) == expected
