"""The scheduling queue with groups: a tree of pod groups is one entry beside single pods.

    incomplete   members whose PodGroup, or a group above it, has not been seen
    pending      members that came, or came back, while their group is being tried
    otherwise    inside the group's entry in activeQ, backoffQ or (gated) among the unschedulable

A failed group always backs off and is then tried again; it never waits for an event. Only gated
groups do: one member that PreEnqueue refuses keeps all of them out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import floor, inf, sqrt
from typing import Any, Final

from kubesched.api.core_v1 import Pod
from kubesched.api.names import key_of
from kubesched.api.resources import is_resize_deferred
from kubesched.base.logs import get_logger
from kubesched.framework.events import (
    BACKOFF_COMPLETE,
    EVENT_UNSCHEDULED_POD_ADD,
    FORCE_ACTIVATE,
    SCHEDULE_ATTEMPT_FAILURE,
    UNSCHEDULABLE_TIMEOUT,
    ClusterEvent,
)
from kubesched.framework.groups.states import (
    Group,
    GroupKey,
    GroupStates,
    group_of,
    key_of_group,
)
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.status import Status
from kubesched.scheduler.groups.queued_group import QueuedGroup
from kubesched.scheduler.queue.active import ACTIVE, rank_by
from kubesched.scheduler.queue.announcements import ClassFailure
from kubesched.scheduler.queue.backoff import BACKOFF, FLUSH_PERIOD_S, BackoffPolicy
from kubesched.scheduler.queue.cohorts import PreCheck
from kubesched.scheduler.queue.contents import Queued
from kubesched.scheduler.queue.heap import KeyedHeap
from kubesched.scheduler.queue.hints import ResolvedEvent, Strategy
from kubesched.scheduler.queue.saved_queue import SavedGroup, SavedPod, SavedQueue
from kubesched.scheduler.queue.scheduling_queue import (
    LEFTOVER_PERIOD_S,
    SchedulingQueue,
    tick_after,
)
from kubesched.scheduler.queue.unschedulable import GATED, UNSCHEDULABLE

log = get_logger(__name__)

INCOMPLETE: Final = "incomplete"
PENDING: Final = "pending"
_ADDED: Final = EVENT_UNSCHEDULED_POD_ADD.label


class GroupSchedulingQueue(SchedulingQueue):
    """Single pods as ever, and groups as one entry each."""

    def __init__(self, *, groups: GroupStates, **settings: Any) -> None:  # noqa: ANN401  # as above
        super().__init__(**settings)
        self._groups = groups
        self._rank: Any = rank_by(settings["queue_sort"])
        """Orders pods and groups alike: QueueSort reads what both have."""
        self._group_active: KeyedHeap[QueuedGroup] = KeyedHeap(self._rank)  # type: ignore[arg-type]
        self._group_backoff: KeyedHeap[QueuedGroup] = KeyedHeap(self._backoff_ends)
        self._group_pool: dict[str, QueuedGroup] = {}
        self._stores: dict[str, dict[GroupKey, dict[str, QueuedPodInfo]]] = {
            INCOMPLETE: {},
            PENDING: {},
        }
        self._last_popped: GroupKey | None = None
        self._read_sizes_with_groups()

    def _read_sizes_with_groups(self) -> None:
        def pods_in(entities: Iterable[QueuedGroup]) -> int:
            return sum(entity.size for entity in entities)

        readings: dict[str, Callable[[], float]] = {
            ACTIVE: lambda: len(self._active) + pods_in(self._group_active),
            BACKOFF: lambda: len(self._backoff) + pods_in(self._group_backoff),
            UNSCHEDULABLE: lambda: self._pool.ungated_count,
            GATED: lambda: self._pool.gated_count + pods_in(self._group_pool.values()),
            INCOMPLETE: lambda: sum(map(len, self._stores[INCOMPLETE].values())),
            PENDING: lambda: sum(map(len, self._stores[PENDING].values())),
        }
        for queue, read in readings.items():
            self._metrics.pending_pods.labels(queue).read_from(read)

    # -- members -----------------------------------------------------------------------------------

    def _group_of(self, pod: Pod) -> GroupKey | None:
        """The group in whose entry the pod waits; bound pods that are resized wait alone."""
        if self.settings.tries_resizes and is_resize_deferred(pod):
            return None
        return group_of(pod)

    def add(self, pod: Pod) -> None:
        if self._group_of(pod) is None:
            super().add(pod)
            return
        info = self._entries.new(pod)
        self.nominator.add_nominated_pod(info.pod_info)
        self._add_member(info, _ADDED)

    def _add_member(self, info: QueuedPodInfo, label: str) -> str:
        """Queue a member; returns its place."""
        leaf = _leaf_of(info)
        root = self._groups.root_of(leaf)
        if root is None:
            self._keep(INCOMPLETE, info)
            return INCOMPLETE
        key = key_of_group(root)
        entity, place = self._take_out(key)
        if entity is not None:
            entity.insert(info)
            return self._put_back(entity, place, label)
        if key == self._last_popped:
            self._keep(PENDING, info)
            return PENDING
        entity = QueuedGroup(key, root.spec.priority or 0, info.timestamp)
        entity.insert(info)
        return self._to_active(entity, label)

    def _keep(self, store: str, info: QueuedPodInfo) -> None:
        self._stores[store].setdefault(_leaf_of(info), {})[info.pod_info.key] = info
        self.nominator.moved(info.pod_info.uid)

    def _taken(self, store: str, leaf: GroupKey) -> list[QueuedPodInfo]:
        infos = list(self._stores[store].pop(leaf, {}).values())
        for info in infos:
            self.nominator.moved(info.pod_info.uid)
        return infos

    def update(self, old: Pod, new: Pod, events: Sequence[ClusterEvent]) -> None:
        leaf = self._group_of(new)
        if leaf is None or new.metadata.uid in self._in_flight:
            super().update(old, new, events)
            return
        key = key_of(old.metadata)
        for store in self._stores.values():
            members = store.get(leaf, {})
            if key in members:
                members[key] = self._entries.newer(members[key], old, new)
                return
        entity, info = self.find_member(old)
        if entity is None or info is None:
            self.add(new)
            return
        entity.remove(key)
        entity.insert(self._entries.newer(info, old, new))
        if str(entity.root) in self._group_pool:
            for event in events:
                if self._wake_group(entity, self._hints.resolve(event), old, new):
                    return

    def delete(self, pod: Pod) -> None:
        leaf = self._group_of(pod)
        if leaf is None:
            super().delete(pod)
            return
        self.nominator.delete_nominated_pod(pod)
        key = key_of(pod.metadata)
        for store in self._stores.values():
            members = store.get(leaf, {})
            if key in members:
                self._count_rejections(members.pop(key), -1)
                if not members:
                    del store[leaf]
                return
        entity, info = self.find_member(pod)
        if entity is None or info is None:
            return
        self._count_rejections(info, -1)
        _, place = self._take_out(entity.root)
        entity.remove(key)
        if entity.members:
            self._put_back(entity, place, _ADDED)

    def find_member(self, pod: Pod) -> tuple[QueuedGroup | None, QueuedPodInfo | None]:
        leaf, key = group_of(pod), key_of(pod.metadata)
        root = None if leaf is None else self._groups.root_of(leaf)
        entity = None if root is None else self.find_entity(key_of_group(root))
        return entity, None if entity is None else entity.find(key)

    def _is_queued(self, pod: Pod) -> bool:
        leaf, key = group_of(pod), key_of(pod.metadata)
        if leaf is None:
            return False
        return self.find_member(pod)[1] is not None or any(
            key in store.get(leaf, {}) for store in self._stores.values()
        )

    # -- entries -----------------------------------------------------------------------------------

    def _places(self) -> dict[str, Iterable[QueuedGroup]]:
        """Where entries of groups wait; those that wait for an event are gated."""
        pool = self._group_pool.values()
        return {ACTIVE: self._group_active, BACKOFF: self._group_backoff, GATED: pool}

    def _entities(self) -> Iterator[QueuedGroup]:
        return (entity for entities in self._places().values() for entity in entities)

    def _members_without_entry(self) -> Iterator[tuple[str, QueuedPodInfo]]:
        for place, store in self._stores.items():
            for members in store.values():
                yield from ((place, info) for info in members.values())

    def find_entity(self, root: GroupKey) -> QueuedGroup | None:
        key = str(root)
        return (
            self._group_active.get(key) or self._group_backoff.get(key) or self._group_pool.get(key)
        )

    def _take_out(self, root: GroupKey) -> tuple[QueuedGroup | None, str]:
        """Remove an entry from wherever it waits; returns it and its place."""
        key = str(root)
        if (entity := self._group_active.remove(key)) is not None:
            return entity, ACTIVE
        if (entity := self._group_backoff.remove(key)) is not None:
            return entity, BACKOFF
        return self._group_pool.pop(key, None), UNSCHEDULABLE

    def _put_back(self, entity: QueuedGroup, place: str, label: str) -> str:
        """Requeue a changed entry by the rules of the place where it was."""
        if place == UNSCHEDULABLE:  # not evaluated again: only its gate's events, or time, help
            self._group_pool[str(entity.root)] = entity
            return UNSCHEDULABLE
        if place == BACKOFF and self._is_backing_off(entity):
            return self._to_backoff(entity, label)
        return self._to_active(entity, label)

    def _pre_enqueue(self, entity: QueuedGroup) -> bool:
        """Whether PreEnqueue lets all members pass; the last one that is refused gates them all.

        Upstream asks every member each time. The last ones suffice: newer members go behind the
        others, so each was asked when it came.
        """
        entity.gate = None
        entity.rejected()
        for infos in reversed(entity.members.values()):
            for info in reversed(infos):
                self._transitions.pre_enqueue.run(info)
                if info.is_gated:
                    entity.gate = info
                    return False
        return True

    def _to_active(self, entity: QueuedGroup, label: str, *, from_backoff: bool = False) -> str:
        ran_before = from_backoff and self.settings.pop_from_backoff_q
        if not ran_before and not self._pre_enqueue(entity):
            return self._to_pool(entity, label)
        now = self._clock.monotonic()
        for item in (entity, *entity):
            if item.initial_attempt_timestamp is None:
                item.initial_attempt_timestamp = now
        self._group_active.put(str(entity.root), entity)
        self._count_incoming(entity, ACTIVE, label)
        self.on_ready()
        return ACTIVE

    def _to_backoff(self, entity: QueuedGroup, label: str) -> str:
        if self.settings.pop_from_backoff_q and not self._pre_enqueue(entity):
            return self._to_pool(entity, label)
        self._group_backoff.put(str(entity.root), entity)
        self._count_incoming(entity, BACKOFF, label)
        return BACKOFF

    def _to_pool(self, entity: QueuedGroup, label: str) -> str:
        entity.was_flushed_from_unschedulable = False
        self._group_pool[str(entity.root)] = entity
        self._count_incoming(entity, UNSCHEDULABLE, label)
        return UNSCHEDULABLE

    def _count_incoming(self, entity: QueuedGroup, queue: str, label: str) -> None:
        self._metrics.queue_incoming_pods_total.labels(queue, label).inc(entity.size)

    # -- backoff -----------------------------------------------------------------------------------

    def _backoff_ends(self, entity: QueuedGroup) -> float:
        """When the backoff expires; computed once after each failure, with the size of then."""
        if entity.backoff_expiration is None:
            settings = self.settings
            size = max(entity.size, 1)
            policy = BackoffPolicy(
                initial_s=settings.initial_backoff_s,
                max_s=settings.max_backoff_s * sqrt(size),
                whole_seconds=settings.pop_from_backoff_q,
            )
            return policy.expiration(entity)  # type: ignore[arg-type]  # same history, same fields
        return entity.backoff_expiration

    def _is_backing_off(self, entity: QueuedGroup) -> bool:
        now = self._clock.monotonic()
        if self.settings.pop_from_backoff_q:
            now = floor(now)
        return self._backoff_ends(entity) >= now

    # -- attempts ----------------------------------------------------------------------------------

    def pop_entity(self) -> QueuedPodInfo | QueuedGroup | None:
        """Pop the next pod or group, whose pods are then in flight."""
        while (group := self._group_active.peek()) is not None:
            pod = self._active.peek()
            if pod is not None and not self._rank(group) < self._rank(pod):
                break
            self._group_active.pop()
            if self._take_group(group):
                return group
        return super().pop()

    def _take_group(self, entity: QueuedGroup) -> bool:
        entity.attempts += 1
        for info in list(entity):
            info.attempts += 1
            self.nominator.moved(info.pod_info.uid)
            self._count_rejections(info, -1)
            if not self._in_flight.add(info.pod_info.uid):
                log.error(
                    "Pod is being scheduled already; its second entry is dropped",
                    pod=info.pod_info.pod,
                )
                entity.remove(info.pod_info.key)
        if not entity.members:
            return False
        self._scheduling_cycle += 1
        self._last_popped = entity.root
        return True

    def add_unschedulable_if_not_present(
        self, info: QueuedPodInfo, failure: ClassFailure | None = None
    ) -> str:
        if self._group_of(info.pod_info.pod) is None:
            return super().add_unschedulable_if_not_present(info, failure)
        now = self._clock.monotonic()
        try:
            if self._is_queued(info.pod_info.pod):
                return ""
            self._note_failure(info, now)
            return self._add_member(info, SCHEDULE_ATTEMPT_FAILURE)
        finally:
            self._in_flight.done(info.pod_info.uid)
            self.nominator.moved(info.pod_info.uid)

    def attempted_group(self, tried: QueuedGroup, status: Status) -> None:
        """The cycle of a group is over: requeue what is left of it."""
        present = self.find_entity(tried.root)
        self._last_popped = None
        if present is not None:
            log.error("Pod group is queued already", podGroup=str(tried.root))
            return
        took_part = {info.pod_info.uid for info in tried}
        left = [info for leaf in list(self._stores[PENDING]) for info in self._taken(PENDING, leaf)]
        root = self._groups.find(tried.root)
        if root is None or not left:
            for info in left:
                self._keep(INCOMPLETE, info)
            return
        entity = QueuedGroup(tried.root, root.spec.priority or 0, tried.timestamp)
        for info in left:
            if self._groups.root_of(_leaf_of(info)) is root:
                entity.insert(info)
            else:
                self._keep(INCOMPLETE, info)
        if not entity.members:
            return
        entity.attempts = tried.attempts
        entity.initial_attempt_timestamp = tried.initial_attempt_timestamp
        now = self._clock.monotonic()
        if status.is_success:
            if not any(info.pod_info.uid in took_part for info in left):
                entity.timestamp = now
            self._to_active(entity, SCHEDULE_ATTEMPT_FAILURE)
            return
        entity.timestamp = now
        if status.is_rejected:
            entity.unschedulable_count = tried.unschedulable_count + 1
        else:
            entity.unschedulable_count = tried.unschedulable_count
            entity.consecutive_errors_count = tried.consecutive_errors_count + 1
        if self._is_backing_off(entity):
            self._to_backoff(entity, SCHEDULE_ATTEMPT_FAILURE)
        else:
            self._to_active(entity, SCHEDULE_ATTEMPT_FAILURE)

    # -- groups ------------------------------------------------------------------------------------

    def group_added(self, group: Group) -> None:
        """Members that waited for this group are queued."""
        root = self._groups.root_of(key_of_group(group))
        if root is None:
            return
        key = key_of_group(root)
        entity = self.find_entity(key)
        if entity is not None:
            entity.priority = root.spec.priority or 0
        for leaf in self._groups.leaves(key):
            for info in self._taken(INCOMPLETE, leaf):
                self._add_member(info, _ADDED)

    def group_deleted(self, group: Group) -> None:
        """Members below a group that is gone wait until it is there again."""
        for entity in list(self._entities()):
            lost = [leaf for leaf in entity.members if self._groups.root_of(leaf) is None]
            if not lost:
                continue
            _, place = self._take_out(entity.root)
            for leaf in lost:
                for info in entity.remove_group(leaf):
                    self._keep(INCOMPLETE, info)
            if entity.members:
                self._put_back(entity, place, _ADDED)
        for leaf in list(self._stores[PENDING]):
            if self._groups.root_of(leaf) is None:
                for info in self._taken(PENDING, leaf):
                    self._keep(INCOMPLETE, info)

    # -- events ------------------------------------------------------------------------------------

    def move_all_to_active_or_backoff_queue(
        self, event: ClusterEvent, old: object, new: object, pre_check: PreCheck | None = None
    ) -> None:
        super().move_all_to_active_or_backoff_queue(event, old, new, pre_check)
        resolved = self._hints.resolve(event)
        if resolved.is_of_interest:
            for entity in list(self._group_pool.values()):
                self._wake_group(entity, resolved, old, new)

    def _wake_group(
        self, entity: QueuedGroup, event: ResolvedEvent, old: object, new: object
    ) -> bool:
        """Evaluate an event for a gated group, member by member; True if it left the pool."""
        assert entity.gate is not None, "a group in the pool is gated"
        if not event.is_wildcard and entity.gate.gating_plugin not in event.interested_plugins:
            return False
        best = Strategy.SKIP
        for infos in entity.cohorts():
            asked = infos[:1] if self._answers_for_all(infos[0], event) else infos
            for info in asked:
                strategy = self._evaluator.evaluate(info, event, old, new)
                if strategy is Strategy.IMMEDIATELY:
                    return self._release(entity, strategy, event.label)
                if strategy is not Strategy.SKIP:
                    best = strategy
                    break  # the others of these were rejected by the same plugins
        return self._release(entity, best, event.label)

    @staticmethod
    def _answers_for_all(info: QueuedPodInfo, event: ResolvedEvent) -> bool:
        """Whether the hints for this event do not tell members of a group apart."""
        if event.is_about_target:
            return False  # it concerns one of them
        hints = event.hints_by_profile.get(info.pod_info.pod.spec.scheduler_name, ())
        rejectors = info.rejector_plugins
        return all(hint.reads for hint in hints if hint.plugin in rejectors)

    def _release(self, entity: QueuedGroup, strategy: Strategy, label: str) -> bool:
        if strategy is Strategy.SKIP:
            return False
        self._group_pool.pop(str(entity.root), None)
        if strategy is Strategy.AFTER_BACKOFF and self._is_backing_off(entity):
            return self._to_backoff(entity, label) != UNSCHEDULABLE
        return self._to_active(entity, label) != UNSCHEDULABLE

    def activate(self, pods: Mapping[str, Pod]) -> None:
        single = {key: pod for key, pod in pods.items() if self._group_of(pod) is None}
        if single:
            super().activate(single)
        for pod in pods.values():
            leaf = self._group_of(pod)
            root = None if leaf is None else self._groups.root_of(leaf)
            if root is None:
                continue
            key = str(key_of_group(root))
            if (entity := self._group_pool.pop(key, None)) is not None:
                self._to_active(entity, FORCE_ACTIVATE.label)
            elif (entity := self._group_backoff.remove(key)) is not None:
                self._to_active(entity, FORCE_ACTIVATE.label, from_backoff=True)
            # Nothing is noted for members in flight: events do not decide when a group is tried.

    # -- timers ------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        deadlines = [] if (due := super().next_deadline()) is None else [due]
        if (head := self._group_backoff.peek()) is not None:
            grid = 0.0 if self.settings.pop_from_backoff_q else self._started
            ends = max(self._backoff_ends(head), self._started)
            deadlines.append(tick_after(ends, FLUSH_PERIOD_S, grid))
        if self._group_pool:
            due = min(map(_since, self._group_pool.values())) + self.settings.max_in_unschedulable_s
            deadlines.append(tick_after(due, LEFTOVER_PERIOD_S, self._started))
        return min(deadlines, default=None)

    def flush_backoff_completed(self) -> None:
        super().flush_backoff_completed()
        while (head := self._group_backoff.peek()) is not None and not self._is_backing_off(head):
            self._group_backoff.pop()
            self._to_active(head, BACKOFF_COMPLETE, from_backoff=True)

    def flush_unschedulable_leftovers(self, max_stay_s: float | None = None) -> None:
        super().flush_unschedulable_leftovers(max_stay_s)
        max_stay_s = self.settings.max_in_unschedulable_s if max_stay_s is None else max_stay_s
        now, event = self._clock.monotonic(), self._hints.resolve(UNSCHEDULABLE_TIMEOUT)
        for entity in list(self._group_pool.values()):
            if now - _since(entity) > max_stay_s:
                entity.was_flushed_from_unschedulable = True
                entity.flush_timestamp = now
                self._wake_group(entity, event, None, None)

    # -- queries -----------------------------------------------------------------------------------

    def place_of_key(self, key: str) -> str | None:
        place = super().place_of_key(key)
        if place is not None:
            return place
        for name, entities in self._places().items():
            if any(entity.find(key) is not None for entity in entities):
                return name
        for name, store in self._stores.items():
            if any(key in members for members in store.values()):
                return name
        return None

    def _find_entry(self, key: str) -> QueuedPodInfo | None:
        info = super()._find_entry(key)
        if info is not None:
            return info
        for entity in self._entities():
            info = entity.find(key)
            if info is not None:
                return info
        # Members in flight, or without their group, are stubs for the nominator.
        return None

    def active_groups(self) -> list[QueuedGroup]:
        return list(self._group_active)

    def pods_in_active_q(self) -> list[Pod]:
        members = [info.pod_info.pod for entity in self._group_active for info in entity]
        return super().pods_in_active_q() + members

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Members without an entry count as pods that wait for an event."""
        active, backoff, pool = super().sizes
        in_groups = [sum(it.size for it in entities) for entities in self._places().values()]
        apart = sum(len(pods) for store in self._stores.values() for pods in store.values())
        return active + in_groups[0], backoff + in_groups[1], pool + in_groups[2] + apart

    def pending_pods(self) -> tuple[list[Pod], str]:
        pods, _ = super().pending_pods()
        apart = list(self._members_without_entry())
        pods += [info.pod_info.pod for entity in self._entities() for info in entity]
        pods += [info.pod_info.pod for _, info in apart]
        active, backoff, pool = self.sizes
        count = Counter(place for place, _ in apart)
        return pods, (
            f"activeQ:{active}; backoffQ:{backoff}; unschedulableEntities:{pool - len(apart)}; "
            f"pendingPodGroupMemberPods:{count[PENDING]}; "
            f"incompletePodGroupPods:{count[INCOMPLETE]}"
        )

    def entries(self) -> list[Queued]:
        active: list[Any] = sorted([*self._active, *self._group_active], key=self._rank)
        places = self._places()
        groups = [(place, group) for place in (BACKOFF, GATED) for group in places[place]]
        return [
            *(
                Queued(ACTIVE, info)
                for entry in active
                for info in (entry if isinstance(entry, QueuedGroup) else (entry,))
            ),
            *(queued for queued in super().entries() if queued.place != ACTIVE),
            *(
                Queued(place, info, group.backoff_expiration, group.gate)
                for place, group in groups
                for info in group
            ),
            *(Queued(place, info) for place, info in self._members_without_entry()),
        ]

    @property
    def can_be_saved(self) -> bool:
        return super().can_be_saved and self._last_popped is None

    def save(self) -> SavedQueue:
        saved = super().save()
        saved.groups = [
            SavedGroup.of(place, entity)
            for place, entities in (
                (ACTIVE, self._group_active.by_arrival()),
                (BACKOFF, self._group_backoff.by_arrival()),
                (UNSCHEDULABLE, self._group_pool.values()),
            )
            for entity in entities
        ]
        saved.incomplete = [SavedPod.of(info) for _, info in self._members_without_entry()]
        return saved

    def restore(self, saved: SavedQueue, find_pod: Callable[[str], Pod]) -> None:
        super().restore(saved, find_pod)
        for saved_pod in saved.incomplete:
            self._keep(INCOMPLETE, self._restored(saved_pod, find_pod))
        for group in saved.groups:
            entity = QueuedGroup(GroupKey(*group.root), **group.history())
            for saved_pod in group.members:
                info = self._restored(saved_pod, find_pod)
                entity.insert(info)
                if saved_pod.key == group.gate:
                    entity.gate = info
            key = str(entity.root)
            if group.place == UNSCHEDULABLE:
                self._group_pool[key] = entity
            else:
                (self._group_active if group.place == ACTIVE else self._group_backoff).put(
                    key, entity
                )
            self._count_incoming(entity, group.place, _ADDED)

    def check_invariants(self) -> None:
        super().check_invariants()
        self._groups.check_invariants()
        for entity in self._entities():
            assert entity.members, f"{entity} is empty"
            for info in entity:
                assert info.pod_info.uid not in self._in_flight, f"{info} waits and is tried"

    def _check_sizes(self) -> None:
        """Sizes of the parts are read from the parts."""


def _leaf_of(info: QueuedPodInfo) -> GroupKey:
    leaf = group_of(info.pod_info.pod)
    assert leaf is not None, f"{info} is no member of a group"
    return leaf


def _since(entity: QueuedGroup) -> float:
    return max(entity.timestamp, entity.flush_timestamp or -inf)
