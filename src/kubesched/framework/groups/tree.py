"""The tree of groups that is being tried, and where its pods could go."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.groups.states import Group, GroupKey, key_of_group
from kubesched.framework.nodes.columns import Indices
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.status import Status


@dataclass(slots=True, eq=False)
class GroupNode:
    """A group in the tree that is being tried."""

    group: Group
    members: list[QueuedPodInfo] = field(default_factory=list)
    """The queued pods of a PodGroup, in the order in which they are tried."""
    children: list[GroupNode] = field(default_factory=list)
    """The child groups of a composite."""

    @property
    def key(self) -> GroupKey:
        return key_of_group(self.group)

    @property
    def priority(self) -> int:
        return self.group.spec.priority or 0

    def leaves(self) -> list[GroupNode]:
        """The PodGroups of the tree."""
        if not self.key.is_composite:
            return [self]
        return [leaf for child in self.children for leaf in child.leaves()]

    def all_members(self) -> list[QueuedPodInfo]:
        return [info for leaf in self.leaves() for info in leaf.members]


@dataclass(frozen=True, slots=True)
class Placement:
    """Nodes on which a group may be placed, by row."""

    name: str
    rows: Indices


class PlacedPod(NamedTuple):
    """A member with a place."""

    pod: PodInfo
    node_name: str
    state: CycleState


PlaceGroup = Callable[[], Coroutine[Any, Any, tuple[Sequence[PlacedPod], Status]]]
"""Runs the whole algorithm again on the present state; the placed members and the root's status.

To be awaited, because extenders may be asked about members.
"""

Nominations = Mapping[str, NominatingInfo]
"""By UID of the pod."""


@dataclass(slots=True)
class GroupCycle:
    """State that the members of one group cycle share."""

    member_states: dict[str, CycleState] = field(default_factory=dict)
    """The states of members that got as far as PreFilter, by UID."""
