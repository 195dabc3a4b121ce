"""Coscheduling: pods of a PodGroup are bound when `minMember` of them have a node, or not at all.

Pods name their group (`scheduling.x-k8s.io/v1alpha1`) by a label. Pods of a group stand together in
the queue. PreFilter turns them away while there are too few of them or too few resources, Permit
holds them until enough have a node, and PostFilter and Unreserve send back all that wait when one
of them fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from kubesched.framework import (
    Action,
    ClusterEventWithHint,
    Code,
    CycleState,
    EnqueueExtensions,
    Handle,
    Hint,
    NodeColumns,
    NodeToStatus,
    PermitPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreFilterPlugin,
    QueuedPodInfo,
    QueueSortPlugin,
    ReservePlugin,
    Resource,
    Rule,
    Status,
    Wait,
    on_event,
    unresolvable,
    unschedulable,
)
from kubesched.framework.api import CustomObject, Node, Pod, parse_quantity

POD_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"
NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
DEFAULT_WAIT_S: Final = 60
MEASURED_S: Final = 3
"""How long a check of `minResources` holds if `permitWaitingTimeSeconds` is 0."""


@dataclass(frozen=True, kw_only=True)
class CoschedulingArgs:
    """`CoschedulingArgs` of `kubescheduler.config.k8s.io/v1`."""

    api_version: str = ""
    kind: str = ""
    permit_waiting_time_seconds: int = 60
    pod_group_backoff_seconds: int = 0
    pod_group_reject_percentage: int = 10

    def __post_init__(self) -> None:
        if self.permit_waiting_time_seconds < 0:
            raise ValueError("permitWaitingTimeSeconds: must not be negative")
        if self.pod_group_backoff_seconds < 0:
            raise ValueError("podGroupBackoffSeconds: must not be negative")
        if not 0 <= self.pod_group_reject_percentage <= 100:
            raise ValueError("podGroupRejectPercentage: must be between 0 and 100")


class PodGroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What a group asks for."""

    min_member: int = 0
    min_resources: dict[str, str | int | float] | None = None
    schedule_timeout_seconds: int | None = None


class PodGroup(CustomObject):
    """The CRD. Its status is not read."""

    resource = "podgroups.v1alpha1.scheduling.x-k8s.io"
    spec: PodGroupSpec = PodGroupSpec()


@dataclass(slots=True)
class Group:
    """A group that has pods, a PodGroup, or both. Pods are known by UID."""

    key: str
    """`namespace/name`."""
    spec: PodGroupSpec | None = None
    """None: there is no PodGroup."""
    created: float = 0.0
    members: dict[str, Pod] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    assigned: dict[str, str] = field(default_factory=dict)
    """The nodes of the pods that have one, or wait with one."""
    places: dict[str, list[float]] = field(default_factory=dict)
    """In the queue; see `sort_key`."""
    failed_at: float | None = None
    backed_off_until: float = 0.0
    measured_until: float = 0.0

    @property
    def since(self) -> float | None:
        """Its age in the queue; None without a PodGroup: its pods have their own."""
        return self.created if self.failed_at is None and self.spec is not None else self.failed_at

    def fail(self, at: float | None) -> None:
        """Behind those that have not failed since; or back to its age."""
        self.failed_at = at
        if (since := self.since) is not None:
            for place in self.places.values():
                place[0] = since


class Rejection(NamedTuple):
    """A group was rejected, and the only room made since is its own."""

    until: float
    reason: str
    held: set[str]
    """Pods of others that waited with a node then: when they go, there is room."""


class Coscheduling(
    QueueSortPlugin,
    PreFilterPlugin,
    PostFilterPlugin,
    ReservePlugin,
    PermitPlugin,
    EnqueueExtensions,
):
    """All pods of a group, or none."""

    name = "Coscheduling"
    args_type = CoschedulingArgs
    args: CoschedulingArgs
    lists = (PodGroup,)

    def __init__(self, args: CoschedulingArgs | None, handle: Handle) -> None:
        super().__init__(args or CoschedulingArgs(), handle)
        self.groups: dict[str, Group] = {}
        self._group_of_uid: dict[str, Group] = {}
        self._rejected: dict[str, Rejection] = {}
        self._monotonic_to_wall = handle.clock.now() - handle.clock.monotonic()
        self._unsubscribe: list[Callable[[], None]] = []
        if handle.listers is not None:
            self._unsubscribe = [
                handle.listers.of(Node).subscribe(lambda _old, _new: self._rejected.clear()),
                handle.listers.of(Pod).subscribe(self._note_pod),
                handle.listers.of(PodGroup).subscribe(self._note_group),
            ]

    def close(self) -> None:
        for unsubscribe in self._unsubscribe:
            unsubscribe()

    # -- queue -------------------------------------------------------------------------------------

    def less(self, a: QueuedPodInfo, b: QueuedPodInfo) -> bool:
        """Priority, then age of the group. One that failed goes behind, not to block others."""
        return self.sort_key(a) < self.sort_key(b)

    def sort_key(self, info: QueuedPodInfo) -> tuple[int, list[float], str]:
        """The age is in a list because it changes while pods are queued."""
        pod, place = info.pod_info, [0.0]
        group = self._group_of_uid.get(pod.uid)
        since = None if group is None else group.since
        if group is not None:
            place = group.places.setdefault(pod.uid, place)
        if since is None:
            first = info.initial_attempt_timestamp
            since = (info.timestamp if first is None else first) + self._monotonic_to_wall
        place[0] = since
        return -pod.priority, place, pod.key

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Beyond the original's (new pods, new and changed groups): gates and room."""
        pods = Action.ADD | Action.UPDATE_POD_LABEL | Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED
        nodes = Action.ADD | Action.UPDATE_NODE_ALLOCATABLE
        groups = Action.ADD | Action.UPDATE | Action.DELETE
        return [
            on_event(Resource.POD, pods, self.after_change),
            on_event(Resource.ASSIGNED_POD, Action.DELETE, self.after_room),
            on_event(Resource.NODE, nodes, self.after_change),
            on_event(PodGroup.resource, groups, self.after_change),
        ]

    def after_change(self, pod: Pod, _old: object, _new: object) -> Hint:
        """The change is counted already."""
        return Hint.SKIP if self._refusal(pod, self._group_of(pod)) else Hint.QUEUE

    def after_room(self, pod: Pod, old: Pod, _new: None) -> Hint:
        """Room that the group itself gives back, when it is rejected, does not help it."""
        return Hint.SKIP if _key(old) == _key(pod) else self.after_change(pod, old, None)

    # -- cycle -------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        group = self._group_of(pod)
        refusal = self._refusal(pod, group)
        if not refusal and group is not None and self._is_unmeasured(group):
            refusal = self._resource_gap(group, nodes)
            if not refusal:
                lasts = self.args.permit_waiting_time_seconds or MEASURED_S
                group.measured_until = self.handle.clock.monotonic() + lasts
        return unresolvable(refusal) if refusal else None

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule | None:
        """Asked for every pod; leave to go on is for all of a group, refusals name their pod."""
        group = self._group_of(pod)
        is_open = self._refusal(pod, group) or (group is not None and self._is_unmeasured(group))
        return None if is_open else Rule()

    def class_fields(self, pod: Pod) -> None:
        """Nothing that is kept by node depends on the group."""

    def _refusal(self, pod: Pod, group: Group | None) -> str:
        """Why a pod need not be tried now, nodes aside; empty if it may be."""
        if group is None or group.spec is None:
            return ""
        name, there, wanted = pod.metadata.name, len(group.members), group.spec.min_member
        if self.handle.clock.monotonic() < group.backed_off_until:
            return f"podGroup {group.key} failed recently"
        if there < wanted:
            return (
                f"pre-filter pod {name} cannot find enough sibling pods, current pods number:"
                f" {there}, minMember of group: {wanted}"
            )
        if there - len(group.gated) < wanted:
            return f"pre-filter pod {name} cannot proceed due to gated pods in the same PodGroup"
        return ""

    def _is_unmeasured(self, group: Group) -> bool:
        """Whether the group's resources have to be compared with the nodes' now."""
        if group.spec is None or group.spec.min_resources is None:
            return False
        return self.handle.clock.monotonic() > group.measured_until

    def _resource_gap(self, group: Group, nodes: NodeColumns) -> str:
        """What all nodes together lack for the group, whose own pods do not count as load."""
        assert group.spec is not None, "only groups with an object name resources"
        alive, names, without = nodes.alive, set(group.assigned.values()), {}
        for at in range(len(nodes)) if names else ():
            if alive[at] and nodes.name_at(at) in names:
                own = [pod for pod in nodes.pods_at(at) if self._group_of(pod.pod) is group]
                without[at] = nodes.what_if(at, remove=own)
        gap = []
        amounts = {**(group.spec.min_resources or {}), "pods": group.spec.min_member}
        for name, amount in sorted(amounts.items()):
            try:
                wanted = parse_quantity(amount).scaled_value(-3 if name == "cpu" else 0)
            except ValueError as error:
                return f"PodGroup {group.key}: spec.minResources[{name}]: {amount!r}: {error}"
            free = _free(nodes, name)
            for at, view in without.items():
                free[at] = _free(view, name)[0]
            free[~alive] = 0
            # Upstream: node by node, so an overcommitted one that comes after enough is harmless.
            if wanted > 0 and not (free.cumsum() >= wanted).any():
                gap.append(f"{name}:{wanted - int(free.sum())}{'m' if name == 'cpu' else ''}")
        return f"resource gap: map[{' '.join(gap)}]" if gap else ""

    def post_filter(
        self, state: CycleState, pod: Pod, statuses: NodeToStatus
    ) -> tuple[PostFilterResult, Status]:
        group = self._group_of(pod)
        if group is None or group.spec is None:
            return PostFilterResult(), unschedulable("can not find pod group")
        wanted, missing = group.spec.min_member, group.spec.min_member - len(group.assigned)
        if missing <= 0 or missing / wanted <= self.args.pod_group_reject_percentage / 100:
            return PostFilterResult(), Status(Code.UNSCHEDULABLE)
        now, lasts = self.handle.clock.monotonic(), self.args.pod_group_backoff_seconds
        if lasts and len(group.members) >= wanted and now >= group.backed_off_until:
            group.backed_off_until = now + lasts
        found = ", ".join(statuses.histogram(self.handle.table.node_count))
        self._send_back(pod, group, "optimistic rejection in PostFilter", found)
        reason = f"PodGroup {group.key} gets rejected due to Pod {pod.metadata.name} is"
        return PostFilterResult(), unschedulable(f"{reason} unschedulable even after PostFilter")

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        """A rejected group is not tried again because of the room that it gave back itself.

        In the original this goes on for ever: https://github.com/kubernetes-sigs/scheduler-plugins
        issue 429.
        """
        key = _key(pod) if self._rejected else ""
        rejection = self._rejected.get(key)
        if rejection is None or self.handle.clock.monotonic() >= rejection.until:
            return None
        return unschedulable(f"podGroup {key} failed recently: {rejection.reason}")

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        group, uid = self._group_of(pod), pod.metadata.uid
        for other in [name for name, it in self._rejected.items() if uid in it.held]:
            del self._rejected[other]
        if group is not None:
            group.assigned.pop(uid, None)
            if group.spec is not None:
                self._send_back(pod, group, "rejection in Unreserve", "was not bound")

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | Wait | None:
        group, uid = self._group_of(pod), pod.metadata.uid
        if group is None or group.spec is None:
            return unschedulable("PodGroup not found") if _key(pod) else None
        group.assigned[uid] = node_name
        if len(group.assigned) >= group.spec.min_member:
            if group.failed_at is not None:
                group.fail(None)
            self._rejected.pop(group.key, None)
            for waiting in self._waiting(group):
                waiting.allow(self.name)
            return None
        if len(group.assigned) == 1:  # the first of them brings all others
            others = (other for other in group.members.values() if other.metadata.uid != uid)
            named = {f"{it.metadata.namespace}/{it.metadata.name}": it for it in others}
            state.pods_to_activate.pods.update(named)
        return Wait(self._wait_s(group))

    def _wait_s(self, group: Group) -> int:
        of_group = None if group.spec is None else group.spec.schedule_timeout_seconds
        default = self.args.permit_waiting_time_seconds
        return default if of_group == 0 else of_group or default or DEFAULT_WAIT_S

    def _send_back(self, pod: Pod, group: Group, message: str, reason: str) -> None:
        key, now = group.key, self.handle.clock.monotonic()
        waiting, before = self._waiting(group), self._rejected.get(key)
        if waiting and (before is None or before.until <= now):
            held = {it.pod.metadata.uid for it in self.handle.waiting_pods or ()}
            held -= group.members.keys()
            reason = f"Pod {pod.metadata.name} {reason}"
            self._rejected[key] = Rejection(now + self._wait_s(group), reason, held)
        group.measured_until = 0.0
        group.fail(self.handle.clock.now())
        for held_back in waiting:
            held_back.reject(self.name, message)

    def _waiting(self, group: Group) -> list[Any]:
        known = self.handle.waiting_pods
        found = () if known is None else map(known.get, group.members)
        return [pod for pod in found if pod is not None]

    # -- pods and groups ---------------------------------------------------------------------------

    def _group_of(self, pod: Pod) -> Group | None:
        """None if the pod has no group, or one that has neither an object nor known pods."""
        group = self._group_of_uid.get(pod.metadata.uid)
        return self.groups.get(_key(pod)) if group is None else group

    def _note_pod(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and (new is None or _member(old) != _member(new)):
            self._forget_member(old.metadata.uid)
        if new is None:
            if old is not None and old.spec.node_name:
                self._rejected.clear()
            return
        uid = new.metadata.uid
        group = self._group_of_uid.get(uid)
        if group is None:
            if not (key := _key(new)):
                return
            self._rejected.pop(key, None)
            group = self._group_of_uid[uid] = self._group(key)
        group.members[uid] = new
        (group.gated.add if new.spec.scheduling_gates else group.gated.discard)(uid)
        if new.spec.node_name:
            group.assigned[uid] = new.spec.node_name

    def _forget_member(self, uid: str) -> None:
        group = self._group_of_uid.pop(uid, None)
        if group is not None:
            for kept in (group.members, group.assigned, group.places):
                kept.pop(uid, None)
            group.gated.discard(uid)
            self._forget_if_over(group)

    def _note_group(self, old: PodGroup | None, new: PodGroup | None) -> None:
        obj = new or old
        assert obj is not None, "something changed"
        key = f"{obj.metadata.namespace}/{obj.metadata.name}"
        group = self._group(key)
        group.spec = None if new is None else new.spec
        self._rejected.pop(key, None)
        created = obj.metadata.creation_timestamp or "1970-01-01"
        group.created = datetime.fromisoformat(created).timestamp()
        group.fail(group.failed_at)
        self._forget_if_over(group)

    def _group(self, key: str) -> Group:
        return self.groups.get(key) or self.groups.setdefault(key, Group(key))

    def _forget_if_over(self, group: Group) -> None:
        if not group.members and group.spec is None:
            del self.groups[group.key]


def _member(pod: Pod) -> tuple[str, str]:
    """The name of the pod's group, empty if it has none; and who it is there."""
    meta = pod.metadata
    return (meta.labels or {}).get(POD_GROUP_LABEL, ""), meta.uid


def _key(pod: Pod) -> str:
    """`namespace/name` of the pod's group; empty if it has none."""
    name, _ = _member(pod)
    return f"{pod.metadata.namespace}/{name}" if name else ""


def _free(nodes: NodeColumns, resource: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """What is free of a resource on each node; negative where too much is promised."""
    if resource == "pods":
        return nodes.allowed_pods - nodes.pod_count
    index = nodes.table.resource_index.get(resource)
    if index is None:
        return np.zeros(len(nodes), dtype=np.int64)
    offered, requested = nodes.allocatable(index), nodes.requested(index)
    free = offered - requested
    if resource not in NATIVE:
        for at in np.flatnonzero((offered == 0) & (requested > 0)).tolist():
            # Upstream: a node that does not list the resource counts as 0, whatever pods request.
            if resource not in (nodes.node_at(at).status.allocatable or {}):
                free[at] = 0
    return free
