"""Draws for every pod are those of `randrange`, so that recordings and seeds give the same decisions."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kubesched.scheduler.draws import draw_below


@given(st.integers(), st.lists(st.integers(min_value=1, max_value=2**40), max_size=20))
def test_draws_are_those_of_randrange(seed, bounds):
    fast, plain = Random(seed), Random(seed)
    assert [draw_below(fast, bound) for bound in bounds] == [
        plain.randrange(bound) for bound in bounds
    ]
    assert fast.getstate() == plain.getstate()
