"""Classes of rejected pods that wait as one.

A pod joins its class when its failure holds for every pod of the class: any other would have got the same answer at that
moment. Pods of a class that different plugins rejected, at different times, wait apart. An event is then evaluated once per
class, and one pod is tried for all:

    asleep ──event may help──► awake: the first pod, the *head*, is in activeQ, backoffQ or in flight; the others stay
       ▲                         │      parked in unschedulablePods, in their order
       │                         ├─ head placed, deleted, or failed in a way of its own ──► the next pod becomes the head
       └── head failed as class ─┘
                                    the parked pods count as tried and rejected at that moment ("settled")

Settling takes the same time for ten pods as for ten thousand: the class counts it, and a pod's entry is brought up to date
when it is read or leaves (`catch_up`). The order of pods is the one that trying all of them would give. They fail
in the order in which they wait, so all time stamps are renewed and the order stays. Classes woken by one event share a time
stamp, and the order of arrival decides among their pods.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from math import inf
from typing import Final

from kubesched.api.core_v1 import Pod
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.metrics import SchedulerMetrics
from kubesched.queue.hints import HintEvaluator, ResolvedEvent, Strategy
from kubesched.queue.rejection import PreCheck, Rejection, since

STAMP_STEP_S: Final = 1e-6
"""Keeps classes apart that had different time stamps before they were woken together."""

FIRST_TURN: Final = -(2**62)
"""Among equals, pods that are tried for their class go first, in the order of their arrival."""


class Stamps:
    """Time stamps for the classes that one event wakes, in the order of their last ones."""

    __slots__ = ("_before", "_step", "now")

    def __init__(self, now: float) -> None:
        self.now = now
        self._step, self._before = -1, inf

    def after(self, stamp: float) -> float:
        """The new time stamp of a class, given its last one: equal ones stay equal."""
        if stamp != self._before:
            self._step, self._before = self._step + 1, stamp
        return self.now + self._step * STAMP_STEP_S


class Member:
    """A parked pod."""

    __slots__ = ("arrival", "info", "settled", "waiting")

    def __init__(self, info: QueuedPodInfo, waiting: WaitingClass, arrival: int) -> None:
        self.info = info
        self.waiting = waiting
        self.arrival = arrival
        # A pod that joins a class while its head is tried has just been tried itself.
        self.settled = waiting.settled + (waiting.strategy is not Strategy.SKIP)

    def catch_up(self) -> QueuedPodInfo:
        """The entry as it would be had the pod been tried whenever its class was."""
        info, waiting = self.info, self.waiting
        missed = waiting.settled - self.settled
        if missed > 0:
            self.settled = waiting.settled
            info.attempts += missed
            info.unschedulable_count += missed
            info.timestamp = max(info.timestamp, waiting.stamp)
            info.backoff_expiration = None
            info.was_flushed_from_unschedulable = False
            info.flush_timestamp = None
        info.unschedulable_plugins = waiting.rejection.unschedulable
        info.pending_plugins = waiting.rejection.pending
        return info


class WaitingClass:
    """Pods of one class, all rejected by the same plugins."""

    __slots__ = (
        "_next_stamp",
        "asleep_since",
        "class_key",
        "flushed_at",
        "head_arrival",
        "head_uid",
        "label",
        "members",
        "message",
        "place",
        "rejection",
        "settled",
        "stamp",
        "strategy",
    )

    def __init__(self, class_key: bytes, rejection: Rejection, arrival: int) -> None:
        self.class_key = class_key
        self.rejection = rejection
        self.asleep_since = arrival
        """Its place in the order of arrivals when it last fell asleep."""
        self.members: OrderedDict[str, Member] = OrderedDict()
        """Parked pods by key, in the order in which they will be tried."""
        self.settled = 0
        """How often the class was settled."""
        self.stamp = -inf
        """The time stamp of the last time."""
        self.message: str | None = None
        """Why they fit nowhere, if all of them were told the same."""
        self.head_uid = ""
        self.head_arrival = 0
        self.strategy = Strategy.SKIP
        self.label = ""
        """The event that woke it."""
        self.place = ""
        """The queue that the head went to."""
        self.flushed_at: float | None = None
        self._next_stamp = -inf

    @property
    def key(self) -> tuple[bytes, Rejection]:
        return self.class_key, self.rejection

    @property
    def is_awake(self) -> bool:
        return self.strategy is not Strategy.SKIP

    @property
    def since(self) -> float:
        """How long its pods have waited: since when the first one has."""
        first = next(iter(self.members.values()))
        stayed = since(first.info)
        return max(stayed, self.stamp) if first.settled < self.settled else stayed

    def wake(self, strategy: Strategy, label: str, stamp: float, flushed_at: float | None) -> None:
        self.strategy, self.label, self.flushed_at = strategy, label, flushed_at
        self._next_stamp = stamp

    def settle(self) -> None:
        """Its pods count as tried and rejected when the class was woken."""
        self.settled += 1
        self.stamp = self._next_stamp
        self.strategy, self.head_uid, self.flushed_at = Strategy.SKIP, "", None

    def restore_order(self) -> None:
        """Sort the pods by arrival, after others came from another class: while a head is tried, they may precede it."""
        by_arrival = sorted(self.members.items(), key=lambda entry: entry[1].arrival)
        self.members = OrderedDict(by_arrival)

    def sleep(self) -> None:
        self.strategy, self.head_uid, self.flushed_at = Strategy.SKIP, "", None

    def asked(self, pre_check: PreCheck | None, own_uid: str) -> QueuedPodInfo | None:
        """A pod to ask hints about; None if the event is not meant for this class.

        A restriction tells pods of a class apart by their UID at most, and a hint of its own may await the pod that the
        event is about. So two pods are enough to look at.
        """
        asked: QueuedPodInfo | None = None
        for member in islice(self.members.values(), 2):
            info = member.info
            if pre_check is not None and not pre_check(info.pod_info.pod):
                continue
            asked = info
            if info.pod_info.uid != own_uid:
                break
        return asked


_Key = tuple[bytes, Rejection]


class WaitingClasses:
    """All classes with parked pods or a head."""

    def __init__(self, metrics: SchedulerMetrics) -> None:
        self._members: dict[str, Member] = {}
        self._classes: dict[_Key, WaitingClass] = {}
        self._by_rejection: dict[Rejection, dict[bytes, WaitingClass]] = {}
        self._heads: dict[str, WaitingClass] = {}
        self._rejected = metrics.unschedulable_pods

    def file(self, info: QueuedPodInfo, rejection: Rejection, arrival: int, message: str) -> None:
        """Park a pod behind the others of its class; the message is why it fits nowhere."""
        class_key = info.pod_info.class_key
        assert class_key, f"{info} has no class to wait in"
        waiting = self._classes.get((class_key, rejection))
        if waiting is None:
            waiting = WaitingClass(class_key, rejection, arrival)
            self._keep(waiting)
            waiting.message = message
        elif waiting.message != message:
            waiting.message = None
        self._park(Member(info, waiting, arrival))

    def settle(
        self, info: QueuedPodInfo, rejection: Rejection, now: int, message: str
    ) -> tuple[int, list[str]]:
        """Settle the class of its head, which goes back to its place before the others; `now` counts arrivals.

        Returns how many others there are, and the keys of those that were last told something else.
        """
        waiting = self._heads.pop(info.pod_info.uid)
        arrival = waiting.head_arrival
        waiting.settle()
        waiting.asleep_since = now
        others = len(waiting.members)
        untold = [] if waiting.message == message else [*waiting.members]
        waiting.message = message
        info.timestamp = waiting.stamp
        members = waiting.members
        is_first = not members or arrival < next(iter(members.values())).arrival
        self._park(Member(info, waiting, arrival))
        members.move_to_end(info.pod_info.key, last=False)
        if not is_first:
            waiting.restore_order()
        if rejection is not waiting.rejection:
            self._reject(waiting, rejection)
        return others, untold

    def replace(self, info: QueuedPodInfo) -> bool:
        """Replace a parked pod's entry with a newer version; False if that belongs elsewhere."""
        member = self._members[info.pod_info.key]
        if (
            info.pod_info.class_key != member.waiting.class_key
            or info.pod_info.pod.status.nominated_node_name
            or info.is_gated
        ):
            return False
        member.info = info
        return True

    def remove(self, key: str) -> QueuedPodInfo | None:
        member = self._members.pop(key, None)
        if member is None:
            return None
        info, waiting = member.catch_up(), member.waiting
        del waiting.members[key]
        if not waiting.members and not waiting.is_awake:
            self._drop(waiting)
        return info

    def take_all(self) -> list[Member]:
        """Remove everything; returns the parked pods in the order of arrival."""
        members = sorted(self._members.values(), key=lambda member: member.arrival)
        self._members.clear()
        self._classes.clear()
        self._by_rejection.clear()
        self._heads.clear()
        return members

    def get(self, key: str) -> QueuedPodInfo | None:
        member = self._members.get(key)
        return None if member is None else member.catch_up()

    def arrival_of(self, key: str) -> int:
        return self._members[key].arrival

    # -- waking ----------------------------------------------------------------------------------------------------

    def wake(
        self,
        woken: Iterable[tuple[WaitingClass, Strategy]],
        label: str,
        stamps: Stamps,
        *,
        is_flush: bool = False,
    ) -> None:
        """Wake classes. Those that were settled at different times stay in that order."""
        for waiting, strategy in sorted(woken, key=lambda entry: entry[0].stamp):
            flushed_at = stamps.now if is_flush else None
            waiting.wake(strategy, label, stamps.after(waiting.stamp), flushed_at)

    def next_head(self, waiting: WaitingClass) -> tuple[QueuedPodInfo, int] | None:
        """Take the first pod of a woken class and its turn; None, and the class sleeps, if there is none left."""
        self._heads.pop(waiting.head_uid, None)
        if not waiting.members:
            waiting.sleep()
            self._drop(waiting)
            return None
        key, member = next(iter(waiting.members.items()))
        info = self.remove(key)
        assert info is not None, f"{key} is parked"
        waiting.head_uid, waiting.head_arrival = info.pod_info.uid, member.arrival
        self._heads[waiting.head_uid] = waiting
        if waiting.flushed_at is not None:
            info.was_flushed_from_unschedulable = True
            info.flush_timestamp = waiting.flushed_at
        return info, member.arrival + FIRST_TURN

    def is_behind_head(self, key: str) -> bool:
        member = self._members.get(key)
        return member is not None and member.waiting.is_awake

    def class_of(self, key: str) -> WaitingClass | None:
        """The class that a pod is parked in."""
        member = self._members.get(key)
        return None if member is None else member.waiting

    def headed_by(self, uid: str) -> WaitingClass | None:
        """The class for which that pod is tried."""
        return self._heads.get(uid)

    def worth_waking(
        self,
        event: ResolvedEvent,
        old: object,
        new: object,
        pre_check: PreCheck | None,
        evaluator: HintEvaluator,
        among: Iterable[WaitingClass] | None = None,
    ) -> list[tuple[WaitingClass, Strategy]]:
        """Sleeping classes (of some) that the event may help, where one answer holds for all pods of a class."""
        own_uid = _uid_of(new) or _uid_of(old)
        woken: list[tuple[WaitingClass, Strategy]] = []
        for waiting in self._asleep(event, among):
            rejection = waiting.rejection
            if not rejection.asks_per_class(event):
                continue
            info = waiting.asked(pre_check, own_uid)
            if info is None:
                continue
            strategy = rejection.evaluate(info, event, old, new, evaluator)
            if strategy is not Strategy.SKIP:
                woken.append((waiting, strategy))
        return woken

    def worth_requeuing(
        self,
        event: ResolvedEvent,
        old: object,
        new: object,
        pre_check: PreCheck | None,
        evaluator: HintEvaluator,
    ) -> Iterator[tuple[QueuedPodInfo, Strategy]]:
        """Single pods that the event may help, where some hint looks at the very pod."""
        for waiting in self._asleep(event):
            rejection = waiting.rejection
            if rejection.asks_per_class(event):
                continue
            for member in waiting.members.values():
                info = member.catch_up()
                if pre_check is None or pre_check(info.pod_info.pod):
                    strategy = rejection.evaluate(info, event, old, new, evaluator)
                    if strategy is not Strategy.SKIP:
                        yield info, strategy

    def asked_one_by_one(self, event: ResolvedEvent, among: Iterable[WaitingClass]) -> list[str]:
        """Keys of the pods of sleeping classes where some hint looks at the very pod."""
        return [
            key
            for waiting in self._asleep(event, among)
            if not waiting.rejection.asks_per_class(event)
            for key in waiting.members
        ]

    def _asleep(
        self, event: ResolvedEvent, among: Iterable[WaitingClass] | None = None
    ) -> list[WaitingClass]:
        if among is None:
            return [waiting for waiting in self.concerned(event) if not waiting.is_awake]
        return [
            waiting
            for waiting in among
            if not waiting.is_awake and waiting.members and waiting.rejection.is_concerned(event)
        ]

    def concerned(self, event: ResolvedEvent) -> list[WaitingClass]:
        """Classes with parked pods that the event could help, by the plugins that rejected them."""
        kept = self._by_rejection
        concerned = [rejection for rejection in kept if rejection.is_concerned(event)]
        if len(concerned) == len(kept):
            return self.classes()
        classes = (kept[rejection].values() for rejection in concerned)
        return [waiting for waiting in chain.from_iterable(classes) if waiting.members]

    def current(self, waiting: WaitingClass) -> WaitingClass | None:
        """The class itself, or the one that it was merged into; None if it is gone."""
        return self._classes.get(waiting.key)

    # -- what is where ---------------------------------------------------------------------------------------------

    def classes(self) -> list[WaitingClass]:
        """Classes with parked pods."""
        return [waiting for waiting in self._classes.values() if waiting.members]

    def heads(self) -> list[str]:
        """UIDs of the pods tried for their classes."""
        return list(self._heads)

    def __contains__(self, key: str) -> bool:
        return key in self._members

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def check_invariants(self) -> None:
        parked = 0
        by_rejection = {
            (class_key, rejection): waiting
            for rejection, classes in self._by_rejection.items()
            for class_key, waiting in classes.items()
        }
        assert by_rejection == self._classes, "a class is filed under another rejection"
        assert all(self._by_rejection.values()), "a rejection is kept without classes"
        for filed_as, waiting in self._classes.items():
            assert waiting.key == filed_as, "a class is filed under another key"
            class_key = waiting.class_key
            assert waiting.members or waiting.is_awake, f"class {class_key!r} is empty"
            assert waiting.is_awake == bool(waiting.head_uid), "a class is awake without a head"
            if waiting.is_awake:
                assert self._heads.get(waiting.head_uid) is waiting, "a head is not known as one"
            arrivals = [member.arrival for member in waiting.members.values()]
            assert arrivals == sorted(arrivals), f"class {class_key!r} is out of order"
            for key, member in waiting.members.items():
                parked += 1
                assert self._members.get(key) is member, f"{key} is filed under an old entry"
                assert member.waiting is waiting, f"{key} is filed in another class"
                assert member.info.pod_info.class_key == class_key, f"{key} changed its class"
                assert not member.info.is_gated, f"{key} is gated and parked"
        assert parked == len(self._members), "the classes do not add up to the parked pods"
        for uid, waiting in self._heads.items():
            assert waiting.is_awake, "a head stands for a class that sleeps"
            assert waiting.head_uid == uid, "a head stands for no class"

    def _reject(self, waiting: WaitingClass, rejection: Rejection) -> None:
        """Other plugins than before have rejected a settled class, head included."""
        before = waiting.rejection
        self._drop(waiting)
        waiting.rejection = rejection
        there = self._classes.get(waiting.key)
        self._keep(waiting)
        # The head was counted when its attempt failed.
        count, profile = len(waiting.members) - 1, rejection.profile
        for plugin in before.rejectors - rejection.rejectors:
            self._rejected.labels(plugin, profile).inc(-count)
        for plugin in rejection.rejectors - before.rejectors:
            self._rejected.labels(plugin, profile).inc(count)
        if there is not None:
            self._merge(there, waiting)

    def _merge(self, one: WaitingClass, other: WaitingClass) -> None:
        """Make one class of two that wait for the same; a class that is awake stays so."""
        small, large = sorted((one, other), key=lambda waiting: len(waiting.members))
        if small.is_awake:
            small, large = large, small
        for member in small.members.values():
            self._park(Member(member.catch_up(), large, member.arrival))
        by_arrival = sorted(large.members.items(), key=lambda entry: entry[1].arrival)
        large.members = OrderedDict(by_arrival)
        large.asleep_since = min(large.asleep_since, small.asleep_since)
        if large.message != small.message:
            large.message = None
        self._keep(large)

    def _park(self, member: Member) -> None:
        key = member.info.pod_info.key
        member.waiting.members[key] = member
        self._members[key] = member

    def _keep(self, waiting: WaitingClass) -> None:
        self._classes[waiting.key] = waiting
        classes = self._by_rejection.setdefault(waiting.rejection, {})
        classes[waiting.class_key] = waiting

    def _drop(self, waiting: WaitingClass) -> None:
        del self._classes[waiting.key]
        classes = self._by_rejection[waiting.rejection]
        del classes[waiting.class_key]
        if not classes:
            del self._by_rejection[waiting.rejection]


def _uid_of(obj: object) -> str:
    return obj.metadata.uid if isinstance(obj, Pod) else ""
