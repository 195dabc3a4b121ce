"""Preemption by a group: room for all its members at once.

All lower units leave the live tables, the whole group is placed again, and the units come back if
the members still fit on their nodes (`reprieve`); the others are evicted. Everything is undone at
the end. Nothing else changes the tables, also while an extender is awaited (`event_gate`).
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

from kubesched.framework.extenders import Victims
from kubesched.framework.groups.states import GroupStates
from kubesched.framework.groups.tree import GroupNode, Nominations, PlaceGroup
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.preemption.budgets import Budgets
from kubesched.framework.preemption.evaluator import is_terminating_by_preemption
from kubesched.framework.preemption.reprieve import Reprieve, Trial
from kubesched.framework.preemption.units import UnitKind, Units, violating_first
from kubesched.framework.runtime import Framework
from kubesched.framework.status import Code, Status, unresolvable, unschedulable

NEVER = "not eligible due to preemptionPolicy=Never."
NO_VICTIMS = unresolvable("No preemption victims found for incoming preemptor")
ONGOING = Status(Code.SUCCESS, ("ongoing preemption on nominated nodes",))


@dataclass(frozen=True, slots=True)
class GroupPreemption:
    """Victims and nominations of a group that can be placed if they leave."""

    nominations: Nominations
    victims: Victims
    disrupted_groups: int


class GroupPreemptor:
    """A rejected group, looking for room."""

    def __init__(
        self,
        framework: Framework,
        states: GroupStates,
        group: GroupNode,
        place: PlaceGroup,
        budgets: Budgets,
        now_us: int,
        *,
        policy_of_group: bool,
    ) -> None:
        self._framework = framework
        self._table = framework.handle.table
        self._group = group
        self._place = place
        self._budgets = budgets
        self._units = Units(states, now_us)
        self._members = [info.pod_info.pod for info in group.all_members()]
        self._policy_of_group = policy_of_group

    async def find(self) -> GroupPreemption | tuple[Nominations | None, Status]:
        """What to evict, or the final answer if nothing is to be evicted."""
        if self._never_preempts():
            return None, unschedulable(NEVER)
        if self._is_ongoing():
            present = {
                pod.metadata.uid: NominatingInfo(True, pod.status.nominated_node_name)
                for pod in self._members
            }
            return present, ONGOING
        lower = self._units.below(self._table, self._group.priority)
        if not lower:
            return None, NO_VICTIMS
        with Trial(self._table, lower) as trial:
            placed, status = await self._place()
            if not status.is_success:
                return None, status
            reprieve = Reprieve(self._framework, trial, placed)
            # Budgets are charged in the order of all units, also those that are not concerned.
            tried = reprieve.concerned(lower) if self._budgets.is_empty else lower
            in_order = sorted(map(self._units.unit, tried), key=attrgetter("importance"))
            ranked = violating_first(in_order, self._budgets)
            units = [unit for unit, _ in ranked]
            evicted = reprieve.condemned(units)
        violations = sum(count for unit, count in ranked if id(unit) in evicted)
        condemned = sorted((u for u in units if id(u) in evicted), key=lambda unit: unit.importance)
        pods = tuple(pod.pod for unit in condemned for pod in unit.pods)
        nominations = {each.pod.uid: NominatingInfo(True, each.node_name) for each in placed}
        disrupted = sum(unit.kind is not UnitKind.POD for unit in condemned)
        return GroupPreemption(nominations, Victims(pods, violations), disrupted)

    def _never_preempts(self) -> bool:
        if self._policy_of_group:
            return self._group.group.spec.preemption_policy == "Never"
        return any(pod.spec.preemption_policy == "Never" for pod in self._members)

    def _is_ongoing(self) -> bool:
        """Whether pods that were evicted for this group are still terminating."""
        table = self._table
        for name in {pod.status.nominated_node_name for pod in self._members}:
            row = table.row_of.get(name)
            for pod in table.pods[row].values() if row is not None else ():
                if is_terminating_by_preemption(pod.pod) and (
                    self._units.priority_of(pod.pod) < self._group.priority
                ):
                    return True
        return False
