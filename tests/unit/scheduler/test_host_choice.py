"""Ties fall as upstream's heap lets them fall."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kubesched.scheduler.host_choice import heap_winner


def literal_heap_top(totals: list[int]) -> int:
    """The heap exactly as described: built from the middle down, each element sifted down; the top
    is popped.
    """
    heap = list(range(len(totals)))
    count = len(heap)

    def less(a: int, b: int) -> bool:
        return totals[heap[a]] > totals[heap[b]]

    def sift_down(start: int) -> None:
        at = start
        while (left := 2 * at + 1) < count:
            child = left
            if left + 1 < count and less(left + 1, left):
                child = left + 1
            if not less(child, at):
                return
            heap[at], heap[child] = heap[child], heap[at]
            at = child

    for index in range(count // 2 - 1, -1, -1):
        sift_down(index)
    return heap[0]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=200))
def test_the_winner_is_the_top_of_the_heap(totals: list[int]) -> None:
    assert heap_winner(np.array(totals)) == literal_heap_top(totals)


def test_with_equal_totals_the_first_of_the_list_wins() -> None:
    assert heap_winner(np.ones(1000, dtype=np.int64)) == 0
