"""Tries fixes on copies of the cluster: real scheduler and queue, all pending pods, the workload.

A copy settles first, so that pods which find room anyway are placed. Backoffs end. Then the changes
are made as their commands make them, controllers act, and the copy settles again in virtual time:

    pods of a template   pending ones are replaced; a Deployment then rolls out over the running
                         ones with a surge of one pod and a quarter unavailable, a StatefulSet or
                         DaemonSet one by one while none is pending; a Job starts anew
    pods without         the pod is replaced, or changed in place where the API server allows it
    deleted pods         their controllers replace them, and the replacements queue up
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from kubesched.api.apps_v1 import StatefulSet
from kubesched.api.core_v1 import Node, PersistentVolumeClaim, Pod
from kubesched.api.names import key_of
from kubesched.base.clock import Clock, SystemClock
from kubesched.insight.explain.fixes.changes import (
    AnyChange,
    GateRemoval,
    NodeAddition,
    NodeEdit,
    ObjectChange,
    PodDeletion,
    PodEdit,
    edited,
)
from kubesched.insight.explain.fixes.commands import members_of, template_owner
from kubesched.insight.state.budgets import Budgets
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.node_copies import add_copies, add_daemons, fresh
from kubesched.insight.state.planned_cluster import PlannedCluster
from kubesched.insight.state.replacements import (
    ZONE,
    Replacements,
    bound_to_new_volume,
    is_daemon,
    pods_on,
)
from kubesched.plugins.helper.volumes.claims import SELECTED_NODE

MOST_REHEARSALS = 20
MOST_SECONDS = 10.0
"""Of real time, for all fixes of a pod. Copies of clusters with 5,000 nodes take seconds each."""
_REST_S = 60.0
"""Virtual seconds before a fix, in which backoffs end, as they have when a user asks."""

Copy = Callable[[ClusterState], PlannedCluster]
"""Makes a cluster with the scheduler's configuration."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a fix leads to."""

    placed: int
    """Pods of the workload that get a node because of it; negative if it loses some."""
    wanted: int
    """Pods of the workload that are pending before, and those that wait for these."""
    nodes: list[str] = field(default_factory=list)
    """Where pods of the workload are in the end."""
    others: list[str] = field(default_factory=list)
    """Further pending pods that get a node because of it, the first placed first."""
    preempted: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return self.placed >= self.wanted


class Rehearsals:
    """Trials of fixes for one pod, bounded in number and time."""

    def __init__(
        self, copy: Copy, state: ClusterState, pod: Pod, clock: Clock | None = None
    ) -> None:
        """The state's pods of the workload are put last: among pods of equal priority they wait.

        In which order these come is not known; what holds for the last one holds in any case.
        """
        self._state = state
        for member in members_of(pod, state.of(Pod)):
            state.remove(Pod, member.metadata.namespace, member.metadata.name)
            state.put(member)
        self._copy = copy
        self._pod = pod
        self._clock = clock or SystemClock()
        self._ends_at = self._clock.monotonic() + MOST_SECONDS
        self._left = MOST_REHEARSALS
        self.is_over = False
        """True once a fix could not be tried, or not to its end, because of a bound."""

    def outcome(self, changes: Sequence[AnyChange]) -> Outcome | None:
        """What the changes lead to; None if a bound is met."""
        self._left -= 1
        if self._left < 0 or self._is_late():
            self.is_over = True
            return None
        with self._copy(self._state) as world:
            outcome = _Rehearsal(world, self._pod, self._is_late).run(changes)
        self.is_over |= self._is_late()
        return None if self._is_late() else outcome

    def _is_late(self) -> bool:
        return self._clock.monotonic() > self._ends_at


class _Rehearsal:
    """One fix in one copy."""

    def __init__(self, world: PlannedCluster, pod: Pod, is_late: Callable[[], bool]) -> None:
        self._world = world
        self._pod = pod
        self._owner = pod.metadata.controller()
        self._is_late = is_late
        self._budgets = Budgets(world)
        self._replacements = Replacements(world, seed=0)
        self._edits: Sequence[PodEdit] = ()
        """Of the template from which controllers make new pods."""
        self._new: set[str] = set()
        """Uids of pods that have the edits."""
        self._leaving: set[str] = set()
        """Uids of pods that are scaled down, and not replaced."""
        self._bound: dict[str, None] = {}
        self._gone: list[Pod] = []
        world.on_bound, world.on_deleted, world.on_idle = self._came, self._left, self._provision

    def run(self, changes: Sequence[AnyChange]) -> Outcome:
        self._settle()
        self._world.jump_to(self._world.clock.monotonic() + _REST_S)
        before = [pod for pod in self._members() if self._world.where(pod)]
        wanted = self._wanted() - len(before)
        self._bound.clear()
        self._gone.clear()
        deleted = {change.pod.metadata.uid for change in changes if isinstance(change, PodDeletion)}
        self._make(changes)
        self._settle()
        self._roll_out(before)
        after = [pod for pod in self._members() if self._world.where(pod)]
        own = {key_of(pod.metadata) for pod in self._members()}
        preempted = [pod for pod in self._gone if pod.metadata.uid not in deleted]
        return Outcome(
            placed=len(after) - len(before),
            wanted=wanted,
            nodes=[self._world.where(pod) for pod in after],
            others=[key for key in self._bound if key not in own],
            preempted=[key_of(pod.metadata) for pod in preempted if pod.spec.node_name],
        )

    def _settle(self) -> None:
        self._world.settle(until=self._is_late)

    # -- the workload ------------------------------------------------------------------------------

    def _members(self) -> list[Pod]:
        """The pods of the workload as they are now; a pod without a controller is its own."""
        return members_of(self._pod, self._world.objects(Pod, self._pod.metadata.namespace))

    def _wanted(self) -> int:
        """How many pods the workload would have; a StatefulSet makes them one after the other."""
        return max(len(self._members()), self._replicas(self._pod))

    def _replicas(self, pod: Pod) -> int:
        """How many pods the pod's StatefulSet is to have; 0 if that is not known."""
        owner = pod.metadata.controller()
        if owner is None or owner.kind != "StatefulSet":
            return 0
        found = self._world.find(StatefulSet, pod.metadata.namespace, owner.name)
        return (found.spec.replicas or 0) if found is not None else 0

    # -- changes -----------------------------------------------------------------------------------

    def _make(self, changes: Sequence[AnyChange]) -> None:
        world = self._world
        for change in changes:
            if isinstance(change, NodeEdit):
                node = world.find(Node, "", change.node_name)
                assert node is not None, "a node of the cluster"
                world.update(change.applied(node))
                if change.remove_taint is not None:
                    add_daemons(world, self._daemons_without(change.node_name), change.node_name)
            elif isinstance(change, NodeAddition):
                like = world.find(Node, "", change.like)
                assert like is not None, "a node of the cluster"
                add_copies(world, fresh(like), change.count, change.like)
            elif isinstance(change, PodDeletion):
                world.delete(change.pod)
            elif isinstance(change, ObjectChange):
                for obj in (*change.deleted, *change.leaving):
                    world.delete(obj)
                for obj in change.stored:
                    world.put(obj)
        self._edit_pods([change for change in changes if isinstance(change, PodEdit)])

    def _daemons_without(self, node: str) -> list[Pod]:
        """A pod of each DaemonSet that has none on the node, where a taint kept it away."""
        there = {
            owner.uid for pod in pods_on(self._world, node) if (owner := pod.metadata.controller())
        }
        found: dict[str, Pod] = {}
        for pod in self._world.objects(Pod):
            owner = pod.metadata.controller()
            if owner is not None and is_daemon(pod) and owner.uid not in there:
                found.setdefault(owner.uid, pod)
        return list(found.values())

    def _edit_pods(self, edits: Sequence[PodEdit]) -> None:
        current = self._world.find(Pod, self._pod.metadata.namespace, self._pod.metadata.name)
        of_pod: list[PodEdit] = [edit for edit in edits if isinstance(edit, GateRemoval)]
        self._edits = [edit for edit in edits if not isinstance(edit, GateRemoval)]
        is_alone = self._owner is None
        if is_alone and all(edit.is_allowed_in_place for edit in self._edits):
            of_pod, self._edits = list(edits), ()
        if of_pod and current is not None:
            current = self._world.update(edited(current, of_pod))
        if is_alone and self._edits and current is not None:
            new = edited(current, self._edits)
            meta = structs.replace(new.metadata, uid=f"{new.metadata.uid}/new", resource_version="")
            self._world.delete(current)
            self._world.add(structs.replace(new, metadata=meta))
        elif self._edits:
            for pod in self._members():
                if not self._world.where(pod) or self._kind == "Job":
                    self._world.delete(pod)

    @property
    def _kind(self) -> str:
        """The kind of the object that holds the pods' template."""
        owner = template_owner(self._pod, self._world.listers)
        return owner[0] if owner is not None else ""

    def _roll_out(self, running: Sequence[Pod]) -> None:
        """Replace the pods that still have the old template, as far as new ones find room."""
        if not self._edits or self._kind not in ("Deployment", "StatefulSet", "DaemonSet"):
            return
        spare = self._wanted() // 4 if self._kind == "Deployment" else 0
        for old in sorted(running, key=lambda pod: pod.metadata.name, reverse=True):
            if self._is_late() or self._pending_count() > spare:
                return
            if self._world.find(Pod, old.metadata.namespace, old.metadata.name) is None:
                continue
            if self._kind != "Deployment":
                self._world.delete(old)
                self._settle()
            elif not self._surge(old, spare):
                return

    def _surge(self, old: Pod, spare: int) -> bool:
        """Start a new pod beside an old one, which then leaves; False if the new one finds none."""
        new = self._replacements.add_like(edited(old, self._edits))
        self._new.add(new.metadata.uid)
        self._settle()
        if not self._world.where(new) and self._pending_count() > spare:
            return False
        self._leaving.add(old.metadata.uid)
        self._world.delete(old)
        self._settle()
        return bool(self._world.where(new))

    def _pending_count(self) -> int:
        return sum(not self._world.where(pod) for pod in self._members())

    # -- hooks -------------------------------------------------------------------------------------

    def _provision(self) -> None:
        """Create the volumes that bindings wait for, as drivers do."""
        world = self._world
        for claim in world.objects(PersistentVolumeClaim):
            selected = (claim.metadata.annotations or {}).get(SELECTED_NODE)
            if selected and not claim.spec.volume_name:
                node = world.find(Node, "", selected)
                labels = (node.metadata.labels if node is not None else None) or {}
                for obj in bound_to_new_volume(claim, labels.get(ZONE, "")):
                    world.put(obj)
        world.work()

    def _came(self, pod: Pod) -> None:
        self._budgets.pod_came(pod)
        self._bound[key_of(pod.metadata)] = None
        wanted = self._replicas(pod)
        if not wanted:
            return
        members = members_of(pod, self._world.objects(Pod, pod.metadata.namespace))
        if len(members) < wanted and all(map(self._world.where, members)):
            base = pod.metadata.name.rpartition("-")[0]
            new = self._replacements.add_like(pod, f"{base}-{len(members)}")
            self._new |= {new.metadata.uid} if pod.metadata.uid in self._new else set()

    def _left(self, pod: Pod) -> None:
        self._budgets.pod_left(pod)
        owner = pod.metadata.controller()
        if pod.metadata.uid in self._leaving:
            return
        is_member = owner is not None and self._owner is not None and owner.uid == self._owner.uid
        if not is_member:
            self._gone.append(pod)
        elif self._edits and pod.metadata.uid not in self._new:
            pod = edited(pod, self._edits)
        new = self._replacements.replace(pod)
        if new is not None and is_member and self._edits:
            self._new.add(new.metadata.uid)
