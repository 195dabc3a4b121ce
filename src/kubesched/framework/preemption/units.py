"""Preemption units: what is evicted together.

A pod without a group is a unit. So is a member of a group that may be disrupted pod by pod; a group
with `disruptionMode: {all: {}}` is one unit with all its pods, wherever they run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
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


class Unit:
    """Pods that are evicted together or not at all."""

    __slots__ = ("importance", "kind", "pods", "priority")

    def __init__(
        self, pods: tuple[PodInfo, ...], priority: int, kind: UnitKind, now_us: int
    ) -> None:
        self.pods = pods
        self.priority = priority
        self.kind = kind
        starts = [started_us(pod.pod) for pod in pods]
        earliest = min([now_us if start == NOT_STARTED else start for start in starts])
        self.importance = (-priority, -kind, -len(pods), earliest)
        """Sort key, most important first: priority, kind, size, earliest start."""


class Units:
    """Finds the units of pods."""

    def __init__(self, states: GroupStates, now_us: int) -> None:
        self._states = states
        self._now_us = now_us
        self._ancestors: dict[GroupKey, list[Group]] = {}

    def priority_of(self, pod: Pod) -> int:
        """The priority of the topmost group that is known, or of the pod itself."""
        key = group_of(pod)
        above = () if key is None else self._known_ancestors(key)
        return (above[-1].spec.priority or 0) if above else (pod.spec.priority or 0)

    @cached_property
    def have_own_priorities(self) -> bool:
        """Whether all pods of groups have the priority of their group."""
        pods = self._states.all_scheduled_pods()
        return all(self.priority_of(pod) == (pod.spec.priority or 0) for pod in pods)

    def below(self, table: NodeTable, priority: int) -> list[PodInfo | Unit]:
        """The units of lower priority on all nodes, in the order of nodes and pods.

        Most are of one pod, and that pod stands for them: few get a record (`unit`), whose order
        matters.
        """
        rows = table.order_rows.tolist()
        pods = (pod for row in rows for pod in table.pods[row].values())
        single = (pod for pod in pods if pod.priority < priority or pod.pod.spec.scheduling_group)
        return [unit for unit, own in self._units_of(table, single) if own < priority]

    def of(self, table: NodeTable, pods: Iterable[PodInfo]) -> Iterator[Unit]:
        """The units that these pods belong to, each once."""
        return (self.unit(each) for each, _ in self._units_of(table, pods))

    def unit(self, each: PodInfo | Unit) -> Unit:
        """The unit that a pod stands for."""
        if isinstance(each, Unit):
            return each
        kind = UnitKind.POD if group_of(each.pod) is None else UnitKind.POD_GROUP
        return Unit((each,), self.priority_of(each.pod), kind, self._now_us)

    def _units_of(
        self, table: NodeTable, pods: Iterable[PodInfo]
    ) -> Iterator[tuple[PodInfo | Unit, int]]:
        """The units of these pods, with their priorities; those of one pod as that pod."""
        seen: set[GroupKey] = set()
        for pod in pods:
            key = group_of(pod.pod)
            if key is None:
                yield pod, pod.priority
                continue
            above = self._known_ancestors(key)
            priority = (above[-1].spec.priority or 0) if above else pod.priority
            whole = _evicted_as_one(above)
            if whole is None:
                yield pod, priority
            elif whole not in seen:
                seen.add(whole)
                pods_below = self._placed_below(table, whole)
                is_composite = whole.is_composite and bool(pods_below)
                kind = UnitKind.COMPOSITE_POD_GROUP if is_composite else UnitKind.POD_GROUP
                yield Unit(pods_below or (pod,), priority, kind, self._now_us), priority

    def _placed_below(self, table: NodeTable, key: GroupKey) -> tuple[PodInfo, ...]:
        placed = (
            (table.row_of.get(each.spec.node_name), each.metadata.uid)
            for each in self._states.scheduled_pods_below(key)
        )
        return tuple(
            found
            for row, uid in placed
            if row is not None and (found := table.pods[row].get(uid)) is not None
        )

    def _known_ancestors(self, key: GroupKey) -> Sequence[Group]:
        known = self._ancestors.get(key)
        if known is None:
            known = self._ancestors[key] = []
            with suppress(HierarchyError):  # what was found before it counts
                known.extend(self._states.ancestors(key))
        return known


def _evicted_as_one(ancestors: Sequence[Group]) -> GroupKey | None:
    """The highest group that is disrupted as a whole."""
    for group in reversed(ancestors):
        mode = group.spec.disruption_mode
        if mode is not None and mode.all is not None:
            return key_of_group(group)
    return None


def violating_first(units: Sequence[Unit], budgets: Budgets) -> list[tuple[Unit, int]]:
    """The units in the order of the reprieve, with the number of pods that violate budgets."""
    if budgets.is_empty:
        return [(unit, 0) for unit in units]
    verdicts = iter(budgets.violated_by([pod for unit in units for pod in unit.pods]))
    counted = [(unit, sum(next(verdicts) for _ in unit.pods)) for unit in units]
    return sorted(counted, key=lambda each: not each[1])
