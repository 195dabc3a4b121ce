"""Event handlers: apply watch events to the cache and the queue.

Pods with a node go to the cache, whichever scheduler placed them. Pods without one go to the queue
if their `schedulerName` is one of our profiles; so do, with the gate for preemption by resizes,
those with a node that the kubelet cannot resize yet. Every change is then passed to the queue as a
cluster event, which moves the pods it may help. The cache is updated first (except where upstream
uses the opposite order), although no attempt can run in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from msgspec import structs

from kubesched.api.core_v1 import Namespace, Node, Pod
from kubesched.api.resources import is_resize_deferred
from kubesched.base.clock import Clock
from kubesched.base.logs import get_logger
from kubesched.base.metrics.instruments import Histogram
from kubesched.base.metrics.scheduler import SchedulerMetrics
from kubesched.framework.events import (
    EVENT_ASSIGNED_POD_ADD,
    EVENT_ASSIGNED_POD_DELETE,
    EVENT_ASSIGNED_POD_UPDATE,
    EVENT_NODE_ADD,
    EVENT_NODE_DELETE,
    EVENT_UNSCHEDULED_POD_ADD,
    EVENT_UNSCHEDULED_POD_DELETE,
    EVENT_UNSCHEDULED_POD_UPDATE,
    Action,
    ClusterEvent,
    Resource,
)
from kubesched.framework.groups.states import Group
from kubesched.framework.waiting_pods import WaitingPods
from kubesched.scheduler.cache.cache import Cache, CacheError
from kubesched.scheduler.change_events import node_changes, pod_changes
from kubesched.scheduler.event_gate import EventGate, parkable
from kubesched.scheduler.queue.scheduling_queue import SchedulingQueue

log = get_logger(__name__)


class EventHandlers:
    """Updates cache and queue. Handlers run one at a time, between scheduling cycles."""

    def __init__(
        self,
        cache: Cache,
        queue: SchedulingQueue,
        waiting_pods: WaitingPods,
        profiles: Collection[str],
        metrics: SchedulerMetrics,
        clock: Clock,
        event_gate: EventGate,
        *,
        declared_features: bool = True,
        resize_events: bool = True,
        tries_resizes: bool = False,
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._waiting_pods = waiting_pods
        self._profiles = profiles
        self._metrics = metrics
        self._now = clock.monotonic
        self._durations: dict[ClusterEvent, Histogram] = {}
        self.event_gate = event_gate
        self._declared_features = declared_features
        self._resize_events = resize_events
        self._tries_resizes = tries_resizes
        self._pod_changes = partial(pod_changes, scale_up=resize_events, footprint=cache.footprint)
        self._move = queue.move_all_to_active_or_backoff_queue

    def _is_ours(self, pod: Pod) -> bool:
        return pod.spec.scheduler_name in self._profiles

    def _observe(self, event: ClusterEvent, started: float) -> None:
        durations = self._durations.get(event)
        if durations is None:
            family = self._metrics.event_handling_duration_seconds
            durations = self._durations[event] = family.labels(self._queue.label_of(event))
        durations.observe(self._now() - started)

    # -- pods --------------------------------------------------------------------------------------

    @parkable
    def pod_added(self, pod: Pod) -> None:
        started = self._now()
        if pod.spec.node_name:
            if self._tries_resizes and self._is_ours(pod) and is_resize_deferred(pod):
                self._add_resized(pod)
            self._add_assigned(pod)
            self._observe(EVENT_ASSIGNED_POD_ADD, started)
        elif self._is_ours(pod):
            if log.enabled(3):
                log.info("Add event for unscheduled pod", v=3, pod=pod)
            self._queue.add(pod)
            self._observe(EVENT_UNSCHEDULED_POD_ADD, started)

    @parkable
    def pod_updated(self, old: Pod, new: Pod) -> None:
        started = self._now()
        if old.spec.node_name:
            if self._tries_resizes and self._is_ours(new):
                self._follow_resize(old, new)
            self._update_assigned(old, new, started)
        elif new.spec.node_name:
            # Bound by us or another scheduler: the pod leaves the queue once it counts on its node.
            self._add_assigned(new)
            if self._is_ours(old):
                if log.enabled(3):
                    log.info("Delete event for unscheduled pod", v=3, pod=old)
                self._queue.delete(old)
            self._observe(EVENT_ASSIGNED_POD_ADD, started)
        elif self._is_ours(old):
            self._update_unassigned(old, new, started)

    @parkable
    def pod_deleted(self, pod: Pod, *, final_state_unknown: bool = False) -> None:
        started = self._now()
        if pod.spec.node_name or final_state_unknown:
            # If the final state is unknown, the last version may predate the binding.
            self._remove_assigned(pod)
            self._observe(EVENT_ASSIGNED_POD_DELETE, started)
        may_wait = not pod.spec.node_name or (
            self._tries_resizes and (final_state_unknown or is_resize_deferred(pod))
        )
        if may_wait and self._is_ours(pod):
            self._delete_unassigned(pod)

    def _add_assigned(self, pod: Pod) -> None:
        if log.enabled(3):
            log.info("Add event for scheduled pod", v=3, pod=pod)
        known = self._cache.get_pod(pod.metadata.uid)
        before = pod if known is None else known.pod
        try:
            self._cache.add_pod(pod)
        except CacheError as error:
            log.error("Scheduler cache AddPod failed", error, pod=pod)
        self._move(EVENT_ASSIGNED_POD_ADD, None, pod)
        if before.spec.node_name != pod.spec.node_name:
            # A different binding won, so the room for ours is free. (Upstream sends no event.)
            self._move(EVENT_ASSIGNED_POD_DELETE, before, None)

    def _update_assigned(self, old: Pod, new: Pod, started: float) -> None:
        log.info("Update event for scheduled pod", v=4, pod=old)
        try:
            self._cache.update_pod(old, new)
        except CacheError as error:
            log.error("Scheduler cache UpdatePod failed", error, pod=old)
        for action in self._pod_changes(old, new):
            event = ClusterEvent(Resource.ASSIGNED_POD, action)
            self._move(event, old, new)
            self._observe(event, started)
        self._observe(EVENT_ASSIGNED_POD_UPDATE, started)

    def _follow_resize(self, old: Pod, new: Pod) -> None:
        """A bound pod is queued as well while the kubelet defers its resize."""
        if not is_resize_deferred(new):
            if is_resize_deferred(old):
                # Upstream deletes the new version, and so leaves members of groups in the queue.
                self._delete_unassigned(old)
        elif is_resize_deferred(old):
            actions = self._pod_changes(old, new)
            events = [ClusterEvent(Resource.TARGET_POD, action) for action in actions]
            self._queue.update(old, new, events)
        else:
            self._add_resized(new)

    def _add_resized(self, pod: Pod) -> None:
        started = self._now()
        log.info("Add event for unscheduled pod", v=3, pod=pod)
        self._queue.add(pod)
        self._observe(EVENT_UNSCHEDULED_POD_ADD, started)

    def _remove_assigned(self, pod: Pod) -> None:
        log.info("Delete event for scheduled pod", v=3, pod=pod)
        known = self._cache.get_pod(pod.metadata.uid)
        try:
            self._cache.remove_pod(pod)
        except CacheError as error:
            log.error("Scheduler cache RemovePod failed", error, pod=pod)
        # A tombstone may be older than the binding. The cache knows the node, which hints read.
        gone = pod if known is None or pod.spec.node_name else known.pod
        self._move(EVENT_ASSIGNED_POD_DELETE, gone, None)

    def _update_unassigned(self, old: Pod, new: Pod, started: float) -> None:
        if old.metadata.resource_version == new.metadata.resource_version:
            return  # a resync or a duplicate
        if self._cache.is_assumed(new.metadata.uid):
            # The binding is in flight: requeueing would place the pod twice. Only deletion matters.
            if (
                old.metadata.deletion_timestamp is None
                and new.metadata.deletion_timestamp is not None
            ):
                self._assumed_pod_deleted(new)
            return
        log.info("Update event for unscheduled pod", v=4, pod=new)
        actions = self._pod_changes(old, new)
        before = self._as_nominated(old)
        self._queue.update(old, new, [ClusterEvent(Resource.TARGET_POD, act) for act in actions])
        for action in actions:
            if action is not Action.UPDATE:
                self._observe(ClusterEvent(Resource.UNSCHEDULED_POD, action), started)
        nominated = before.status.nominated_node_name
        after = new if old.status.nominated_node_name else self._as_nominated(new)
        if nominated and nominated != after.status.nominated_node_name:
            self._announce_freed_nomination(before)
        self._observe(EVENT_UNSCHEDULED_POD_UPDATE, started)

    def _delete_unassigned(self, pod: Pod) -> None:
        started = self._now()
        log.info("Delete event for unscheduled pod", v=3, pod=pod)
        before = self._as_nominated(pod)
        self._queue.delete(pod)
        if self._cache.is_assumed(pod.metadata.uid):
            self._assumed_pod_deleted(pod)
        elif before.status.nominated_node_name:
            self._announce_freed_nomination(before)
        self._observe(EVENT_UNSCHEDULED_POD_DELETE, started)

    def _as_nominated(self, pod: Pod) -> Pod:
        """The pod with the nominator's nomination, which the API server may not have (yet)."""
        if pod.status.nominated_node_name:
            return pod
        node_name = self._queue.nominator.node_of(pod.metadata.uid)
        if not node_name:
            return pod
        status = structs.replace(pod.status, nominated_node_name=node_name)
        return structs.replace(pod, status=status)

    def _announce_freed_nomination(self, pod: Pod) -> None:
        """Announce that the room reserved for this pod is free.

        Only pods of equal or lower priority were blocked by it.
        """
        priority = pod.spec.priority or 0
        self._move(
            EVENT_ASSIGNED_POD_DELETE,
            pod,
            None,
            lambda other: (other.spec.priority or 0) <= priority,
        )

    def _assumed_pod_deleted(self, pod: Pod) -> None:
        """Handle deletion during binding: end the wait on Permit, or else free the room."""
        known = self._cache.get_pod(pod.metadata.uid)
        if known is None:
            return
        if not self._waiting_pods.reject_waiting_pod(pod.metadata.uid):
            try:
                self._cache.forget_pod(known.pod)
            except CacheError as error:
                log.error("Scheduler cache RemoveAssumedPod failed", error, pod=pod)
        self._move(EVENT_ASSIGNED_POD_DELETE, known.pod, None)

    # -- nodes -------------------------------------------------------------------------------------

    @parkable
    def node_added(self, node: Node) -> None:
        started = self._now()
        log.info("Add event for node", v=3, node=node)
        self._cache.add_node(node)
        self._move(EVENT_NODE_ADD, None, node)
        self._observe(EVENT_NODE_ADD, started)

    @parkable
    def node_updated(self, old: Node, new: Node) -> None:
        started = self._now()
        log.info("Update event for node", v=4, node=new)
        self._cache.update_node(new)
        for action in node_changes(
            old,
            new,
            declared_features=self._declared_features,
            preemption_policy=self._resize_events,
        ):
            event = ClusterEvent(Resource.NODE, action)
            self._move(event, old, new)
            self._observe(event, started)

    @parkable
    def node_deleted(self, node: Node) -> None:
        started = self._now()
        log.info("Delete event for node", v=3, node=node)
        # Upstream: for node deletions the event comes before the cache is updated.
        self._move(EVENT_NODE_DELETE, node, None)
        try:
            self._cache.remove_node(node.metadata.name)
        except CacheError as error:
            log.error("Scheduler cache RemoveNode failed", error, node=node)
        self._observe(EVENT_NODE_DELETE, started)

    # -- namespaces and everything else ------------------------------------------------------------

    @parkable
    def namespace_changed(self, namespace: Namespace) -> None:
        self._cache.table.namespaces.put(namespace.metadata.name, namespace.metadata.labels)

    @parkable
    def namespace_deleted(self, namespace: Namespace) -> None:
        self._cache.table.namespaces.remove(namespace.metadata.name)

    def group_added(self, group: Group) -> None:
        """A group of pods, for schedulers that know groups."""

    def generic(self, resource: str, action: Action) -> Callable[[object, object], None]:
        """A handler (old, new) that passes changes of any other kind to the queue."""
        event = ClusterEvent(resource, action)

        def changed(old: object, new: object) -> None:
            if self.event_gate.is_held:
                self.event_gate.park(lambda: changed(old, new))
                return
            started = self._now()
            self._move(event, old, new)
            self._observe(event, started)

        return changed
