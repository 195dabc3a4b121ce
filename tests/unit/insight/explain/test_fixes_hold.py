"""Printed fixes, carried out as printed, place the pods that they promise.

A sample; `benchmarks/fixes_that_hold.py` judges 1,000 situations. Fixes that are not known to hold
are explained in docs/reference/explain.md.
"""

import pytest
from fix_judge import judge


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 3, 8, 10, 14])
def test_fixes_hold(seed):
    verdicts = judge(seed)
    assert verdicts.held
    assert verdicts.failed == []
