"""Classes of rejected pods that wait as one.

A pod joins its class when its failure holds for every pod of the class: any other would have got
the same answer at that moment. Pods of a class that were rejected by different plugins, at
different times, wait separately. An event is evaluated once per class, and one pod tried for all:

    asleep ──event may help──► awake: the first pod, the *head*, is in activeQ, backoffQ or in
       ▲                         │      flight; the others stay in unschedulablePods, in their order
       │                         ├─ head placed, deleted, or failed in a way of its own:
       │                         │      the next pod becomes the head
       └── head failed as class ─┘
                the others count as tried and rejected at that moment ("settled")

Settling takes constant time for any number of pods: the class counts it, and a pod's entry is
updated when it is read or leaves (`catch_up`). The order of pods is the same as after trying each
of them: they would fail in the order in which they wait, so all timestamps are renewed and the
order stays. Classes woken by one event share a timestamp, and order of arrival decides among their
pods.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from math import inf
from typing import Final

from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.scheduler.queue.cohorts import Cohort, PreCheck, since
from kubesched.scheduler.queue.hints import Strategy

STAMP_STEP_S: Final = 1e-6
"""Separates classes that had different timestamps before they were woken together."""


class Stamps:
    """Timestamps for the classes that one event wakes, in the order of their previous ones."""

    __slots__ = ("_before", "_step", "now")

    def __init__(self, now: float) -> None:
        self.now = now
        self._step, self._before = -1, inf

    def after(self, stamp: float) -> float:
        """The new timestamp of a class, given its previous one: equal ones stay equal."""
        if stamp != self._before:
            self._step, self._before = self._step + 1, stamp
        return self.now + self._step * STAMP_STEP_S


class Member:
    """A pod in unschedulablePods, individually or with its class."""

    __slots__ = ("_cohort", "arrival", "info", "settled", "waiting")

    def __init__(
        self, info: QueuedPodInfo, arrival: int, cohort: Cohort, waiting: WaitingClass | None = None
    ) -> None:
        self.info = info
        self.arrival = arrival
        self._cohort = cohort
        self.waiting = waiting
        # A pod that joins a class while its head is tried has just had its own attempt.
        self.settled = 0 if waiting is None else waiting.settled + waiting.is_awake

    @property
    def cohort(self) -> Cohort:
        return self._cohort if self.waiting is None else self.waiting.cohort

    def catch_up(self) -> QueuedPodInfo:
        """The entry as if the pod had been tried whenever its class was settled."""
        info, waiting = self.info, self.waiting
        if waiting is None:
            return info
        missed = waiting.settled - self.settled
        if missed > 0:
            self.settled = waiting.settled
            info.attempts += missed
            info.unschedulable_count += missed
            info.timestamp = max(info.timestamp, waiting.stamp)
            info.backoff_expiration = None
            info.was_flushed_from_unschedulable = False
            info.flush_timestamp = None
        info.unschedulable_plugins = waiting.cohort.unschedulable
        info.pending_plugins = waiting.cohort.pending
        return info


class WaitingClass:
    """Pods of one class, all rejected by the same plugins."""

    __slots__ = (
        "_next_stamp",
        "class_key",
        "cohort",
        "flushed_at",
        "has_newcomers",
        "head_arrival",
        "head_uid",
        "label",
        "members",
        "message",
        "place",
        "settled",
        "stamp",
        "strategy",
    )

    def __init__(self, class_key: bytes, cohort: Cohort, message: str) -> None:
        self.class_key = class_key
        self.cohort = cohort
        self.members: OrderedDict[str, Member] = OrderedDict()
        """Parked pods by key, in scheduling order."""
        self.settled = 0
        """Number of times the class was settled."""
        self.stamp = -inf
        """Timestamp of the last settlement."""
        self.message: str | None = message
        """The reason for the failure, if all pods had the same report."""
        self.head_uid = ""
        self.head_arrival = 0
        self.strategy = Strategy.SKIP
        self.label = ""
        """The event that woke it."""
        self.place = ""
        """The queue that the head entered."""
        self.flushed_at: float | None = None
        self.has_newcomers = False
        """True if pods joined while it was awake; they had attempts of their own."""
        self._next_stamp = -inf

    @property
    def is_awake(self) -> bool:
        return self.strategy is not Strategy.SKIP

    @property
    def since(self) -> float:
        """Start of the first pod's wait."""
        first = next(iter(self.members.values()))
        stayed = since(first.info)
        return max(stayed, self.stamp) if first.settled < self.settled else stayed

    @property
    def last_tried(self) -> float:
        """When its pods were last tried; that of the first pod if they were tried one by one."""
        return self.stamp if self.settled else next(iter(self.members.values())).info.timestamp

    def wake(self, strategy: Strategy, label: str, stamp: float, flushed_at: float | None) -> None:
        self.strategy, self.label, self.flushed_at = strategy, label, flushed_at
        self._next_stamp = stamp

    def sleep(self) -> None:
        self.strategy, self.head_uid, self.flushed_at = Strategy.SKIP, "", None

    def settle(self, message: str) -> tuple[int, list[str]]:
        """Count all pods as tried and rejected at the time the class was woken.

        Returns their number without newcomers, and the keys of pods last told another message.
        """
        self.settled += 1
        self.stamp = self._next_stamp
        self.sleep()
        untold = [] if self.message == message else [*self.members]
        self.message = message
        others = len(self.members)
        if self.has_newcomers:
            others = sum(member.settled < self.settled for member in self.members.values())
            self.has_newcomers = False
        return others, untold

    def put_back(self, head: Member) -> None:
        """Put the head before the others, unless older pods of another class have joined."""
        first = next(iter(self.members.values()), head)
        key = head.info.pod_info.key
        self.members[key] = head
        self.members.move_to_end(key, last=False)
        if first.arrival < head.arrival:
            self.sort()

    def sort(self) -> None:
        by_arrival = sorted(self.members.items(), key=lambda entry: entry[1].arrival)
        self.members = OrderedDict(by_arrival)

    def asked(self, pre_check: PreCheck | None) -> QueuedPodInfo | None:
        """A pod to evaluate hints for; None if the event does not concern this class.

        A restriction may distinguish pods of a class only by UID, so checking two is enough.
        """
        for member in islice(self.members.values(), 2):
            if pre_check is None or pre_check(member.info.pod_info.pod):
                return member.info
        return None
