"""GangScheduling: the pods of a gang are bound together or not at all.

Mirrors `gangscheduling/gangscheduling.go`. PreEnqueue keeps a group out until enough of its pods
exist, PlacementFeasible decides while it is placed, and Permit holds members until enough of them
have a node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import Record
from kubesched.api.names import key_of
from kubesched.api.scheduling_v1alpha3 import CompositePodGroup
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.config.features import FeatureGates
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import reads
from kubesched.framework.events import Action, ClusterEventWithHint, Hint, Resource, on_event
from kubesched.framework.groups.states import (
    Group,
    GroupKey,
    GroupStates,
    HierarchyError,
    PodGroupState,
    group_of,
    is_gang,
    key_of_group,
    min_count,
)
from kubesched.framework.groups.tree import GroupNode
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import (
    EnqueueExtensions,
    PermitPlugin,
    PlacementFeasiblePlugin,
    PreEnqueuePlugin,
    Wait,
)
from kubesched.framework.status import Code, Status, error_status, unresolvable, unschedulable

PERMIT_TIMEOUT_S: Final = 300.0
TOO_FEW: Final = unresolvable("waiting for minCount pods from a gang to appear in scheduling queue")
_WAIT: Final = Wait(PERMIT_TIMEOUT_S, "waiting for minCount pods from a gang to be scheduled")


class GangScheduling(PreEnqueuePlugin, PermitPlugin, PlacementFeasiblePlugin, EnqueueExtensions):
    """All pods of a gang, or none."""

    name = "GangScheduling"
    lists = (PodGroup,)

    @classmethod
    def kinds_to_list(cls, gates: FeatureGates) -> Sequence[type[Record] | str]:
        composites = (CompositePodGroup,) if gates.CompositePodGroup else ()
        return (*cls.lists, *composites)

    def __init__(self, args: object, handle: Handle) -> None:
        super().__init__(args, handle)
        self._has_composites = handle.feature_gates.CompositePodGroup

    @property
    def _groups(self) -> GroupStates:
        groups = self.handle.groups
        assert groups is not None, "GangScheduling needs the gate GenericWorkload"
        return groups

    # -- queue -------------------------------------------------------------------------------------

    def pre_enqueue(self, pod: Pod) -> Status | None:
        key = group_of(pod)
        if key is None:
            return None
        if self._has_composites:
            return self._pre_enqueue_tree(key)
        state = self._groups.state(key)
        if state is None or state.group is None:
            name = key.name
            return unresolvable(
                f'waiting for pods\'s pod group "{name}" to appear in scheduling queue'
            )
        if not is_gang(state.group) or len(state.pods) >= min_count(state.group):
            return None
        return TOO_FEW

    def _pre_enqueue_tree(self, key: GroupKey) -> Status | None:
        try:
            *_, root = self._groups.ancestors(key)
        except HierarchyError as error:
            return unresolvable(f"failed to build hierarchy snapshot: {error}")
        if self._is_ready(root, lambda state: len(state.pods)):
            return None
        if isinstance(root, PodGroup):
            return TOO_FEW
        return unresolvable(_tree_text(root))

    def _is_ready(self, group: Group, count: Callable[[PodGroupState], int]) -> bool:
        """Whether enough pods (or child groups that are ready) exist below a group."""
        key = key_of_group(group)
        if isinstance(group, PodGroup):
            state = self._groups.state(key)
            return state is not None and count(state) >= min_count(group)
        ready = sum(self._is_ready(child, count) for child in self._groups.children(key))
        return ready >= min_count(group)

    # -- cycle -------------------------------------------------------------------------------------

    def placement_feasible(self, group: GroupNode, remaining: int, scheduled: int) -> Status | None:
        wanted = min_count(group.group)
        if scheduled >= wanted:
            return None
        counts = f"{scheduled} scheduled, {remaining} remaining"
        if remaining + scheduled < wanted:
            return unschedulable(f"minCount ({wanted}) cannot be satisfied: {counts}")
        return Status(Code.WAIT, (f"minCount ({wanted}) is not yet satisfied: {counts}",))

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | Wait | None:
        key = group_of(pod)
        if key is None:
            return None
        known = self._groups.state(key)
        if known is None or known.group is None:
            missing = f"pod group object not found for pod group {key}"
            return error_status(f"failed to get podGroup {key.namespace}/{key.name}: {missing}")
        if self._has_composites and known.group.spec.parent_composite_pod_group_name is not None:
            return self._permit_tree(key)
        if not is_gang(known.group):
            return None
        if known.scheduled_count < min_count(known.group):
            self._activate([known])
            return _WAIT
        self._allow([known])
        return None

    def _permit_tree(self, key: GroupKey) -> Status | Wait | None:
        try:
            *_, root = self._groups.ancestors(key)
        except HierarchyError as error:
            return error_status(f"failed to build hierarchy snapshot: {error}")
        states = [
            state
            for leaf in self._groups.leaves(key_of_group(root))
            if (state := self._groups.state(leaf)) is not None
        ]
        if self._is_ready(root, lambda state: state.scheduled_count):
            self._allow(states)
            return None
        self._activate(states)
        assert isinstance(root, CompositePodGroup), "a group with a parent has a composite root"
        return Wait(PERMIT_TIMEOUT_S, _tree_text(root))

    def _activate(self, states: Sequence[PodGroupState]) -> None:
        """Let the rest of the group be tried at once: it is one entry, so one member suffices."""
        waiting = (pod for state in states for pod in state.unscheduled.values())
        pod = next(waiting, None)
        if pod is not None and self.handle.activate is not None:
            self.handle.activate({key_of(pod.metadata): pod})

    def _allow(self, states: Sequence[PodGroupState]) -> None:
        waiting_pods = self.handle.waiting_pods
        assert waiting_pods is not None, "Permit needs waiting pods"
        for state in states:
            for uid in state.assumed:
                waiting = waiting_pods.get(uid)
                if waiting is not None:
                    waiting.allow(self.name)

    # -- events ------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        events = [
            on_event(Resource.UNSCHEDULED_POD, Action.ADD, self._after_pod),
            on_event(Resource.ASSIGNED_POD, Action.ADD, self._after_pod),
            on_event(Resource.POD_GROUP, Action.ADD, self._after_group),
            on_event(Resource.POD_GROUP, Action.UPDATE, self._after_group_update),
        ]
        if self._has_composites:
            events.append(on_event(Resource.COMPOSITE_POD_GROUP, Action.ADD, self._after_group))
        return events

    @reads("class")
    def _after_pod(self, pod: Pod, old: Pod | None, new: Pod) -> Hint:
        own, other = group_of(pod), group_of(new)
        if own is None or other is None:
            return Hint.SKIP
        return Hint.QUEUE if self._is_same_tree(own, other) else Hint.SKIP

    @reads("class")
    def _after_group(self, pod: Pod, old: Group | None, new: Group) -> Hint:
        own = group_of(pod)
        is_same = own is not None and self._is_same_tree(own, key_of_group(new))
        return Hint.QUEUE if is_same else Hint.SKIP

    @reads("class")
    def _after_group_update(self, pod: Pod, old: PodGroup, new: PodGroup) -> Hint:
        own = group_of(pod)
        if own is None or not self._is_same_tree(own, key_of_group(new)):
            return Hint.SKIP
        is_lower = is_gang(old) and is_gang(new) and min_count(new) < min_count(old)
        return Hint.QUEUE if is_lower else Hint.SKIP

    def _is_same_tree(self, one: GroupKey, other: GroupKey) -> bool:
        if one == other:
            return True
        if not self._has_composites:
            return False
        root = self._groups.root_of(one)
        return root is not None and root is self._groups.root_of(other)


def _tree_text(root: Group) -> str:
    return f'waiting for composite pod group "{root.metadata.name}" tree to meet quorum'
