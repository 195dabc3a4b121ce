"""unschedulablePods: pods that were rejected and wait for an event.

Two kinds live here. *Unschedulable* pods were tried and rejected; *gated* ones were kept out of the queues by a
PreEnqueue plugin. Either way the rejecting plugins decide which events matter.

Most events matter to no pod here, and there may be tens of thousands of pods. So pods are filed in *cohorts*: same
profile, same plugins that rejected them, same gate. Whether any hint applies is asked once per cohort, not per pod, and
within a cohort hints that look only at a pod's class are asked once per class. The outcome is exactly what asking every
pod would give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Final, NamedTuple

from kubesched.api.core_v1 import Pod
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.metrics import SchedulerMetrics
from kubesched.queue.hints import HintEvaluator, QueueingHint, ResolvedEvent, Strategy

UNSCHEDULABLE: Final = "unschedulable"

PreCheck = Callable[[Pod], bool]
"""Restricts a move to some of the pods."""

_Key = tuple[str, frozenset[str], frozenset[str], str]


class UnschedulablePods:
    """The pool, filed by cohort."""

    def __init__(self, metrics: SchedulerMetrics) -> None:
        self._slots: dict[str, _Slot] = {}
        self._cohorts: dict[_Key, _Cohort] = {}
        self._arrivals = 0
        self._gated_count = 0
        self._oldest_stay = inf
        self._incoming = metrics.queue_incoming_pods_total

    def add_or_update(self, info: QueuedPodInfo, event_label: str) -> None:
        """Put a pod in, or file it anew after it changed; only a pod that was not here counts as incoming."""
        if not self.refile(info):
            self._arrivals += 1
            self._file(info, self._arrivals)
            self._incoming.labels(UNSCHEDULABLE, event_label).inc()

    def refile(self, info: QueuedPodInfo) -> bool:
        """File a pod anew under its key, keeping its place; False if the key is not here."""
        slot = self._slots.get(info.pod_info.key)
        if slot is None:
            return False
        self._unfile(slot)
        self._file(info, slot.arrival)
        return True

    def remove(self, key: str) -> QueuedPodInfo | None:
        slot = self._slots.pop(key, None)
        if slot is None:
            return None
        self._unfile(slot)
        return slot.info

    def get(self, key: str) -> QueuedPodInfo | None:
        slot = self._slots.get(key)
        return None if slot is None else slot.info

    def worth_requeuing(
        self,
        event: ResolvedEvent,
        old: object,
        new: object,
        pre_check: PreCheck | None,
        evaluator: HintEvaluator,
    ) -> list[tuple[QueuedPodInfo, Strategy]]:
        """The pods this event may help, and how, in the order in which they came here."""
        moves: list[tuple[QueuedPodInfo, Strategy]] = []
        for cohort in self._cohorts.values():
            if cohort.is_concerned(event):
                moves += cohort.worth_requeuing(event, old, new, pre_check, evaluator)
        moves.sort(key=lambda item: self._slots[item[0].pod_info.key].arrival)
        return moves

    @property
    def gated_count(self) -> int:
        return self._gated_count

    @property
    def ungated_count(self) -> int:
        return len(self._slots) - self._gated_count

    def overdue(self, now: float, max_stay_s: float) -> list[QueuedPodInfo]:
        """Pods that came, or were last flushed, more than `max_stay_s` ago. The caller flushes them now."""
        overdue: list[QueuedPodInfo] = []
        self._oldest_stay = inf
        for info in self:
            since = _since(info)
            if now - since > max_stay_s:
                overdue.append(info)
            else:
                self._oldest_stay = min(self._oldest_stay, since)
        return overdue

    @property
    def oldest_stay(self) -> float | None:
        """A lower bound for the oldest entry; None if there is none."""
        return self._oldest_stay if self._slots else None

    def __contains__(self, key: str) -> bool:
        return key in self._slots

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        """Every pod, in the order in which they came here."""
        return (slot.info for slot in self._slots.values())

    def check_invariants(self) -> None:
        filed = 0
        for key, cohort in self._cohorts.items():
            assert cohort.by_class, f"cohort {key} is empty"
            for class_key, pods in cohort.by_class.items():
                assert pods, f"class {class_key!r} of cohort {key} is empty"
                for pod_key, info in pods.items():
                    filed += 1
                    assert self._slots[pod_key].info is info, (
                        f"{pod_key} is filed under an old entry"
                    )
                    assert _cohort_key(info) == key, f"{pod_key} changed without being filed anew"
                    assert (info.pod_info.class_key or None) == class_key, (
                        f"{pod_key} changed its class unnoticed"
                    )
        assert filed == len(self._slots), "the cohorts do not add up to the pool"
        assert self._gated_count == sum(info.is_gated for info in self), "gated pods are miscounted"
        assert all(_since(info) >= self._oldest_stay for info in self), (
            "a pod is older than the oldest stay"
        )
        arrivals = [slot.arrival for slot in self._slots.values()]
        assert arrivals == sorted(arrivals), "the pool is out of order"

    def _file(self, info: QueuedPodInfo, arrival: int) -> None:
        key = _cohort_key(info)
        cohort = self._cohorts.get(key)
        if cohort is None:
            cohort = self._cohorts[key] = _Cohort(key)
        class_key = (
            info.pod_info.class_key or None
        )  # an empty key means that the pod shares nothing
        pod_key = info.pod_info.key
        cohort.by_class.setdefault(class_key, {})[pod_key] = info
        self._slots[pod_key] = _Slot(info, cohort, class_key, arrival)
        self._gated_count += bool(cohort.gating_plugin)
        self._oldest_stay = min(self._oldest_stay, _since(info))

    def _unfile(self, slot: _Slot) -> None:
        cohort, class_key = slot.cohort, slot.class_key
        pods = cohort.by_class[class_key]
        del pods[slot.info.pod_info.key]
        if not pods:
            del cohort.by_class[class_key]
            if not cohort.by_class:
                del self._cohorts[cohort.key]
        self._gated_count -= bool(cohort.gating_plugin)


class _Cohort:
    """Pods that the same plugins rejected: the same events matter to all of them."""

    __slots__ = ("_relevant", "by_class", "gating_plugin", "key", "profile", "rejectors")

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.profile, unschedulable, pending, self.gating_plugin = key
        self.rejectors = unschedulable | pending
        self.by_class: dict[bytes | None, dict[str, QueuedPodInfo]] = {}
        self._relevant: dict[ResolvedEvent, tuple[QueueingHint, ...]] = {}

    def is_concerned(self, event: ResolvedEvent) -> bool:
        """Can this event help anyone here? Gated pods listen only to what their gate registered."""
        if event.is_wildcard:
            return True
        if self.gating_plugin and self.gating_plugin not in event.interested_plugins:
            return False
        return (
            self.profile not in event.hints_by_profile
            or not self.rejectors
            or bool(self._hints(event))
        )

    def worth_requeuing(
        self,
        event: ResolvedEvent,
        old: object,
        new: object,
        pre_check: PreCheck | None,
        evaluator: HintEvaluator,
    ) -> Iterator[tuple[QueuedPodInfo, Strategy]]:
        hints = self._hints(event)
        ask_per_class = bool(hints) and all(hint.per_class for hint in hints)
        for class_key, pods in self.by_class.items():
            eligible = (
                info for info in pods.values() if pre_check is None or pre_check(info.pod_info.pod)
            )
            if ask_per_class and class_key is not None:
                yield from self._by_class(
                    eligible, lambda info: evaluator.ask(hints, info, event, old, new)
                )
                continue
            for info in eligible:
                # Without hints the plugins do not decide: a wildcard, or an unknown profile.
                strategy = (
                    evaluator.ask(hints, info, event, old, new)
                    if hints
                    else evaluator.evaluate(info, event, old, new)
                )
                if strategy is not Strategy.SKIP:
                    yield info, strategy

    @staticmethod
    def _by_class(
        eligible: Iterator[QueuedPodInfo], ask: Callable[[QueuedPodInfo], Strategy]
    ) -> Iterator[tuple[QueuedPodInfo, Strategy]]:
        """Evaluate the first pod; the answer holds for the whole class, so a skip visits no other."""
        first = next(eligible, None)
        if first is None:
            return
        strategy = ask(first)
        if strategy is not Strategy.SKIP:
            yield first, strategy
            yield from ((info, strategy) for info in eligible)

    def _hints(self, event: ResolvedEvent) -> tuple[QueueingHint, ...]:
        """The hints for this event that belong to plugins behind the rejection; none for a wildcard."""
        relevant = self._relevant.get(event)
        if relevant is None:
            hints = () if event.is_wildcard else event.hints_by_profile.get(self.profile, ())
            relevant = tuple(hint for hint in hints if hint.plugin in self.rejectors)
            self._relevant[event] = relevant
        return relevant


class _Slot(NamedTuple):
    """Where a pod is filed. Removing it must work even if the pod changed since, so the place is written down."""

    info: QueuedPodInfo
    cohort: _Cohort
    class_key: bytes | None
    arrival: int


def _since(info: QueuedPodInfo) -> float:
    flushed = info.flush_timestamp
    return info.timestamp if flushed is None else max(info.timestamp, flushed)


def _cohort_key(info: QueuedPodInfo) -> _Key:
    return (
        info.pod_info.pod.spec.scheduler_name,
        frozenset(info.unschedulable_plugins),
        frozenset(info.pending_plugins),
        info.gating_plugin,
    )
