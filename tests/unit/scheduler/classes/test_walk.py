"""The walk finds what a loop over the nodes in order finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.scheduler.classes import Walk


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
    rows, examined = Walk(np.array(order), start, wanted).first(mask)
    assert (rows.tolist(), examined) == walked_plainly(order, start, wanted, passing)


def test_the_surplus_row_ends_the_walk_and_is_not_examined():
    passing = np.array([True, True, True, False, True, True])
    rows, examined = Walk(np.arange(6), start=2, wanted=2).first(passing)
    assert (rows.tolist(), examined) == walked_plainly([*range(6)], 2, 2, {0, 1, 2, 4, 5})
    assert examined == 3
