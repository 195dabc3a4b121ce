"""Victim selection on one node: remove all potential victims, then reprieve important ones.

Works for every pod and plugin. `victim_columns` does the same for many nodes at once where the
pod's filters allow; the tests compare the two.

# Upstream: the victims are not a minimal set, as the most important pods get the first chance to
# stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.extenders import Victims
from kubesched.framework.interfaces import FilterPlugin
from kubesched.framework.nodes.node_info import NodeInfo
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns, WhatIfColumns
from kubesched.framework.preemption.budgets import Budgets
from kubesched.framework.preemption.importance import MoreImportant, by_importance
from kubesched.framework.preemption.units import Unit, Units, violating_first
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.filter import CaringPlugins, pod_dependent_filters
from kubesched.framework.runtime.nominated import filter_node_with_nominated
from kubesched.framework.runtime.pre_filter import run_add_pod, run_remove_pod
from kubesched.framework.status import Status, error_status, unresolvable

NO_VICTIMS: Final = unresolvable("No preemption victims found for incoming pod")

IsEligible = Callable[[NodeInfo, PodInfo, PodInfo], bool]
"""(node, potential victim, preemptor) -> may it be evicted? Only for pods of lower priority."""


SelectVictims = Callable[["OneNode"], "Victims | Status"]
"""A plugin's own selection on a node. For every node that evicting pods may help."""


@dataclass(frozen=True, slots=True)
class VictimRules:
    """Overrides for victim selection; None means the default rule."""

    is_eligible: IsEligible | None = None
    more_important: MoreImportant | None = None
    units: Units | None = None
    """Set if pods of groups are among the potential victims: units are evicted, not pods."""
    select: SelectVictims | None = None
    """Takes the place of all other rules."""

    @property
    def are_usual(self) -> bool:
        return self == USUAL_RULES

    @property
    def go_by_priority(self) -> bool:
        """Whether no pod is evicted for one that has no higher priority than the pod itself."""
        return self.select is None and (self.units is None or self.units.have_own_priorities)


USUAL_RULES: Final = VictimRules()


class Scopes(NamedTuple):
    """What the verdicts of a preemptor's filters depend on."""

    are_row_local: bool
    """A node's verdict depends on that node and its pods alone."""
    pod_dependent: list[FilterPlugin]
    """The filters to rerun when pods are added to or removed from a node."""


@dataclass
class Preemptor:
    """The pod that needs room, and its failed attempt."""

    framework: Framework
    state: CycleState
    pod: PodInfo
    now_us: int

    @cached_property
    def scopes(self) -> Scopes:
        """A caller that knows the scopes may set them."""
        framework, state, pod = self.framework, self.state, self.pod.pod
        return Scopes(
            CaringPlugins(framework, state, pod).are_row_local,
            pod_dependent_filters(framework, state, pod),
        )


def no_victim_on(node_name: str) -> Status:
    """For a node where the pod now fits, or whose victims an extender removed."""
    return error_status(f'expected at least one victim pod on node "{node_name}"')


def select_victims(
    preemptor: Preemptor, row: int, budgets: Budgets, rules: VictimRules = USUAL_RULES
) -> Victims | Status:
    """The pods to evict from a node, possibly none, or a status if preemption does not help."""
    if rules.select is not None:
        return rules.select(OneNode(preemptor, row, budgets, rules))
    one_node = OneNode if rules.units is None else _UnitsOnNode
    return one_node(preemptor, row, budgets, rules).select()


class OneNode:
    """The what-if for one node: a view and a copy of the cycle state.

    Plugins with a selection of their own use `preemptor`, `node_name`, `pods`, `state` and the
    methods `take`, `put`, `rejection`, `ranked`, `violated_by` and `victims`.
    """

    def __init__(
        self, preemptor: Preemptor, row: int, budgets: Budgets, rules: VictimRules
    ) -> None:
        table = preemptor.framework.handle.table
        self._preemptor = preemptor
        self._state = preemptor.state.clone()
        self._live = NodeColumns(table, np.array([row]))
        self._view = WhatIfColumns(table, np.array([row]), [[]], [[]])
        self._budgets = budgets
        self._rules = rules

    @property
    def preemptor(self) -> PodInfo:
        return self._preemptor.pod

    @property
    def state(self) -> CycleState:
        """As `add_pod` and `remove_pod` of the plugins leave it."""
        return self._state

    @property
    def node_name(self) -> str:
        return self._live.name_at(0)

    @property
    def pods(self) -> Sequence[PodInfo]:
        """All pods on the node, also those taken away."""
        return self._live.pods_at(0)

    def rejection(self) -> Status | None:
        """Why the preemptor does not fit now, nominated pods included; None if it fits."""
        return self._filter()

    def ranked(self, pods: Sequence[PodInfo]) -> list[PodInfo]:
        """Most important first."""
        return by_importance(pods, self._preemptor.now_us, self._rules.more_important)

    def violated_by(self, pods: Sequence[PodInfo]) -> list[bool]:
        """Which evictions would violate a budget, if every pod is charged to all its budgets."""
        return self._budgets.violated_by(pods, stops_at_violation=False)

    def victims(self, pods: Sequence[PodInfo], pdb_violations: int) -> Victims:
        return Victims(tuple(pod.pod for pod in pods), pdb_violations)

    def select(self) -> Victims | Status:
        possible = self._possible_victims()
        for pod in possible:
            failed = self.take(pod)
            if failed is not None:
                return failed
        if not possible:
            return NO_VICTIMS
        status = self._filter()
        if status is not None:
            return status
        ranked = self.ranked(possible)
        violates = self._budgets.violated_by(ranked)
        protected = [pod for pod, violating in zip(ranked, violates, strict=True) if violating]
        free = [pod for pod, violating in zip(ranked, violates, strict=True) if not violating]
        condemned = self._reprieve(protected)
        if isinstance(condemned, Status):
            return condemned
        evicted = self._reprieve(free)
        if isinstance(evicted, Status):
            return evicted
        gone = {pod.uid for pod in (*condemned, *evicted)}
        victims = tuple(pod.pod for pod in ranked if pod.uid in gone)
        return Victims(victims, len(condemned))

    def _possible_victims(self) -> list[PodInfo]:
        preemptor, is_eligible = self._preemptor.pod, self._rules.is_eligible
        lower = [pod for pod in self._live.pods_at(0) if pod.priority < preemptor.priority]
        if is_eligible is None or not lower:
            return lower
        node = self._live.info_at(0)
        return [pod for pod in lower if is_eligible(node, pod, preemptor)]

    def _reprieve(self, pods: Sequence[PodInfo]) -> list[PodInfo] | Status:
        """Add pods back one by one; returns those that do not fit."""
        evicted: list[PodInfo] = []
        for pod in pods:
            failed = self.put(pod)
            if failed is not None:
                return failed
            status = self._filter(self._preemptor.scopes.pod_dependent)
            if status is None:
                continue
            # Upstream: a filter error here counts as "no room" for this pod.
            failed = self.take(pod)
            if failed is not None:
                return failed
            evicted.append(pod)
        return evicted

    def _filter(self, plugins: list[FilterPlugin] | None = None) -> Status | None:
        preemptor = self._preemptor
        return filter_node_with_nominated(
            preemptor.framework, self._state, preemptor.pod, self._view, plugins
        )

    def take(self, pod: PodInfo) -> Status | None:
        """Remove a pod; an error of a plugin ends the selection on this node."""
        self._view.take(0, pod)
        preemptor = self._preemptor
        return run_remove_pod(preemptor.framework, self._state, preemptor.pod.pod, pod, self._view)

    def put(self, pod: PodInfo) -> Status | None:
        """Put a pod back."""
        preemptor = self._preemptor
        failed = run_add_pod(preemptor.framework, self._state, preemptor.pod.pod, pod, self._view)
        self._view.put(0, pod)
        return failed


class _UnitsOnNode(OneNode):
    """Victims among groups: a group that is evicted as a whole brings its pods on other nodes."""

    def select(self) -> Victims | Status:
        units, preemptor = self._rules.units, self._preemptor.pod
        assert units is not None, "units are selected by the rules for units"
        table = self._live.table
        lower = [
            unit
            for unit in units.of(table, self._live.pods_at(0))
            if unit.priority < preemptor.priority
        ]
        for unit in lower:
            failed = self._take_unit(unit)
            if failed is not None:
                return failed
        if not lower:
            return NO_VICTIMS
        status = self._filter()
        if status is not None:
            return status
        ranked = sorted(lower, key=lambda unit: unit.importance)
        evicted: set[int] = set()
        violations = 0
        for unit, count in violating_first(ranked, self._budgets):
            stays = self._can_stay(unit)
            if isinstance(stays, Status):
                return stays
            if not stays:
                evicted.add(id(unit))
                violations += count
        victims = tuple(pod.pod for unit in ranked if id(unit) in evicted for pod in unit.pods)
        return Victims(victims, violations)

    def _can_stay(self, unit: Unit) -> bool | Status:
        for pod in unit.pods:
            failed = self.put(pod)
            if failed is not None:
                return failed
        if self._filter(self._preemptor.scopes.pod_dependent) is None:
            return True
        return self._take_unit(unit) or False

    def _take_unit(self, unit: Unit) -> Status | None:
        for pod in unit.pods:
            failed = self.take(pod)
            if failed is not None:
                return failed
        return None

    def take(self, pod: PodInfo) -> Status | None:
        elsewhere = self._elsewhere(pod)
        if elsewhere is None:
            return super().take(pod)
        framework, preemptor = self._preemptor.framework, self._preemptor.pod.pod
        return run_remove_pod(framework, self._state, preemptor, pod, elsewhere)

    def put(self, pod: PodInfo) -> Status | None:
        elsewhere = self._elsewhere(pod)
        if elsewhere is None:
            return super().put(pod)
        framework, preemptor = self._preemptor.framework, self._preemptor.pod.pod
        return run_add_pod(framework, self._state, preemptor, pod, elsewhere)

    def _elsewhere(self, pod: PodInfo) -> NodeColumns | None:
        """The node of a pod that is not on this one: only PreFilter states notice that it goes."""
        table = self._live.table
        row = table.row_of[pod.pod.spec.node_name]
        return (
            None if row == int(self._live.row_indices()[0]) else NodeColumns(table, np.array([row]))
        )
