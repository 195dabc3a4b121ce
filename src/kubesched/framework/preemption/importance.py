"""The importance of pods: priority, then start time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cmp_to_key
from typing import Final

from kubesched.api.core_v1 import Pod
from kubesched.api.times import parse_time
from kubesched.framework.nodes.pods import PodInfo

MoreImportant = Callable[[PodInfo, PodInfo], bool]
"""(a, b) -> is `a` more important than `b`?"""

NOT_STARTED: Final = -(2**63)
"""The integer for an unset start time."""


def started_us(pod: Pod) -> int:
    """When the pod started, in microseconds since the epoch; NOT_STARTED if it has not."""
    text = pod.status.start_time
    return NOT_STARTED if text is None else round(parse_time(text) * 1e6)


def _rank(pod: PodInfo, now_us: int) -> tuple[int, int]:
    """Higher priority first, then longer running. A pod not started counts as starting now."""
    started = started_us(pod.pod)
    return -pod.priority, now_us if started == NOT_STARTED else started


def by_importance(
    pods: Iterable[PodInfo], now_us: int, more_important: MoreImportant | None
) -> list[PodInfo]:
    """Sorted, most important first, by the default rule unless another is given."""
    if more_important is None:
        return sorted(pods, key=lambda pod: _rank(pod, now_us))
    is_first = more_important

    def compare(a: PodInfo, b: PodInfo) -> int:
        return -1 if is_first(a, b) else int(is_first(b, a))

    return sorted(pods, key=cmp_to_key(compare))
