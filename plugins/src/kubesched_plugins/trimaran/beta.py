"""The beta distribution with a given mean and deviation: how likely a load is at most x."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

_TINY: Final = 1e-300
_MAX_STEPS: Final = 10_000


class Beta(NamedTuple):
    """Shape parameters, both positive; infinite ones have no density that can be computed."""

    alpha: float
    beta: float
    log_scale: float
    """Of the density: 1 / B(alpha, beta). NaN if it cannot be computed."""

    @classmethod
    def of(cls, alpha: float, beta: float) -> Beta:
        if not (0 < alpha < math.inf and 0 < beta < math.inf):
            return cls(alpha, beta, math.nan)
        log_scale = math.lgamma(alpha + beta) - math.lgamma(alpha) - math.lgamma(beta)
        return cls(alpha, beta, log_scale)

    def at_most(self, x: float) -> float:
        """The probability that a value is at most x; 0 where it cannot be computed.

        By the continued fraction, on the side where that converges fast.
        """
        a, b, log_scale = self
        if not 0 < x < 1 or math.isnan(log_scale):
            return float(x == 1)
        if x < (a + 1) / (a + b + 2):
            p = self._front(x) * _fraction(x, a, b) / a
        else:
            p = 1 - self._front(x) * _fraction(1 - x, b, a) / b
        return p if 0 <= p <= 1 else 0.0

    def can_be_at_most(self, x: float) -> bool:
        """Whether `at_most` is above 0; much cheaper, as the continued fraction always is."""
        a, b, log_scale = self
        if not 0 < x < 1 or math.isnan(log_scale):
            return x == 1
        return x >= (a + 1) / (a + b + 2) or self._front(x) / a > 0

    def _front(self, x: float) -> float:
        a, b, log_scale = self
        return math.exp(log_scale + a * math.log(x) + b * math.log1p(-x))


def fitted(mu: float, sigma: float) -> Beta | None:
    """The distribution with this mean and deviation, if there is one."""
    variance = sigma * sigma + mu * mu - mu * mu
    if mu < 0 or mu > 1 or variance < 0 or variance >= mu * (1 - mu):
        return None
    scale = math.inf if variance == 0 else mu * (1 - mu) / variance - 1
    scale = max(scale, 5e-324)
    return Beta.of(mu * scale, (1 - mu) * scale)


def max_variance(mu: float) -> float:
    return mu * (1 - mu) if 0 < mu < 1 else 0.0


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
