"""Preemption units: what is evicted together.

A pod without a group is a unit. So is a member of a group that may be disrupted pod by pod; a group
with `disruptionMode: {all: {}}` is one unit with all its pods, wherever they run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from enum import IntEnum
from functools import cached_property
from operator import attrgetter

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

    @property
    def is_group(self) -> bool:
        return self.kind is not UnitKind.POD


class Units:
    """Finds the units of pods."""

    def __init__(self, states: GroupStates, now_us: int) -> None:
        self._states = states
        self._now_us = now_us
        self._ancestors: dict[GroupKey, list[Group]] = {}

    def priority_of(self, pod: Pod) -> int:
        """The priority of the topmost group that is known, or of the pod itself."""
        above = self._known_ancestors(pod)
        return (above[-1].spec.priority or 0) if above else (pod.spec.priority or 0)

    @cached_property
    def have_own_priorities(self) -> bool:
        """Whether all pods of groups have the priority of their group."""
        pods = self._states.all_scheduled_pods()
        return all(self.priority_of(pod) == (pod.spec.priority or 0) for pod in pods)

    def below(self, table: NodeTable, priority: int) -> list[Unit]:
        """The units of lower priority on all nodes, most important first."""
        rows = table.order_rows.tolist()
        pods = (pod for row in rows for pod in table.pods[row].values())
        single = (pod for pod in pods if pod.priority < priority or pod.pod.spec.scheduling_group)
        lower = [unit for unit in self.of(table, single) if unit.priority < priority]
        return sorted(lower, key=attrgetter("importance"))

    def of(self, table: NodeTable, pods: Iterable[PodInfo]) -> Iterator[Unit]:
        """The units that these pods belong to, each once."""
        seen: set[GroupKey] = set()
        for pod in pods:
            if group_of(pod.pod) is None:
                yield Unit((pod,), pod.priority, UnitKind.POD, self._now_us)
                continue
            whole = self._evicted_with(pod.pod)
            if whole is None:
                yield self._single(pod)
            elif (key := key_of_group(whole)) not in seen:
                seen.add(key)
                yield self._group(table, pod, whole)

    def _single(self, pod: PodInfo) -> Unit:
        return Unit((pod,), self.priority_of(pod.pod), UnitKind.POD_GROUP, self._now_us)

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

    def _known_ancestors(self, pod: Pod) -> Sequence[Group]:
        key = group_of(pod)
        if key is None:
            return ()
        known = self._ancestors.get(key)
        if known is None:
            known = self._ancestors[key] = []
            with suppress(HierarchyError):  # what was found before it counts
                known.extend(self._states.ancestors(key))
        return known


def violating_first(units: Sequence[Unit], budgets: Budgets) -> list[tuple[Unit, int]]:
    """The units in the order of the reprieve, with the number of pods that violate budgets."""
    if budgets.is_empty:
        return [(unit, 0) for unit in units]
    verdicts = iter(budgets.violated_by([pod for unit in units for pod in unit.pods]))
    counted = [(unit, sum(next(verdicts) for _ in unit.pods)) for unit in units]
    return sorted(counted, key=lambda each: not each[1])
