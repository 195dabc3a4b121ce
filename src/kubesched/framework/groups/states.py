"""The groups of pods in the cluster: their objects, their trees, and where their pods are.

A pod names its PodGroup; a PodGroup may name a CompositePodGroup as its parent, and so on up to a
root. Objects may be missing: pods can arrive before their group, groups before their parents. The
scheduler's cache and event handlers keep this up to date; queue, cycle and plugins read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kubesched.api.core_v1 import Pod
from kubesched.api.scheduling_v1alpha3 import CompositePodGroup
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.framework.events import Resource

Group = PodGroup | CompositePodGroup
MAX_LEVELS: Final = 32
"""Of groups in a tree. The API server does not bound them, and trees are walked recursively."""


class GroupKey(NamedTuple):
    """Identifies a group. Pod groups and composite ones have names of their own."""

    namespace: str
    name: str
    is_composite: bool = False

    def __str__(self) -> str:
        kind = "compositepodgroup" if self.is_composite else "podgroup"
        return f"{kind}/{self.namespace}/{self.name}"


class HierarchyError(Exception):
    """The tree above a group is incomplete, a circle, or too high. Messages are upstream's."""


@dataclass(slots=True, eq=False)
class PodGroupState:
    """A PodGroup and its pods, by UID."""

    group: PodGroup | None = None
    pods: dict[str, Pod] = field(default_factory=dict)
    unscheduled: dict[str, Pod] = field(default_factory=dict)
    assumed: set[str] = field(default_factory=set)
    assigned: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    """Assumed pods that were deleted: they count until their assumption ends."""

    @property
    def scheduled_count(self) -> int:
        return len(self.assumed) + len(self.assigned)

    def scheduled_pods(self) -> list[Pod]:
        return [pod for uid, pod in self.pods.items() if uid not in self.unscheduled]


def group_of(pod: Pod) -> GroupKey | None:
    """The PodGroup that a pod names."""
    member_of = pod.spec.scheduling_group
    if member_of is None or not member_of.pod_group_name:
        return None
    return GroupKey(pod.metadata.namespace, member_of.pod_group_name)


def key_of_group(group: Group) -> GroupKey:
    meta = group.metadata
    return GroupKey(meta.namespace, meta.name, isinstance(group, CompositePodGroup))


def min_count(group: Group) -> int:
    """How many pods (or child groups) have to be placed together."""
    if isinstance(group, PodGroup):
        gang = group.spec.scheduling_policy.gang
        return 1 if gang is None else gang.min_count
    composite = group.spec.scheduling_policy.gang
    return 1 if composite is None else composite.min_group_count


def is_gang(group: PodGroup) -> bool:
    return group.spec.scheduling_policy.gang is not None


class GroupStates:
    """All groups. With `composites`, pod groups may have parents."""

    def __init__(self, *, composites: bool = False) -> None:
        self.composites = composites
        self._states: dict[GroupKey, PodGroupState] = {}
        self._composites: dict[GroupKey, CompositePodGroup] = {}
        self._children: dict[GroupKey, dict[GroupKey, Group]] = {}

    @property
    def resources(self) -> tuple[str, ...]:
        """The kinds of groups, as events call them."""
        if self.composites:
            return (Resource.POD_GROUP, Resource.COMPOSITE_POD_GROUP)
        return (Resource.POD_GROUP,)

    # -- objects -----------------------------------------------------------------------------------

    def put(self, group: Group) -> None:
        """Add or replace a group."""
        key = key_of_group(group)
        if isinstance(group, CompositePodGroup):
            self._composites[key] = group
        else:
            self._state(key).group = group
        parent = self._parent_key(group)
        if parent is not None:
            self._children.setdefault(parent, {})[key] = group

    def remove(self, group: Group) -> None:
        key = key_of_group(group)
        parent = self._parent_key(group)
        if parent is not None:
            siblings = self._children.get(parent, {})
            siblings.pop(key, None)
            if not siblings:
                self._children.pop(parent, None)
        if isinstance(group, CompositePodGroup):
            self._composites.pop(key, None)
            return
        state = self._states.get(key)
        if state is not None:
            state.group = None
            self._drop_if_empty(key, state)

    def _parent_key(self, group: Group) -> GroupKey | None:
        name = group.spec.parent_composite_pod_group_name if self.composites else None
        return None if name is None else GroupKey(group.metadata.namespace, name, True)

    # -- pods --------------------------------------------------------------------------------------

    def pod_waits(self, pod: Pod) -> None:
        """A pod without a node, for which this scheduler is responsible."""
        key, uid = group_of(pod), pod.metadata.uid
        if key is not None:
            state = self._state(key)
            state.gone.discard(uid)
            if uid not in state.assumed:  # else the version with the node is kept
                state.pods[uid] = state.unscheduled[uid] = pod

    def pod_assumed(self, pod: Pod) -> None:
        key, uid = group_of(pod), pod.metadata.uid
        if key is not None:
            state = self._state(key)
            state.pods[uid] = pod
            state.unscheduled.pop(uid, None)
            state.assumed.add(uid)

    def pod_forgotten(self, pod: Pod) -> None:
        """An assumption was undone; the pod waits again."""
        state, uid = self._state_of(pod), pod.metadata.uid
        if state is None or uid not in state.assumed:
            return
        if uid in state.gone:
            self.pod_removed(pod)
        else:
            state.assumed.discard(uid)
            state.pods[uid] = state.unscheduled[uid] = pod

    def pod_assigned(self, pod: Pod) -> None:
        """A pod with a node, whoever placed it."""
        key, uid = group_of(pod), pod.metadata.uid
        if key is not None:
            state = self._state(key)
            state.pods[uid] = pod
            state.unscheduled.pop(uid, None)
            state.assumed.discard(uid)
            state.assigned.add(uid)

    def pod_deleted(self, pod: Pod) -> None:
        """A pod was deleted; if it is assumed, it counts until that ends."""
        state, uid = self._state_of(pod), pod.metadata.uid
        if state is not None and uid in state.assumed:
            state.gone.add(uid)
        else:
            self.pod_removed(pod)

    def pod_removed(self, pod: Pod) -> None:
        key, uid = group_of(pod), pod.metadata.uid
        state = None if key is None else self._states.get(key)
        if key is not None and state is not None:
            state.pods.pop(uid, None)
            state.unscheduled.pop(uid, None)
            state.assumed.discard(uid)
            state.assigned.discard(uid)
            state.gone.discard(uid)
            self._drop_if_empty(key, state)

    def _state(self, key: GroupKey) -> PodGroupState:
        return self._states.setdefault(key, PodGroupState())

    def _state_of(self, pod: Pod) -> PodGroupState | None:
        key = group_of(pod)
        return None if key is None else self._states.get(key)

    def _drop_if_empty(self, key: GroupKey, state: PodGroupState) -> None:
        if state.group is None and not state.pods:
            del self._states[key]

    def begin_anew(self) -> None:
        """Forget the order in which pods came, which a checkpoint does not hold."""
        for state in self._states.values():
            state.pods = dict(sorted(state.pods.items()))

    def all_scheduled_pods(self) -> Iterator[Pod]:
        return (pod for state in self._states.values() for pod in state.scheduled_pods())

    @property
    def has_scheduled_pods(self) -> bool:
        return any(state.scheduled_count for state in self._states.values())

    # -- queries -----------------------------------------------------------------------------------

    def state(self, key: GroupKey) -> PodGroupState | None:
        return self._states.get(key)

    def find(self, key: GroupKey) -> Group | None:
        if key.is_composite:
            return self._composites.get(key)
        state = self._states.get(key)
        return None if state is None else state.group

    def children(self, key: GroupKey) -> list[Group]:
        """The child groups of a composite, oldest first; none below the lowest level."""
        children = self._children.get(key, {})
        if children and self._level(key) >= MAX_LEVELS:
            return []
        return sorted(
            children.values(),
            key=lambda group: (group.metadata.creation_timestamp or "", group.metadata.name),
        )

    def _level(self, key: GroupKey) -> int:
        """1 for a root; at most `MAX_LEVELS`."""
        at: GroupKey | None = key
        for level in range(1, MAX_LEVELS):
            group = None if at is None else self.find(at)
            at = None if group is None else self._parent_key(group)
            if at is None:
                return level
        return MAX_LEVELS

    def ancestors(self, key: GroupKey) -> Iterator[Group]:
        """The group and those above it, up to the root.

        Raises:
            HierarchyError: a group is missing, the chain is a circle, or has too many levels.
        """
        seen: set[GroupKey] = set()
        at: GroupKey | None = key
        while at is not None:
            if at in seen:
                raise HierarchyError(f"cycle detected in composite pod group hierarchy: {at}")
            if len(seen) == MAX_LEVELS:
                raise HierarchyError(f"more than {MAX_LEVELS} levels of pod groups above {key}")
            seen.add(at)
            group = self.find(at)
            if group is None:
                raise HierarchyError(_missing(at, is_parent=at != key))
            yield group
            at = self._parent_key(group)

    def root_of(self, key: GroupKey) -> Group | None:
        """The root of the tree that a group is in; None if the way up is not complete."""
        root: Group | None = None
        try:
            for group in self.ancestors(key):
                root = group
        except HierarchyError:
            return None
        return root

    def leaves(self, key: GroupKey) -> Iterator[GroupKey]:
        """The PodGroups of a tree, in order; a circle is not followed."""
        yield from self._leaves(key, set())

    def _leaves(self, key: GroupKey, seen: set[GroupKey]) -> Iterator[GroupKey]:
        if not key.is_composite:
            yield key
        elif key not in seen:
            seen.add(key)
            for child in self.children(key):
                yield from self._leaves(key_of_group(child), seen)

    def scheduled_pods_below(self, key: GroupKey) -> list[Pod]:
        states = (self._states.get(leaf) for leaf in self.leaves(key))
        return [pod for state in states if state is not None for pod in state.scheduled_pods()]

    def check_invariants(self) -> None:
        for key, state in self._states.items():
            assert state.group is not None or state.pods, f"{key} is kept for nothing"
            parts = (*state.unscheduled, *state.assumed, *state.assigned)
            assert len(parts) == len(state.pods), f"a pod of {key} is in two places or none"
            assert set(parts) == state.pods.keys(), f"{key} counts strangers"


def _missing(key: GroupKey, *, is_parent: bool) -> str:
    if not key.is_composite:
        return f"pod group object not found in state for {key}"
    if is_parent:
        return f"parent composite pod group state not found for {key}"
    return f"composite pod group object not found in state for {key}"
