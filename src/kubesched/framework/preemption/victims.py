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
from operator import attrgetter
from typing import Final

import numpy as np

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.extenders import Victims
from kubesched.framework.interfaces import FilterPlugin
from kubesched.framework.nodes.node_info import NodeInfo
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns, WhatIfColumns
from kubesched.framework.preemption.budgets import Budgets
from kubesched.framework.preemption.importance import MoreImportant, by_importance
from kubesched.framework.preemption.units import Unit, UnitKind, Units, violating_first
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.filter import CaringPlugins
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


@dataclass
class Preemptor:
    """The pod that needs room, and its failed attempt."""

    framework: Framework
    state: CycleState
    pod: PodInfo
    now_us: int

    @cached_property
    def caring(self) -> CaringPlugins:
        """What the filters' verdicts depend on. A caller that knows it may set it."""
        return CaringPlugins(self.framework, self.state, self.pod.pod)


def no_victim_on(node_name: str) -> Status:
    """For a node where the pod now fits, or whose victims an extender removed."""
    return error_status(f'expected at least one victim pod on node "{node_name}"')


def select_victims(
    preemptor: Preemptor, row: int, budgets: Budgets, rules: VictimRules = USUAL_RULES
) -> Victims | Status:
    """The pods to evict from a node, possibly none, or a status if preemption does not help."""
    node = OneNode(preemptor, row, budgets, rules)
    return node.select() if rules.select is None else rules.select(node)


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
        lower = self._possible_victims()
        for unit in lower:
            failed = self._take_unit(unit)
            if failed is not None:
                return failed
        if not lower:
            return NO_VICTIMS
        status = self._filter()
        if status is not None:
            return status
        ranked = sorted(lower, key=attrgetter("importance"))
        if self._rules.more_important is not None and self._rules.units is None:
            order = {pod.uid: at for at, pod in enumerate(self.ranked([u.pods[0] for u in lower]))}
            ranked = sorted(lower, key=lambda unit: order[unit.pods[0].uid])
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

    def _possible_victims(self) -> list[Unit]:
        """Of lower priority. A group evicted as a whole brings its pods on other nodes."""
        rules, preemptor, pods = self._rules, self._preemptor.pod, self.pods
        if rules.units is not None:
            units = rules.units.of(self._live.table, pods)
            return [unit for unit in units if unit.priority < preemptor.priority]
        lower = [pod for pod in pods if pod.priority < preemptor.priority]
        if rules.is_eligible is not None and lower:
            node = self._live.info_at(0)
            lower = [pod for pod in lower if rules.is_eligible(node, pod, preemptor)]
        now_us = self._preemptor.now_us
        return [Unit((pod,), pod.priority, UnitKind.POD, now_us) for pod in lower]

    def _can_stay(self, unit: Unit) -> bool | Status:
        for pod in unit.pods:
            failed = self.put(pod)
            if failed is not None:
                return failed
        # Upstream: a filter error here counts as "no room" for this unit.
        if self._filter(self._preemptor.caring.pod_dependent) is None:
            return True
        return self._take_unit(unit) or False

    def _filter(self, plugins: list[FilterPlugin] | None = None) -> Status | None:
        preemptor = self._preemptor
        return filter_node_with_nominated(
            preemptor.framework, self._state, preemptor.pod, self._view, plugins
        )

    def _take_unit(self, unit: Unit) -> Status | None:
        for pod in unit.pods:
            failed = self.take(pod)
            if failed is not None:
                return failed
        return None

    def take(self, pod: PodInfo) -> Status | None:
        """Remove a pod; an error of a plugin ends the selection on this node."""
        node = self._node_of(pod)
        if node is self._view:
            self._view.take(0, pod)
        preemptor = self._preemptor
        return run_remove_pod(preemptor.framework, self._state, preemptor.pod.pod, pod, node)

    def put(self, pod: PodInfo) -> Status | None:
        """Put a pod back."""
        preemptor, node = self._preemptor, self._node_of(pod)
        failed = run_add_pod(preemptor.framework, self._state, preemptor.pod.pod, pod, node)
        if node is self._view:
            self._view.put(0, pod)
        return failed

    def _node_of(self, pod: PodInfo) -> NodeColumns:
        """Only PreFilter states notice that a pod of a group on another node goes."""
        table = self._live.table
        row = table.row_of[pod.pod.spec.node_name]
        return self._view if row == self._live.row_at(0) else NodeColumns(table, np.array([row]))
