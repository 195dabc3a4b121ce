"""Opportunistic batching: reuses the ranking of one pod for the next identical one.

After a pod with a signature is placed, the other feasible nodes are stored in order of preference.
If the very next pod has the same signature, the next best node is tried first. If the chosen node
has room for another such pod, it is scored again and competes with the others (in 1.36 there is no
hint then).

The result can differ from a full search; batching exists for parity with upstream. With the default
profile no pod has a signature (PodTopologySpread refuses because of its default constraints), so
batching is inactive.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
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


RawScores = Mapping[str, Sequence[int] | int]
"""Per plugin, the scores before NormalizeScore, or the one of all nodes."""


class RankedNodes:
    """Nodes from best to worst, in the pop order of upstream's heap; built on first use."""

    __slots__ = ("_chosen", "_heap", "_names", "_raw", "_totals")

    def __init__(
        self,
        names: Sequence[str],
        totals: Sequence[int],
        chosen: int | None,
        raw: RawScores | None = None,
    ) -> None:
        """`chosen` is the index of the chosen node, which is excluded."""
        self._names = names
        self._totals = totals
        self._chosen = chosen
        self._raw = raw or {}
        self._heap: list[int] | None = None

    def __len__(self) -> int:
        if self._heap is None:
            return len(self._names) - (self._chosen is not None)
        return len(self._heap)

    def pop(self) -> str:
        """Pop the next best node."""
        heap = self._ordered()
        assert heap, "nothing is left to rank"
        return self._names[_pop(heap, self._totals)]

    @property
    def names(self) -> list[str]:
        """The nodes that are left, in the order of the heap's array."""
        return [self._names[index] for index in self._ordered()]

    def raw_of(self, plugin: str) -> list[int]:
        """The raw scores that a plugin gave to `names`; zeros if it gave none."""
        scores = self._raw.get(plugin, 0)
        if isinstance(scores, int):
            return [scores] * len(self)
        return [scores[index] for index in self._ordered()]

    def _ordered(self) -> list[int]:
        if self._heap is None:
            self._heap = _heapified(self._totals, self._chosen)
            if self._chosen is not None:
                _pop(self._heap, self._totals)
        return self._heap


def _heapified(totals: Sequence[int], top: int | None) -> list[int]:
    heap = list(range(len(totals)))
    for index in range(len(heap) // 2 - 1, -1, -1):
        _sift_down(heap, totals, index, len(heap))
    if top is not None and heap[0] != top:  # a tie broken at random: the chosen node takes the top
        other = heap.index(top)
        heap[0], heap[other] = heap[other], heap[0]
    return heap


def _pop(heap: list[int], totals: Sequence[int]) -> int:
    last = len(heap) - 1
    heap[0], heap[last] = heap[last], heap[0]
    _sift_down(heap, totals, 0, last)
    return heap.pop()


def _sift_down(heap: list[int], totals: Sequence[int], start: int, count: int) -> None:
    at = start
    while (child := 2 * at + 1) < count:
        if child + 1 < count and totals[heap[child + 1]] > totals[heap[child]]:
            child += 1
        if totals[heap[child]] <= totals[heap[at]]:
            return
        heap[at], heap[child] = heap[child], heap[at]
        at = child


class Unusable(Exception):  # not an error: the pod gets no hint
    """The batch does not serve the pod; the text is the reason in metrics."""


@dataclass(slots=True)
class _Batch:
    signature: bytes
    ranking: RankedNodes
    made_at: float


class Batching:
    """The batching cache of one profile."""

    def __init__(
        self, profile: str, metrics: SchedulerMetrics | None, *, rescores: bool = True
    ) -> None:
        """`rescores`: a chosen node that still has room is scored again."""
        self._profile = profile
        self._metrics = metrics
        self.rescores = rescores
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

    def rescored(self, seconds: float) -> None:
        """Record that a node was scored again, and for how long."""
        if self._metrics is not None:
            self._metrics.batch_rescore_attempts_total.labels(self._profile).inc()
            self._metrics.batch_rescore_duration_seconds.labels(self._profile).observe(seconds)

    def hint(
        self,
        signature: bytes | None,
        cycle: int,
        now: float,
        exists: Callable[[str], bool],
        has_room: Callable[[str], bool | None],
        rescore: Callable[[RankedNodes, str], RankedNodes],
        *,
        is_nominated: bool = False,
    ) -> str:
        """A node to try first; empty if there is none.

        `has_room(node)`: do the filters let the pod pass there now? None if one fails.
        `rescore(ranking, node)` adds a node to a ranking, or raises Unusable.
        """
        batch = self._batch
        if batch is None or not len(batch.ranking):
            return self._no_hint()
        try:
            self._check(batch, signature, cycle, now, is_nominated=is_nominated)
            if not exists(self._last_node):
                raise Unusable("node_missing")
            room = has_room(self._last_node)
            if room is not False and not self.rescores:
                raise Unusable("node_not_full")
            if room is None:
                raise Unusable("filter_error")
            if room:
                batch.ranking = rescore(batch.ranking, self._last_node)
        except Unusable as reason:
            self._count_flush(str(reason))
            return self._no_hint()
        return batch.ranking.pop()

    def _check(
        self, batch: _Batch, signature: bytes | None, cycle: int, now: float, *, is_nominated: bool
    ) -> None:
        if cycle != self._last_cycle + 1:
            raise Unusable("pod_skipped")
        if self.rescores and is_nominated:
            raise Unusable("pod_nominated")
        if signature is None or signature != batch.signature:
            raise Unusable("pod_incompatible")
        if now - batch.made_at > MAX_AGE_S:
            raise Unusable("expired")

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
