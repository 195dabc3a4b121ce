"""Verdicts made of several boolean findings per node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from kubesched.framework.nodes.columns import Mask
from kubesched.framework.status import Status
from kubesched.framework.verdicts import Codes, Verdicts

_WIDTHS = ((8, np.uint8), (16, np.uint16), (32, np.uint32), (63, np.int64))
BITS: Final = 63
"""Findings that fit one code."""


def packed_codes(findings: Sequence[Mask]) -> Codes:
    """One code per node: bit n is the n-th of at most `BITS` findings."""
    dtype = next(dtype for width, dtype in _WIDTHS if len(findings) <= width)
    codes: Codes = findings[0].astype(dtype)
    for at, finding in enumerate(findings[1:], start=1):
        codes |= np.left_shift(finding, at, dtype=dtype)
    return codes


def packed_verdicts(findings: Sequence[Mask], describe: Callable[[int], Status]) -> Verdicts:
    """Verdicts for any number of findings; `describe` gets the bits as an unbounded integer."""
    if len(findings) <= BITS:
        return Verdicts(packed_codes(findings), describe)
    # More findings than an integer has bits: number the combinations that occur.
    patterns, numbers = np.unique(np.stack(findings), axis=1, return_inverse=True)
    known = [sum(1 << at for at in np.flatnonzero(p).tolist()) for p in patterns.T]
    passes = np.array([0 if bits == 0 else 1 for bits in known])
    return Verdicts(
        (numbers.reshape(-1) + 1) * passes[numbers.reshape(-1)],
        lambda code: describe(known[code - 1]),
    )
