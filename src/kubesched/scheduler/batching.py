"""Opportunistic batching: reuses the ranking of one pod for the next identical one.

After a pod with a signature is placed, the other feasible nodes are stored in order of preference.
If the very next pod has the same signature, and the chosen node has no room for another such pod,
the next best node is tried first.

The result can differ from a full search; batching exists for parity with upstream. With the default
profile no pod has a signature (PodTopologySpread refuses because of its default constraints), so
batching is inactive.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kubesched.api.core_v1 import Pod
from kubesched.base.metrics.scheduler import SchedulerMetrics
from kubesched.framework.cycle_state import CallTimer
from kubesched.framework.interfaces import SignPlugin
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.timing import timed
from kubesched.framework.status import Status

MAX_AGE_S: Final = 0.5
TIMED_EVERY: Final = 10
"""Every n-th signature is timed by plugin. Upstream times all, at a cost for every new pod."""
SCHEDULER_NAME_KEY: Final = "v1.Pod.Spec.SchedulerName"

_encode = msgspec.json.Encoder(order="deterministic").encode


def signer(framework: Framework) -> Callable[[Pod], bytes | None] | None:
    """A profile's signing function; None with extenders, or if a deciding plugin cannot sign."""
    if framework.handle.extenders:
        return None
    deciding = {
        id(plugin): plugin
        for point in (framework.pre_filter, framework.filter, framework.pre_score, framework.score)
        for plugin in point
    }
    signers: list[SignPlugin] = [
        plugin for plugin in deciding.values() if isinstance(plugin, SignPlugin)
    ]
    if len(signers) != len(deciding):
        return None
    calls = itertools.count()

    def sign(pod: Pod) -> bytes | None:
        started = framework.now()
        timer = framework.timer if next(calls) % TIMED_EVERY == 0 else None
        signature = _sign(pod, signers, timer)
        framework.point_done(
            "Sign", started
        )  # Upstream: counts as Success, also when a plugin refuses.
        return signature

    return sign


def _sign(pod: Pod, plugins: list[SignPlugin], timer: CallTimer | None) -> bytes | None:
    fragments: dict[str, Any] = {SCHEDULER_NAME_KEY: pod.spec.scheduler_name}
    for plugin in plugins:
        answer = timed(timer, plugin, "Sign", plugin.sign_pod)(pod)
        if isinstance(answer, Status):
            # A plugin that refuses one pod often refuses all (as default spreading): call it first.
            plugins.remove(plugin)
            plugins.insert(0, plugin)
            return None
        fragments.update(answer)
    return _encode(fragments)


class RankedNodes:
    """Nodes from best to worst, in the pop order of upstream's heap; built on first use."""

    __slots__ = ("_chosen", "_heap", "_names", "_totals")

    def __init__(self, names: list[str], totals: list[int], chosen: int) -> None:
        """`chosen` is the index of the chosen node, which is excluded."""
        self._names = names
        self._totals = totals
        self._chosen = chosen
        self._heap: list[int] | None = None

    def __len__(self) -> int:
        return len(self._names) - 1 if self._heap is None else len(self._heap)

    def pop(self) -> str:
        """Pop the next best node."""
        if self._heap is None:
            self._heap = _heapified(self._totals, self._chosen)
            _pop(self._heap, self._totals)
        assert self._heap, "nothing is left to rank"
        return self._names[_pop(self._heap, self._totals)]


def _heapified(totals: list[int], top: int) -> list[int]:
    heap = list(range(len(totals)))
    for index in range(len(heap) // 2 - 1, -1, -1):
        _sift_down(heap, totals, index, len(heap))
    if heap[0] != top:  # a tie broken at random: the chosen node takes the top
        other = heap.index(top)
        heap[0], heap[other] = heap[other], heap[0]
    return heap


def _pop(heap: list[int], totals: list[int]) -> int:
    last = len(heap) - 1
    heap[0], heap[last] = heap[last], heap[0]
    _sift_down(heap, totals, 0, last)
    return heap.pop()


def _sift_down(heap: list[int], totals: list[int], start: int, count: int) -> None:
    at = start
    while (child := 2 * at + 1) < count:
        if child + 1 < count and totals[heap[child + 1]] > totals[heap[child]]:
            child += 1
        if totals[heap[child]] <= totals[heap[at]]:
            return
        heap[at], heap[child] = heap[child], heap[at]
        at = child


@dataclass(slots=True)
class _Batch:
    signature: bytes
    ranking: RankedNodes
    made_at: float


class Batching:
    """The batching cache of one profile."""

    def __init__(self, profile: str, metrics: SchedulerMetrics | None) -> None:
        self._profile = profile
        self._metrics = metrics
        self._batch: _Batch | None = None
        self._last_cycle = -1
        self._last_node = ""
        if metrics is not None:
            self._lookups = [
                metrics.get_node_hint_duration_seconds.labels(hinted, profile)
                for hinted in ("no_hint", "hint")
            ]
            self._stores = metrics.store_schedule_results_duration_seconds.labels(profile)

    def forget(self) -> None:
        """Reset: the next pod gets no hint."""
        self._batch, self._last_cycle, self._last_node = None, -1, ""

    def looked_up(self, hint: str, seconds: float) -> None:
        """Record the duration of a hint lookup."""
        if self._metrics is not None:
            self._lookups[bool(hint)].observe(seconds)

    def stored(self, seconds: float) -> None:
        """Record the duration of storing a placement."""
        if self._metrics is not None:
            self._stores.observe(seconds)

    def hint(
        self,
        signature: bytes | None,
        cycle: int,
        now: float,
        exists: Callable[[str], bool],
        is_full: Callable[[str], bool],
    ) -> str:
        """A node to try first; empty if there is none.

        `is_full(node)`: do the filters reject the pod there now?
        """
        batch = self._batch
        if batch is None or not len(batch.ranking):
            return self._no_hint()
        reason = ""
        if cycle != self._last_cycle + 1:
            reason = "pod_skipped"
        elif signature is None or signature != batch.signature:
            reason = "pod_incompatible"
        elif now - batch.made_at > MAX_AGE_S:
            reason = "expired"
        elif not exists(self._last_node):
            reason = "node_missing"
        elif not is_full(self._last_node):
            reason = "node_not_full"
        if reason:
            self._count_flush(reason)
            return self._no_hint()
        return batch.ranking.pop()

    def store(
        self,
        signature: bytes | None,
        hint: str,
        chosen: str,
        ranking: RankedNodes | None,
        cycle: int,
        now: float,
    ) -> None:
        """Store a placement. `ranking` holds the other feasible nodes; None if there were none."""
        self._last_cycle, self._last_node = cycle, chosen
        if hint and hint == chosen:
            self._count("hint_used")
            return
        if hint:
            self._count("hint_not_used")
        if signature is not None and ranking is not None and len(ranking):
            self._batch = _Batch(signature, ranking, now)
            return
        self._batch = None
        self._count_flush(
            "pod_not_batchable" if ranking is not None and len(ranking) else "empty_list"
        )

    def _no_hint(self) -> str:
        self._count("no_hint")
        return ""

    def _count(self, result: str) -> None:
        if self._metrics is not None:
            self._metrics.batch_attempts_total.labels(self._profile, result).inc()

    def _count_flush(self, reason: str) -> None:
        if self._metrics is not None:
            self._metrics.batch_cache_flushed_total.labels(self._profile, reason).inc()
