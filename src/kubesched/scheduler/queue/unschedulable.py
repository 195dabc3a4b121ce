"""unschedulablePods: rejected pods that wait for an event.

*Unschedulable* pods were tried and rejected; *gated* pods were kept out of the queues by a
PreEnqueue plugin. In both cases the rejecting plugins determine which events matter.

Most events concern no pod here, and there may be tens of thousands of pods. So they are grouped in
*cohorts*: same profile, same rejecting plugins, same gate. Whether any hint applies is checked once
per cohort. Within it, pods whose failure holds for their whole class wait as one
(`waiting_classes`), all others individually.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import Final, TypeAlias, TypeVar

from kubesched.base.metrics import SchedulerMetrics
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.scheduler.queue.cohorts import Cohort, CohortKey, PreCheck, cohort_key, since
from kubesched.scheduler.queue.hints import HintEvaluator, Narrowed, ResolvedEvent, Strategy
from kubesched.scheduler.queue.incoming import Incoming
from kubesched.scheduler.queue.waiting_classes import Member, WaitingClass

T = TypeVar("T")
Judged: TypeAlias = list[tuple[T, Strategy]]

UNSCHEDULABLE: Final = "unschedulable"
GATED: Final = "gated"
FIRST_TURN: Final = -(2**62)
"""Among equal ranks, pods that are tried for their class go first, in order of arrival."""


class UnschedulablePods:
    """The pool, grouped by rejecting plugins."""

    def __init__(self, metrics: SchedulerMetrics, incoming: Incoming) -> None:
        self._members: dict[str, Member] = {}
        self._cohorts: dict[CohortKey, Cohort] = {}
        """Empty cohorts are kept: there are few combinations of plugins."""
        self._heads: dict[str, WaitingClass] = {}
        """The pods that are tried for their class, by UID."""
        self._arrivals = 0
        self._gated_count = 0
        self._oldest_stay = inf
        self._incoming = incoming
        self._rejected = metrics.unschedulable_pods

    # Adding and removing pods.

    def add_or_update(self, info: QueuedPodInfo, event_label: str, decided: str = "") -> None:
        """Add a pod, or regroup it after a change; only a new pod counts as incoming."""
        if not self.refile(info):
            self._file(info, self._next_arrival())
            self._incoming.count(UNSCHEDULABLE, event_label, decided)

    def refile(self, info: QueuedPodInfo) -> bool:
        """Regroup a pod, keeping its position; False if its key is not here."""
        member = self._members.get(info.pod_info.key)
        if member is None:
            return False
        if member.waiting is not None and _belongs_to(info, member.waiting):
            member.info = info
            return True
        self.remove(info.pod_info.key)
        self._file(info, member.arrival)
        return True

    def remove(self, key: str) -> QueuedPodInfo | None:
        member = self._members.pop(key, None)
        if member is None:
            return None
        info, waiting = member.catch_up(), member.waiting
        if waiting is None:
            del member.cohort.alone[key]
            self._gated_count -= bool(member.cohort.gating_plugin)
        else:
            del waiting.members[key]
            if not waiting.members and not waiting.is_awake:
                del waiting.cohort.classes[waiting.class_key]
        return info

    def get(self, key: str) -> QueuedPodInfo | None:
        member = self._members.get(key)
        return None if member is None else member.catch_up()

    def get_parked(self, key: str) -> QueuedPodInfo | None:
        """The entry of a pod that waits with its class."""
        member = self._members.get(key)
        return None if member is None or member.waiting is None else member.catch_up()

    def _file(self, info: QueuedPodInfo, arrival: int) -> None:
        cohort, key = self._cohort_of(info), info.pod_info.key
        cohort.alone[key] = self._members[key] = Member(info, arrival, cohort)
        self._gated_count += bool(cohort.gating_plugin)
        self._incoming.list_size(GATED if cohort.gating_plugin else UNSCHEDULABLE)
        self._note_stay(since(info))

    def _next_arrival(self) -> int:
        self._arrivals += 1
        return self._arrivals

    def _cohort_of(self, info: QueuedPodInfo) -> Cohort:
        key = cohort_key(info)
        cohort = self._cohorts.get(key)
        if cohort is None:
            cohort = self._cohorts[key] = Cohort(key)
        return cohort

    # Classes of pods that wait as one.

    def park(self, info: QueuedPodInfo, event_label: str, message: str) -> None:
        """Add a pod whose failure holds for its whole class; `message` is the reason."""
        class_key = info.pod_info.class_key
        assert class_key, f"{info} has no class to wait in"
        cohort = self._cohort_of(info)
        waiting = cohort.classes.get(class_key)
        if waiting is None:
            waiting = cohort.classes[class_key] = WaitingClass(class_key, cohort, message)
        elif waiting.message != message:
            waiting.message = None
        self._park(Member(info, self._next_arrival(), cohort, waiting))
        self._incoming.enter(UNSCHEDULABLE, event_label, UNSCHEDULABLE)

    def settle(self, info: QueuedPodInfo, event_label: str, message: str) -> tuple[int, list[str]]:
        """Add the head of a class whose failure holds for all: the others count as rejected too.

        Returns the number of others, and the keys of those whose last report was different.
        """
        waiting = self._heads.pop(info.pod_info.uid)
        others, untold = waiting.settle(message)
        info.timestamp = waiting.stamp
        head = Member(info, waiting.head_arrival, waiting.cohort, waiting)
        waiting.put_back(head)
        self._members[info.pod_info.key] = head
        self._note_stay(since(info))
        cohort = self._cohort_of(info)
        if cohort is not waiting.cohort:
            self._reject(waiting, cohort)
        self._incoming.count(UNSCHEDULABLE, event_label, UNSCHEDULABLE, 1 + others)
        return others, untold

    def next_head(self, waiting: WaitingClass) -> tuple[QueuedPodInfo, int] | None:
        """The first pod of a woken class and its turn; None (and it sleeps) if it is empty."""
        self._heads.pop(waiting.head_uid, None)
        if not waiting.members:
            waiting.sleep()
            del waiting.cohort.classes[waiting.class_key]
            return None
        key, member = waiting.members.popitem(last=False)
        del self._members[key]
        info = member.catch_up()
        waiting.head_uid, waiting.head_arrival = info.pod_info.uid, member.arrival
        self._heads[waiting.head_uid] = waiting
        if waiting.flushed_at is not None:
            info.was_flushed_from_unschedulable = True
            info.flush_timestamp = waiting.flushed_at
        return info, member.arrival + FIRST_TURN

    def headed_by(self, uid: str) -> WaitingClass | None:
        """The class for which that pod is tried."""
        return self._heads.get(uid)

    def heads(self) -> list[str]:
        """UIDs of the pods that are tried for their classes."""
        return list(self._heads)

    def is_behind_head(self, key: str) -> bool:
        member = self._members.get(key)
        return member is not None and member.waiting is not None and member.waiting.is_awake

    def dissolve_classes(self) -> list[tuple[QueuedPodInfo, WaitingClass]]:
        """Let all pods wait individually; returns those behind a head, with their class."""
        woken: list[tuple[QueuedPodInfo, WaitingClass]] = []
        members = sorted(self._members.values(), key=lambda member: member.arrival)
        self._members.clear()
        self._heads.clear()
        self._gated_count = 0
        for cohort in self._cohorts.values():
            cohort.alone.clear()
            cohort.classes.clear()
        for member in members:
            info, waiting = member.catch_up(), member.waiting
            if waiting is not None:
                info.backoff_expiration = None  # a head's was computed from its own attempt
                if waiting.is_awake:
                    woken.append((info, waiting))
                    continue
            self._file(info, member.arrival)
        return woken

    def _park(self, member: Member) -> None:
        waiting, key = member.waiting, member.info.pod_info.key
        assert waiting is not None, "only pods of a class are parked"
        self._members[key] = waiting.members[key] = member
        waiting.has_newcomers |= waiting.is_awake
        self._note_stay(since(member.info))

    def _reject(self, waiting: WaitingClass, cohort: Cohort) -> None:
        """Regroup a settled class, head included, after rejection by other plugins."""
        before = waiting.cohort
        del before.classes[waiting.class_key]
        # The head was counted when its attempt failed.
        count, profile = len(waiting.members) - 1, cohort.profile
        for plugin in before.rejectors - cohort.rejectors:
            self._rejected.labels(plugin, profile).inc(-count)
        for plugin in cohort.rejectors - before.rejectors:
            self._rejected.labels(plugin, profile).inc(count)
        waiting.cohort = cohort
        there = cohort.classes.setdefault(waiting.class_key, waiting)
        if there is not waiting:
            self._merge(there, waiting)

    def _merge(self, one: WaitingClass, other: WaitingClass) -> None:
        """Merge two classes that wait for the same events; the result is awake if one was."""
        small, large = sorted((one, other), key=lambda waiting: len(waiting.members))
        if small.is_awake:
            small, large = large, small
        for member in small.members.values():
            self._park(Member(member.catch_up(), member.arrival, large.cohort, large))
        large.sort()
        if large.message != small.message:
            large.message = None
        large.cohort.classes[large.class_key] = large

    # Events and time.

    def helped_by(
        self,
        event: ResolvedEvent,
        old: object,
        new: object,
        pre_check: PreCheck | None,
        evaluator: HintEvaluator,
        narrowed: Narrowed | None = None,
    ) -> tuple[Judged[Member], Judged[WaitingClass]]:
        """The pods and classes that an event may help, with its effect on each."""
        pods: Judged[Member] = []
        classes: Judged[WaitingClass] = []
        for cohort, members, asleep in self._concerned_by(event, per_class=narrowed is None):
            judge = cohort.judge(event, old, new, evaluator)
            for member in members:
                info, pod = member.catch_up(), member.info.pod_info.pod
                if pre_check is not None and not pre_check(pod):
                    continue
                if narrowed is None:
                    strategy = judge(info)
                elif narrowed.includes(pod):
                    strategy = evaluator.evaluate(info, event, old, new, narrowed)
                else:
                    continue
                if strategy is not Strategy.SKIP:
                    pods.append((member, strategy))
            for waiting in asleep:
                asked = waiting.asked(pre_check)
                if asked is not None and (strategy := judge(asked)) is not Strategy.SKIP:
                    classes.append((waiting, strategy))
        return _in_order(pods, classes)

    def flushed(
        self, event: ResolvedEvent, now: float, max_stay_s: float
    ) -> tuple[Judged[Member], Judged[WaitingClass]]:
        """Pods and sleeping classes that have waited for longer than that, to be flushed."""
        self._oldest_stay = inf
        pods: Judged[Member] = []
        classes: Judged[WaitingClass] = []
        for _, members, asleep in self._concerned_by(event):
            for member in members:
                info = member.info
                if now - since(info) > max_stay_s:
                    info.was_flushed_from_unschedulable = True
                    info.flush_timestamp = now
                    pods.append((member, Strategy.AFTER_BACKOFF))
                else:
                    self._note_stay(since(info))
            for waiting in asleep:
                if now - waiting.since > max_stay_s:
                    classes.append((waiting, Strategy.AFTER_BACKOFF))
                else:
                    self._note_stay(waiting.since)
        return _in_order(pods, classes)

    def _concerned_by(
        self, event: ResolvedEvent, *, per_class: bool = True
    ) -> Iterator[tuple[Cohort, Iterable[Member], Iterable[WaitingClass]]]:
        """By cohort: pods to evaluate individually, and sleeping classes to evaluate as one."""
        for cohort in self._cohorts.values():
            if not cohort.is_concerned(event):
                continue
            asleep = [w for w in cohort.classes.values() if w.strategy is Strategy.SKIP]
            if per_class and cohort.asks_per_class(event):
                yield cohort, cohort.alone.values(), asleep
            else:
                parked = (member for waiting in asleep for member in waiting.members.values())
                yield cohort, (*cohort.alone.values(), *parked), ()

    @property
    def oldest_stay(self) -> float | None:
        """A lower bound of the oldest waiting entry's timestamp; None if there are none."""
        return self._oldest_stay if self._members and self._oldest_stay != inf else None

    def _note_stay(self, stay: float) -> None:
        if stay < self._oldest_stay:
            self._oldest_stay = stay

    # Queries.

    @property
    def gated_count(self) -> int:
        return self._gated_count

    @property
    def ungated_count(self) -> int:
        return len(self._members) - self._gated_count

    def __contains__(self, key: str) -> bool:
        return key in self._members

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        """All pods, in order of arrival."""
        members = sorted(self._members.values(), key=lambda member: member.arrival)
        return (member.catch_up() for member in members)

    def check_invariants(self) -> None:
        filed = 0
        for key, cohort in self._cohorts.items():
            for pod_key, member in cohort.alone.items():
                filed += 1
                assert self._members.get(pod_key) is member, f"{pod_key} has another entry"
                assert member.cohort is cohort, f"{pod_key} is filed in another cohort"
                assert member.waiting is None, f"{pod_key} is filed alone and with its class"
                assert cohort_key(member.info) == key, f"{pod_key} changed without notice"
            for class_key, waiting in cohort.classes.items():
                filed += len(waiting.members)
                assert waiting.class_key == class_key, "a class is filed under another key"
                assert waiting.cohort is cohort, "a class is filed in another cohort"
                self._check_class(waiting)
        assert filed == len(self._members), "the cohorts do not add up to the pool"
        for uid, waiting in self._heads.items():
            assert waiting.is_awake, "a head stands for a class that sleeps"
            assert waiting.head_uid == uid, "a head stands for no class"
        assert self._gated_count == sum(info.is_gated for info in self), "gated pods are miscounted"

    def _check_class(self, waiting: WaitingClass) -> None:
        class_key = waiting.class_key
        assert waiting.members or waiting.is_awake, f"class {class_key!r} is empty"
        assert waiting.is_awake == bool(waiting.head_uid), "a class is awake without a head"
        if waiting.is_awake:
            assert self._heads.get(waiting.head_uid) is waiting, "a head is not known as one"
        arrivals = [member.arrival for member in waiting.members.values()]
        assert arrivals == sorted(arrivals), f"class {class_key!r} is out of order"
        for key, member in waiting.members.items():
            assert self._members.get(key) is member, f"{key} is filed under an old entry"
            assert member.waiting is waiting, f"{key} is filed in another class"
            assert member.info.pod_info.class_key == class_key, f"{key} changed its class"
            assert not member.info.is_gated, f"{key} is gated and parked"

    def check_stays(self) -> None:
        """Assert that no wait exceeds the known bound. May fail during a flush."""
        for member in self._members.values():
            if member.waiting is None or not member.waiting.is_awake:
                stay = since(member.catch_up())
                assert stay >= self._oldest_stay, "a pod is older than the oldest stay"


def _in_order(
    pods: Judged[Member], classes: Judged[WaitingClass]
) -> tuple[Judged[Member], Judged[WaitingClass]]:
    """The pods in order of arrival, the classes in order of timestamps."""
    pods.sort(key=lambda judged: judged[0].arrival)
    classes.sort(key=lambda judged: judged[0].last_tried)
    return pods, classes


def _belongs_to(info: QueuedPodInfo, waiting: WaitingClass) -> bool:
    """True if a newer version of a parked pod still waits with its class."""
    return (
        info.pod_info.class_key == waiting.class_key
        and not info.pod_info.pod.status.nominated_node_name
        and not info.is_gated
    )
