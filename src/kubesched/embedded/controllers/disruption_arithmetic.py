"""How many pods a PodDisruptionBudget expects, how many of them must be healthy, and how many it can spare."""

from __future__ import annotations

from collections.abc import Callable

from kubesched.embedded.controllers.int_or_percent import is_percent, scaled_value

IntOrPercent = int | str


def expectations(
    min_available: IntOrPercent | None,
    max_unavailable: IntOrPercent | None,
    pods: int,
    scale: Callable[[], int],
) -> tuple[int, int]:
    """Pods that there should be, and how many of them healthy.

    `pods` are those the budget selects; `scale` says how many their owners want, and is asked only where that counts.
    """
    if max_unavailable is not None:
        expected = scale()
        return expected, max(0, expected - scaled_value(max_unavailable, expected, round_up=True))
    minimum = 1 if min_available is None else min_available
    if is_percent(minimum):
        expected = scale()
        return expected, scaled_value(minimum, expected, round_up=True)
    return pods, int(minimum)


def disruptions_allowed(expected: int, desired: int, healthy: int) -> int:
    """A budget that selects nothing spares nothing."""
    return max(0, healthy - desired) if expected > 0 else 0
