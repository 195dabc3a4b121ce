"""Shadow profiles: candidates that decide beside a live profile and never act.

Right after the live decision, on the same state, a shadow runs PreFilter, Filter, PreScore and
Score of its own plugins. Nothing else of it runs: nothing is assumed, reserved, evicted or written,
no number of the live profile's random generator is drawn, and its metrics leave the shadow's time
out. `Judge` is also what `kubesched shadow` compares another scheduler's bindings with.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

import numpy as np

from kubesched.api.times import format_time
from kubesched.base.clock import Clock
from kubesched.base.metrics.instruments import Counter as CounterSeries
from kubesched.base.metrics.scheduler import SchedulerMetrics
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.diagnosis import FitError
from kubesched.framework.nodes.columns import Indices
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns, PassingColumns
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.nominated import filter_with_nominated_pods
from kubesched.framework.runtime.pre_filter import run_pre_filter
from kubesched.framework.runtime.score import run_pre_score, run_score
from kubesched.framework.status import Status
from kubesched.scheduler.algorithm import ScheduleResult, SchedulingAlgorithm
from kubesched.scheduler.classes import Best

SAME: Final = "same"
TIE: Final = "tie"
DIFFERENT: Final = "different"
ONLY_LIVE: Final = "only_live"
ONLY_SHADOW: Final = "only_shadow"
NEITHER: Final = "neither"
ERROR: Final = "error"
RESULTS: Final = (SAME, TIE, DIFFERENT, ONLY_LIVE, ONLY_SHADOW, NEITHER, ERROR)

KEPT_DIFFERENCES: Final = 1000
MAX_WAITING: Final = 10_000
"""Pods whose saved wait is measured at a time."""
REST: Final = 9
"""Explaining a difference takes a full evaluation, so it rests this many times as long."""


_NO_ROWS: Final[Indices] = np.zeros(0, dtype=np.intp)


class Verdict(NamedTuple):
    """What a judge decided."""

    result: str
    """`same`, `tie`, `different`, or `neither` if no node is feasible."""
    node: str = ""
    feasible: int = 0
    error: str = ""


class Cause(NamedTuple):
    """Why a node lost: a filter's reason, or the score plugin that took most points from it."""

    plugin: str = ""
    reason: str = ""


Points = Mapping[str, int]
"""Weighted scores of one node by plugin."""


class _FavouringAlgorithm(SchedulingAlgorithm):
    """Chooses the favoured row if it is among the best ones."""

    favoured = -1
    ties = 1

    def _of_best(self, best: Best) -> int:
        ties, row = best.ties(), self.favoured
        self.ties = int(np.count_nonzero(ties))
        if row >= 0 and best.passing[row]:
            is_whole = len(ties) == len(best.passing)
            if ties[row if is_whole else np.count_nonzero(best.passing[:row])]:
                return row
        return super()._of_best(best)

    def _at_random(self, tied_rows: Indices) -> int:
        self.ties = len(tied_rows)
        if self.favoured in tied_rows:
            return self.favoured
        return super()._at_random(tied_rows)


class Judge:
    """Decides with one profile's plugins, without side effects."""

    def __init__(self, framework: Framework, like: SchedulingAlgorithm) -> None:
        """`like`: the live algorithm, whose settings and cached answers are shared."""
        self.framework = framework
        self._suffix = framework.profile_name.encode()
        self._algorithm = _FavouringAlgorithm(
            like.table,
            Random(0),
            parallelism=max(2, like.parallelism),  # with one, the order would break ties
            percentage_of_nodes_to_score=like.percentage_of_nodes_to_score,
            engine=like.engine,
        )

    def decide(self, pod: PodInfo, node_name: str, start: int = 0) -> Verdict:
        """Compare with the choice of `node_name`, empty for none; `start` begins the walk."""
        own, algorithm = self._own(pod), self._algorithm
        algorithm.favoured = algorithm.table.row_of.get(node_name, -1)
        algorithm.next_start, algorithm.ties = start, 1
        outcome = algorithm.schedule(self.framework, CycleState(), own)
        if isinstance(outcome, ScheduleResult):
            chosen, feasible = outcome.node_name, outcome.feasible_nodes
            if chosen != node_name:
                return Verdict(DIFFERENT, chosen, feasible)
            return Verdict(TIE if algorithm.ties > 1 else SAME, chosen, feasible)
        if is_unschedulable(outcome):
            return Verdict(NEITHER)
        return Verdict(ERROR, error=outcome.message)

    def _own(self, pod: PodInfo) -> PodInfo:
        """The pod with classes of its own: other plugins may tell other pods apart."""
        own = pod.twin(pod.uid, pod.key)
        whole, shape = own.class_key, own.shape_key
        if not whole or shape is None or self.framework.class_field_plugins:
            own.class_key = own.shape_key = None  # computed anew
        else:  # no more than the live profile's signature holds
            own.class_key = whole + self._suffix
            own.shape_key = (shape if self.framework.answers_by_spec else whole) + self._suffix
        return own

    def weigh(self, pod: PodInfo, nodes: Sequence[str]) -> tuple[list[Cause | Points], Indices]:
        """Per node the first rejection, or its points; and the rows that beat the first one."""
        framework, table, state = self.framework, self._algorithm.table, CycleState()
        own = self._own(pod)
        # Not the algorithm's own methods: these would be measured as the profile's.
        outcome = run_pre_filter(framework, state, own.pod, NodeColumns(table))
        if outcome.status is not None:
            return [_cause_of(outcome.status) for _ in nodes], _NO_ROWS
        filtered = filter_with_nominated_pods(framework, state, own, NodeColumns(table))
        if filtered.error is not None:
            return [_cause_of(filtered.error) for _ in nodes], _NO_ROWS
        passing = filtered.passing & table.alive[: len(filtered.passing)]
        if outcome.node_names is not None:
            kept = np.zeros(len(passing), dtype=np.bool_)
            kept[[table.row_of[name] for name in outcome.node_names if name in table.row_of]] = True
            passing &= kept
        points: dict[str, Any] = {}
        if passing.any():
            feasible = PassingColumns(table, passing)
            if run_pre_score(framework, state, own.pod, feasible) is None:
                scored = run_score(framework, state, own.pod, feasible)
                points = {} if scored.error is not None else scored.by_plugin
        places = np.cumsum(passing) - 1
        found: list[Cause | Points] = []
        for name in nodes:
            row = table.row_of.get(name)
            if row is None:
                found.append(Cause("", "the node is not known"))
            elif passing[row]:
                place = places[row]
                found.append({plugin: int(column[place]) for plugin, column in points.items()})
            else:
                status = filtered.status_at(row)
                narrowed = Cause(", ".join(sorted(outcome.narrowing_plugins)), "narrows to others")
                found.append(narrowed if status is None else _cause_of(status))
        first = found[0]
        if isinstance(first, Cause) or not points:
            return found, _NO_ROWS
        totals = np.sum([*points.values()], axis=0)
        return found, np.flatnonzero(passing)[totals > sum(first.values())]


def is_unschedulable(outcome: object) -> bool:
    """True if no node takes the pod, False for errors."""
    return isinstance(outcome, Status) and (
        isinstance(outcome.error, FitError) or outcome.is_rejected
    )


def _cause_of(status: Status) -> Cause:
    return Cause(status.plugin, ", ".join(status.all_reasons))


def cause_of(
    better: Cause | Points, worse: Cause | Points, base: tuple[Points, Points] | None = None
) -> Cause:
    """Why a judge prefers `better`; with `base`, why more than another judge does."""
    if isinstance(worse, Cause):
        return worse
    if isinstance(better, Cause):
        return better
    gains = {plugin: points - worse[plugin] for plugin, points in better.items()}
    for plugin in () if base is None else {*base[0], *base[1]}:
        gain = base[0].get(plugin, 0) - base[1].get(plugin, 0) if base is not None else 0
        gains[plugin] = gains.get(plugin, 0) - gain
    plugin = max(gains, key=lambda name: gains[name], default="")
    return Cause(plugin, f"{gains[plugin]:+d} points") if gains.get(plugin, 0) > 0 else Cause()


class Difference(NamedTuple):
    """A decision on which the two profiles disagree; `plugin` is empty if not explained."""

    time: float
    namespace: str
    pod: str
    result: str
    live: str
    shadow: str
    plugin: str = ""
    reason: str = ""


_Sums = list[int]
"""Number, milli-CPU and memory of the pods that decisions put on one node."""


class Shadow:
    """One candidate beside one live profile."""

    def __init__(
        self,
        candidate: Framework,
        live: Framework,
        algorithm: SchedulingAlgorithm,
        metrics: SchedulerMetrics,
        clock: Clock,
    ) -> None:
        self.name, self.of = candidate.profile_name, live.profile_name
        self.judge, self._live = Judge(candidate, algorithm), Judge(live, algorithm)
        self._table, self._clock = algorithm.table, clock
        self._counters: dict[str, CounterSeries] = {
            result: metrics.shadow_decisions_total.labels(self.name, self.of, result)
            for result in RESULTS
        }
        self.counts: Counter[str] = Counter()
        self.since = clock.now()
        self.differences: deque[Difference] = deque(maxlen=KEPT_DIFFERENCES)
        self._placed: tuple[dict[str, _Sums], ...] = ({}, {}, {})
        """By node: of both profiles where they agree, else of the live one and of this one."""
        self._waiting: dict[str, float] = {}
        """Since when pods that the live profile fails to place would fit."""
        self.waited_pods, self.waited_s = 0, 0.0
        self._may_explain_at = 0.0
        self.last_error = ""

    def compare(self, pod: PodInfo, live_node: str, start: int) -> None:
        """Decide about a pod that the live profile has just placed, or failed to place."""
        verdict = self.judge.decide(pod, live_node, start)
        result, node = verdict.result, verdict.node
        is_again = not live_node and pod.uid in self._waiting
        if result == NEITHER:
            result = ONLY_LIVE if live_node else NEITHER
        elif result == ERROR:
            self.last_error = verdict.error
        elif not live_node:
            result = ONLY_SHADOW
            if len(self._waiting) < MAX_WAITING:
                self._waiting.setdefault(pod.uid, self._clock.monotonic())
        self.count(result)
        if live_node:
            self._place(pod, live_node, node)
        if result in (DIFFERENT, ONLY_LIVE, ONLY_SHADOW) and not is_again:
            self.differences.append(self._explained(pod, result, live_node, node))

    def count(self, result: str) -> None:
        self.counts[result] += 1
        self._counters[result].inc()

    def _place(self, pod: PodInfo, live_node: str, node: str) -> None:
        requests = pod.requests
        for at, name in ((0, live_node),) if live_node == node else ((1, live_node), (2, node)):
            placed = self._placed[at]
            sums = placed.get(name)
            if sums is None:
                if len(placed) > 2 * self._table.node_count:
                    for gone in [old for old in placed if old not in self._table.row_of]:
                        del placed[gone]
                sums = placed[name] = [0, 0, 0]
            sums[0] += 1
            sums[1] += requests.milli_cpu
            sums[2] += requests.memory
        if self._waiting:
            since = self._waiting.pop(pod.uid, None)
            if since is not None:
                self.waited_pods += 1
                self.waited_s += self._clock.monotonic() - since

    def _explained(self, pod: PodInfo, result: str, live_node: str, node: str) -> Difference:
        made = Difference(self._clock.now(), pod.namespace, pod.name, result, live_node, node)
        started = self._clock.monotonic()
        if started < self._may_explain_at:
            return made
        nodes = [name for name in (node, live_node) if name]
        (first, *others), _ = self.judge.weigh(pod, nodes)
        if result == ONLY_LIVE:
            cause = first if isinstance(first, Cause) else Cause()
        else:
            (live_first, *live_others), _ = self._live.weigh(pod, nodes)
            if isinstance(live_first, Cause):
                cause = live_first  # the live profile rejects the shadow's node
            elif others:
                base = None if isinstance(live_others[0], Cause) else (live_first, live_others[0])
                cause = cause_of(first, others[0], base)
            else:
                cause = Cause()
        ended = self._clock.monotonic()
        self._may_explain_at = ended + REST * (ended - started)
        return made._replace(plugin=cause.plugin, reason=cause.reason)

    def report(self) -> dict[str, Any]:
        """What `/debug/shadow` serves; may be called from another thread."""
        counted = dict(self.counts)
        return {
            "profile": self.name,
            "of": self.of,
            "since": format_time(self.since),
            "until": format_time(self._clock.now()),
            "decisions": {result: counted.get(result, 0) for result in RESULTS},
            "lastError": self.last_error,
            "placed": {
                "live": self._packing(1),
                "shadow": self._packing(2),
            },
            "waits": {"pods": self.waited_pods, "seconds": round(self.waited_s, 3)},
            "differences": [
                {**made._asdict(), "time": format_time(made.time)}
                for made in reversed(list(self.differences))
            ],
        }

    def _packing(self, apart: int) -> dict[str, Any]:
        """Sums over the period: what decisions put on nodes, relative to these nodes' size."""
        table, placed = self._table, dict(self._placed[0])
        for name, sums in dict(self._placed[apart]).items():
            placed[name] = [a + b for a, b in zip(placed.get(name, (0, 0, 0)), sums, strict=True)]
        placed.pop("", None)  # pods that this profile has no node for
        made: dict[str, Any] = {
            "pods": sum(sums[0] for sums in placed.values()),
            "nodes": len(placed),
            "mostPodsOnANode": max((sums[0] for sums in placed.values()), default=0),
        }
        known = [name for name in placed if name in table.row_of]
        for at, resource in enumerate(("cpu", "memory"), start=1):
            size = table.allocatable[table.resource_index[resource]].array
            whole = sum(int(size[table.row_of[name]]) for name in known)
            used = sum(placed[name][at] for name in known)
            made[f"{resource}Percent"] = round(100 * used / whole, 1) if whole else 0.0
        return made


class Shadows:
    """The shadows of all live profiles."""

    def __init__(self, shadows: Iterable[Shadow]) -> None:
        self.all = list(shadows)
        self._by_profile: dict[str, list[Shadow]] = {}
        for shadow in self.all:
            self._by_profile.setdefault(shadow.of, []).append(shadow)

    def compare(
        self,
        framework: Framework,
        pod: PodInfo,
        outcome: ScheduleResult | Status,
        start: int,
    ) -> float:
        """After a live decision; returns the seconds it took."""
        shadows = self._by_profile.get(framework.profile_name)
        if shadows is None:
            return 0.0
        started = framework.now()
        for shadow in shadows:
            if isinstance(outcome, ScheduleResult):
                shadow.compare(pod, outcome.node_name, start)
            elif is_unschedulable(outcome):
                shadow.compare(pod, "", start)
            else:
                shadow.count(ERROR)  # the live attempt failed for another reason than room
        return framework.now() - started

    def report(self) -> list[dict[str, Any]]:
        return [shadow.report() for shadow in self.all]

    def close(self) -> None:
        """Close the plugins of all shadows."""
        for shadow in self.all:
            shadow.judge.framework.close()
