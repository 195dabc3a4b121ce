"""Sets of rows against Python's own sets."""

from random import Random

import numpy as np
import pytest

from kubesched.equivalence.row_sets import RowSet, blocks_for, nth_of

SIZES = [1, 1024, 40_000, 200_000]
"""One block, one span, a few spans."""


@pytest.mark.parametrize("size", SIZES)
def test_sets_equal_plain_sets_after_random_changes(size):
    rng = Random(size)
    plain = [set(rng.sample(range(size), size // 10)), set()]
    plain[1] = set(rng.sample(range(size), size // 7)) - plain[0]
    sets = [RowSet.of(np.array(sorted(rows), dtype=np.intp), blocks_for(size)) for rows in plain]
    for _ in range(300):
        row, at = rng.randrange(size), rng.randrange(2)
        if row in plain[at]:
            plain[at].remove(row)
            sets[at].remove(row)
        elif row not in plain[1 - at]:
            plain[at].add(row)
            sets[at].add(row)
    for rows, row_set in zip(plain, sets, strict=True):
        assert row_set.rows().tolist() == sorted(rows)
        assert row_set.count == len(rows)
        if rows:
            assert row_set.any() in rows
    together = sorted(plain[0] | plain[1])
    for n in [0, len(together) - 1, *rng.choices(range(len(together) or 1), k=50)]:
        if together:
            assert nth_of(sets, n) == together[n]
    with pytest.raises(LookupError):
        nth_of(sets, len(together))
    flipped = {rng.randrange(size) for _ in range(5)}
    together = sorted(flipped.symmetric_difference(together))
    for n in rng.choices(range(len(together)), k=50) if together else ():
        assert nth_of(sets, n, flipped) == together[n]
