"""The lowest and highest raw score, which normalisation needs."""

from __future__ import annotations

from kubesched.framework.nodes.columns import Levels


def extremes(scores: Levels) -> tuple[int, int]:
    """The lowest and highest score; `argmin`/`argmax` are faster than `min`/`max`."""
    return int(scores[scores.argmin()]), int(scores[scores.argmax()])
