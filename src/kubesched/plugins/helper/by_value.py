"""Normalisation evaluated once per distinct raw score instead of once per node."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kubesched.snapshot.columns import Ints


def extremes(scores: Ints) -> tuple[int, int]:
    """The lowest and highest score. `argmin` and `argmax` are twice as fast as `min` and `max` on int64."""
    return int(scores[scores.argmin()]), int(scores[scores.argmax()])


def by_value(scores: Ints, lowest: int, highest: int, rule: Callable[[Ints], Ints]) -> Ints:
    """`rule` applied to scores within a range: to every value of the range, if that is shorter than the scores."""
    if highest - lowest >= len(scores):
        return rule(scores)
    answers = rule(np.arange(lowest, highest + 1))
    final: Ints = answers.take(scores - lowest if lowest else scores)
    return final
