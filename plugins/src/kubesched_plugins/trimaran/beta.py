"""The beta distribution with a given mean and deviation: how likely a load is at most x."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

_TINY: Final = 1e-300
_MAX_STEPS: Final = 10_000


class Beta(NamedTuple):
    """Shape parameters, both positive."""

    alpha: float
    beta: float

    def at_most(self, x: float) -> float:
        """The probability that a value is at most x; 0 where it cannot be computed."""
        if not 0 <= x <= 1:
            return 0.0
        if x in (0, 1):
            return float(x)
        p = regularized_incomplete(x, self.alpha, self.beta)
        return p if 0 <= p <= 1 else 0.0


def fitted(mu: float, sigma: float) -> Beta | None:
    """The distribution with this mean and deviation, if there is one."""
    variance = sigma * sigma + mu * mu - mu * mu
    if mu < 0 or mu > 1 or variance < 0 or variance >= mu * (1 - mu):
        return None
    scale = math.inf if variance == 0 else mu * (1 - mu) / variance - 1
    scale = max(scale, 5e-324)
    return Beta(mu * scale, (1 - mu) * scale)


def max_variance(mu: float) -> float:
    return mu * (1 - mu) if 0 < mu < 1 else 0.0


def regularized_incomplete(x: float, a: float, b: float) -> float:
    """I_x(a, b) by its continued fraction, on the side where that converges fast."""
    if not (0 < a < math.inf and 0 < b < math.inf):
        return math.nan
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    front = math.exp(log_front)
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """Lentz's method, two terms at a time."""
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d or _TINY)
    h = d
    for m in range(1, _MAX_STEPS):
        to = a + 2 * m
        term = m * (b - m) * x / ((to - 1) * to)
        d, c = 1 + term * d, 1 + term / c
        d, c = 1 / (d or _TINY), c or _TINY
        h *= d * c
        term = -(a + m) * (a + b + m) * x / (to * (to + 1))
        d, c = 1 + term * d, 1 + term / c
        d, c = 1 / (d or _TINY), c or _TINY
        h *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return h
