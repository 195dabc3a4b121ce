"""unschedulablePods: pods that were rejected and wait for an event.

Two kinds live here. *Unschedulable* pods were tried and rejected; *gated* ones were kept out of the queues by a
PreEnqueue plugin. Either way the rejecting plugins decide which events matter.

Most events matter to no pod here, and there may be tens of thousands of pods. Pods whose failure holds for their whole
class wait as one (`waiting_classes`). All others are filed in *cohorts*: same profile, same plugins that rejected them, same
gate. Whether any hint applies is asked once per cohort, not per pod, and within a cohort hints that look only at a pod's
class are asked once per class. The outcome is exactly what asking every pod would give.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from math import inf
from typing import Final, NamedTuple

from kubesched.api.core_v1 import Pod
from kubesched.api.names import key_of
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.metrics import SchedulerMetrics
from kubesched.queue.hints import HintEvaluator, ResolvedEvent, Strategy
from kubesched.queue.rejection import PreCheck, Rejection, RejectionKey, rejection_key, since
from kubesched.queue.waiting_classes import WaitingClass, WaitingClasses

UNSCHEDULABLE: Final = "unschedulable"


class UnschedulablePods:
    """The pool, filed by class or by cohort."""

    def __init__(self, metrics: SchedulerMetrics) -> None:
        self._slots: dict[str, _Slot] = {}
        self._cohorts: dict[RejectionKey, _Cohort] = {}
        self._rejections: dict[RejectionKey, Rejection] = {}
        self.classes = WaitingClasses(metrics)
        self._arrivals = 0
        self._gated_count = 0
        self._oldest_stay = inf
        self._oldest_left = inf
        """During a flush, the oldest stay of what it leaves here and of what came since."""
        self._incoming = metrics.queue_incoming_pods_total

    def add_or_update(self, info: QueuedPodInfo, event_label: str) -> None:
        """Put a pod in, or file it anew after it changed; only a pod that was not here counts as incoming."""
        if not self.refile(info):
            self._arrivals += 1
            self._file(info, self._arrivals)
            self._incoming.labels(UNSCHEDULABLE, event_label).inc()

    def refile(self, info: QueuedPodInfo) -> bool:
        """File a pod anew under its key, keeping its place; False if the key is not here."""
        key = info.pod_info.key
        if key in self.classes:
            if not self.classes.replace(info):
                arrival = self.classes.arrival_of(key)
                self.classes.remove(key)
                self._file(info, arrival)
            return True
        slot = self._slots.get(key)
        if slot is None:
            return False
        self._unfile(slot)
        self._file(info, slot.arrival)
        return True

    def park(self, info: QueuedPodInfo, event_label: str, message: str) -> None:
        """Put in a pod whose failure holds for its whole class."""
        self._arrivals += 1
        self.classes.file(info, self._rejection(info), self._arrivals, message)
        self._parked(info, event_label, 1)

    def settle(self, info: QueuedPodInfo, event_label: str, message: str) -> tuple[int, list[str]]:
        """Put in the head of a class whose failure holds for the whole class: the others count as tried and rejected.

        Returns how many others there are, and the keys of those that were last told something else.
        """
        self._arrivals += 1
        others, untold = self.classes.settle(info, self._rejection(info), self._arrivals, message)
        self._parked(info, event_label, 1 + others)
        return others, untold

    def dissolve_classes(self) -> list[tuple[QueuedPodInfo, WaitingClass]]:
        """File every pod on its own, except pods behind a head: they are removed and returned with their class."""
        woken: list[tuple[QueuedPodInfo, WaitingClass]] = []
        for member in self.classes.take_all():
            info = member.catch_up()
            info.backoff_expiration = None  # of the head, it followed from its own attempt
            if member.waiting.is_awake:
                woken.append((info, member.waiting))
            else:
                self._file(info, member.arrival)
        # As in a queue made from the checkpoint: a flush takes the pods in this order.
        self._slots = dict(sorted(self._slots.items(), key=lambda slot: slot[1].arrival))
        return woken

    def remove(self, key: str) -> QueuedPodInfo | None:
        slot = self._slots.pop(key, None)
        if slot is None:
            return self.classes.remove(key)
        self._unfile(slot)
        return slot.info

    def get(self, key: str) -> QueuedPodInfo | None:
        slot = self._slots.get(key)
        return self.classes.get(key) if slot is None else slot.info

    def worth_requeuing(
        self,
        event: ResolvedEvent,
        old: object,
        new: object,
        pre_check: PreCheck | None,
        evaluator: HintEvaluator,
    ) -> list[tuple[QueuedPodInfo, Strategy]]:
        """The pods this event may help, and how, in the order in which they came here; without those woken by class."""
        asked = (event, old, new, pre_check, evaluator)
        moves = [*self.classes.worth_requeuing(*asked)]
        for cohort in self._cohorts.values():
            if cohort.rejection.is_concerned(event):
                moves += cohort.worth_requeuing(*asked)
        moves.sort(key=lambda item: self._arrival_of(item[0].pod_info.key))
        return moves

    @property
    def arrivals(self) -> int:
        """How many pods have come here so far."""
        return self._arrivals

    def lone_keys(self, event: ResolvedEvent) -> Collection[str]:
        """The pods that do not wait with their class; none if the event concerns none of them."""
        is_concerned = any(
            cohort.rejection.is_concerned(event) for cohort in self._cohorts.values()
        )
        return self._slots.keys() if is_concerned else ()

    def evaluate(
        self,
        key: str,
        event: ResolvedEvent,
        old: object,
        new: object,
        pre_check: PreCheck | None,
        evaluator: HintEvaluator,
        mark: int,
    ) -> tuple[QueuedPodInfo, Strategy] | None:
        """A pod that the event may help, and how, if it came here before that many others had."""
        info = self.get(key)
        if info is None or self._arrival_of(key) > mark:
            return None
        rejection = self._rejection(info)
        if not rejection.is_concerned(event):
            return None
        if pre_check is not None and not pre_check(info.pod_info.pod):
            return None
        strategy = rejection.evaluate(info, event, old, new, evaluator)
        return None if strategy is Strategy.SKIP else (info, strategy)

    @property
    def gated_count(self) -> int:
        return self._gated_count

    @property
    def ungated_count(self) -> int:
        return len(self) - self._gated_count

    def keys(self) -> Collection[str]:
        """The pods that do not wait with their class."""
        return self._slots.keys()

    def begin_flush(self) -> None:
        self._oldest_left = inf

    def end_flush(self) -> None:
        self._oldest_stay = self._oldest_left

    def flushed(
        self,
        keys: Iterable[str],
        classes: Iterable[WaitingClass],
        now: float,
        max_stay_s: float,
        mark: int,
    ) -> tuple[list[tuple[QueuedPodInfo, Strategy]], list[tuple[WaitingClass, Strategy]]]:
        """Pods and sleeping classes, among some, that have waited for longer than that; the pods count as flushed now."""
        overdue: list[tuple[QueuedPodInfo, Strategy]] = []
        for key in keys:
            slot = self._slots.get(key)
            if slot is None or slot.arrival > mark:
                continue
            info = slot.info
            if now - since(info) > max_stay_s:
                info.was_flushed_from_unschedulable = True
                info.flush_timestamp = now
                overdue.append((info, Strategy.AFTER_BACKOFF))
            else:
                self._oldest_left = min(self._oldest_left, since(info))
        woken: list[tuple[WaitingClass, Strategy]] = []
        for waiting in classes:
            if waiting.is_awake or not waiting.members:
                continue
            if now - waiting.since > max_stay_s:
                woken.append((waiting, Strategy.AFTER_BACKOFF))
            else:
                self._oldest_left = min(self._oldest_left, waiting.since)
        return overdue, woken

    @property
    def oldest_stay(self) -> float | None:
        """A lower bound for the oldest entry that waits for an event; None if there is none."""
        return self._oldest_stay if len(self) and self._oldest_stay != inf else None

    def __contains__(self, key: str) -> bool:
        return key in self._slots or key in self.classes

    def __len__(self) -> int:
        return len(self._slots) + len(self.classes)

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        """Every pod, in the order in which they came here."""
        entries = [(slot.arrival, slot.info) for slot in self._slots.values()]
        entries += [(member.arrival, member.catch_up()) for member in self.classes]
        entries.sort(key=lambda entry: entry[0])
        return (info for _arrival, info in entries)

    def check_invariants(self) -> None:
        self.classes.check_invariants()
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
                    assert rejection_key(info) == key, f"{pod_key} changed without being filed anew"
                    assert (info.pod_info.class_key or None) == class_key, (
                        f"{pod_key} changed its class unnoticed"
                    )
        assert filed == len(self._slots), "the cohorts do not add up to the pool"
        assert not any(member.info.pod_info.key in self._slots for member in self.classes), (
            "a pod is filed alone and with its class"
        )
        assert self._gated_count == sum(info.is_gated for info in self), "gated pods are miscounted"
        waits = [slot.info for slot in self._slots.values()]
        waits += [member.catch_up() for member in self.classes if not member.waiting.is_awake]
        assert all(since(info) >= self._oldest_stay for info in waits), (
            "a pod is older than the oldest stay"
        )

    def _file(self, info: QueuedPodInfo, arrival: int) -> None:
        rejection = self._rejection(info)
        cohort = self._cohorts.get(rejection.key)
        if cohort is None:
            cohort = self._cohorts[rejection.key] = _Cohort(rejection)
        class_key = (
            info.pod_info.class_key or None
        )  # an empty key means that the pod shares nothing
        pod_key = info.pod_info.key
        cohort.by_class.setdefault(class_key, {})[pod_key] = info
        self._slots[pod_key] = _Slot(info, cohort, class_key, arrival)
        self._gated_count += bool(rejection.gating_plugin)
        self._note_stay(info)

    def _unfile(self, slot: _Slot) -> None:
        cohort, class_key = slot.cohort, slot.class_key
        pods = cohort.by_class[class_key]
        del pods[slot.info.pod_info.key]
        if not pods:
            del cohort.by_class[class_key]
            if not cohort.by_class:
                del self._cohorts[cohort.rejection.key]
        self._gated_count -= bool(cohort.rejection.gating_plugin)

    def _parked(self, info: QueuedPodInfo, event_label: str, count: int) -> None:
        self._note_stay(info)
        self._incoming.labels(UNSCHEDULABLE, event_label).inc(count)

    def _note_stay(self, info: QueuedPodInfo) -> None:
        stay = since(info)
        if stay < self._oldest_stay:
            self._oldest_stay = stay
        if stay < self._oldest_left:
            self._oldest_left = stay

    def _rejection(self, info: QueuedPodInfo) -> Rejection:
        key = rejection_key(info)
        rejection = self._rejections.get(key)
        if rejection is None:
            # Plugins combine in a few ways only, so this stays small.
            rejection = self._rejections[key] = Rejection(key)
        return rejection

    def _arrival_of(self, key: str) -> int:
        slot = self._slots.get(key)
        return self.classes.arrival_of(key) if slot is None else slot.arrival


class _Cohort:
    """Pods that the same plugins rejected: the same events matter to all of them."""

    __slots__ = ("by_class", "rejection")

    def __init__(self, rejection: Rejection) -> None:
        self.rejection = rejection
        self.by_class: dict[bytes | None, dict[str, QueuedPodInfo]] = {}

    def worth_requeuing(
        self,
        event: ResolvedEvent,
        old: object,
        new: object,
        pre_check: PreCheck | None,
        evaluator: HintEvaluator,
    ) -> Iterator[tuple[QueuedPodInfo, Strategy]]:
        rejection = self.rejection
        ask_per_class = bool(rejection.hints(event)) and rejection.asks_per_class(event)
        # A hint may await the very pod that the event is about.
        own_keys = {key_of(obj.metadata) for obj in (old, new) if isinstance(obj, Pod)}
        for class_key, pods in self.by_class.items():
            eligible = (
                info for info in pods.values() if pre_check is None or pre_check(info.pod_info.pod)
            )
            if ask_per_class and class_key is not None and own_keys.isdisjoint(pods):
                yield from self._by_class(
                    eligible, lambda info: rejection.evaluate(info, event, old, new, evaluator)
                )
                continue
            for info in eligible:
                strategy = rejection.evaluate(info, event, old, new, evaluator)
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


class _Slot(NamedTuple):
    """Where a pod is filed. Removing it must work even if the pod changed since, so the place is written down."""

    info: QueuedPodInfo
    cohort: _Cohort
    class_key: bytes | None
    arrival: int
