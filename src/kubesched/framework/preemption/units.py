"""Preemption units: what is evicted together.

A pod without a group is a unit. So is a member of a group that may be disrupted pod by pod; a group
with `disruptionMode: {all: {}}` is one unit with all its pods, wherever they run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from kubesched.api.core_v1 import Pod
from kubesched.framework.groups.states import (
    Group,
    GroupKey,
    GroupStates,
    HierarchyError,
    group_of,
    key_of_group,
)
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.preemption.budgets import Budgets
from kubesched.framework.preemption.importance import NOT_STARTED, started_us


class UnitKind(IntEnum):
    """Kinds in order of importance."""

    POD = 0
    POD_GROUP = 1
    COMPOSITE_POD_GROUP = 2


@dataclass(frozen=True)
class Unit:
    """Pods that are evicted together or not at all."""

    pods: tuple[PodInfo, ...]
    priority: int
    kind: UnitKind
    now_us: int

    @property
    def is_group(self) -> bool:
        return self.kind is not UnitKind.POD

    @cached_property
    def importance(self) -> tuple[int, int, int, int]:
        """Sort key, most important first: priority, kind, size, earliest start."""
        starts = [started_us(pod.pod) for pod in self.pods]
        earliest = min(self.now_us if start == NOT_STARTED else start for start in starts)
        return (-self.priority, -self.kind, -len(self.pods), earliest)


class Units:
    """Finds the units of pods."""

    def __init__(self, states: GroupStates, now_us: int) -> None:
        self._states = states
        self._now_us = now_us

    def priority_of(self, pod: Pod) -> int:
        """The priority of the topmost group that is known, or of the pod itself."""
        above = self._known_ancestors(pod)
        return (above[-1].spec.priority or 0) if above else (pod.spec.priority or 0)

    @cached_property
    def have_own_priorities(self) -> bool:
        """Whether all pods of groups have the priority of their group."""
        pods = self._states.all_scheduled_pods()
        return all(self.priority_of(pod) == (pod.spec.priority or 0) for pod in pods)

    def everywhere(self, table: NodeTable) -> list[Unit]:
        """The units of all pods on nodes, in node and pod order."""
        rows = table.order_rows.tolist()
        return list(self.of(table, (pod for row in rows for pod in table.pods[row].values())))

    def of(self, table: NodeTable, pods: Iterable[PodInfo]) -> Iterator[Unit]:
        """The units that these pods belong to, each once."""
        seen: set[GroupKey] = set()
        for pod in pods:
            whole = self._evicted_with(pod.pod)
            if whole is None:
                yield self._single(pod)
            elif (key := key_of_group(whole)) not in seen:
                seen.add(key)
                yield self._group(table, pod, whole)

    def _single(self, pod: PodInfo) -> Unit:
        kind = UnitKind.POD if group_of(pod.pod) is None else UnitKind.POD_GROUP
        return Unit((pod,), self.priority_of(pod.pod), kind, self._now_us)

    def _group(self, table: NodeTable, pod: PodInfo, whole: Group) -> Unit:
        key = key_of_group(whole)
        placed = (
            (table.row_of.get(each.spec.node_name), each.metadata.uid)
            for each in self._states.scheduled_pods_below(key)
        )
        pods = tuple(
            found
            for row, uid in placed
            if row is not None and (found := table.pods[row].get(uid)) is not None
        )
        if not pods:
            return self._single(pod)
        kind = UnitKind.COMPOSITE_POD_GROUP if key.is_composite else UnitKind.POD_GROUP
        return Unit(pods, self.priority_of(pod.pod), kind, self._now_us)

    def _evicted_with(self, pod: Pod) -> Group | None:
        """The highest group above a pod that is disrupted as a whole."""
        for group in reversed(self._known_ancestors(pod)):
            mode = group.spec.disruption_mode
            if mode is not None and mode.all is not None:
                return group
        return None

    def _known_ancestors(self, pod: Pod) -> list[Group]:
        key, known = group_of(pod), list[Group]()
        if key is not None:
            try:
                for group in self._states.ancestors(key):
                    known.append(group)  # what was found before an error counts
            except HierarchyError:
                return known
        return known


def violating_first(units: Sequence[Unit], budgets: Budgets) -> list[tuple[Unit, int]]:
    """The units in the order of the reprieve, with the number of pods that violate budgets."""
    verdicts = iter(budgets.violated_by([pod for unit in units for pod in unit.pods]))
    counted = [(unit, sum(next(verdicts) for _ in unit.pods)) for unit in units]
    return sorted(counted, key=lambda each: not each[1])
