"""Preemption by a group: room for all its members at once.

All lower units leave the live tables, the whole group is placed again, and then the units come back
one by one, most important first, as long as the members still fit on the nodes that were chosen.
What does not come back is evicted. Everything is undone before this returns; nothing else changes
the tables in between, also while an extender is awaited (`scheduler.event_gate`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from kubesched.api import codec
from kubesched.api.core_v1 import Pod
from kubesched.framework.extenders import Victims
from kubesched.framework.groups.states import GroupStates
from kubesched.framework.groups.tree import GroupNode, Nominations, PlacedPod, PlaceGroup
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.preemption.budgets import Budgets
from kubesched.framework.preemption.dry_run import CaringPlugins
from kubesched.framework.preemption.executor import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER
from kubesched.framework.preemption.units import Unit, Units, split_by_budgets
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.nominated import filter_with_nominated_pods
from kubesched.framework.runtime.pre_filter import run_pre_filter
from kubesched.framework.runtime.reserve import run_reserve, run_unreserve
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
        self._caring: list[CaringPlugins] | None = None
        """What filters look at beyond a node, for each kind of members; known once placed."""

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
        lower = [
            unit
            for unit in self._units.everywhere(self._table)
            if unit.priority < self._group.priority
        ]
        if not lower:
            return None, NO_VICTIMS
        with _Trial(self._table) as trial:
            for unit in lower:
                trial.take_out(unit)
            placed, status = await self._place()
            if not status.is_success:
                return None, status
            return self._reprieve(trial, lower, placed)

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
                if _is_being_preempted(pod.pod) and (
                    self._units.priority_of(pod.pod) < self._group.priority
                ):
                    return True
        return False

    def _reprieve(
        self, trial: _Trial, lower: list[Unit], placed: Sequence[PlacedPod]
    ) -> GroupPreemption:
        ranked = sorted(lower, key=lambda unit: unit.importance)
        violating, others = split_by_budgets(ranked, self._budgets)
        condemned: list[Unit] = []
        violations = 0
        for unit, count in violating:
            if not self._can_stay(trial, unit, placed):
                condemned.append(unit)
                violations += count
        condemned += [unit for unit in others if not self._can_stay(trial, unit, placed)]
        condemned.sort(key=lambda unit: unit.importance)
        pods = tuple(pod.pod for unit in condemned for pod in unit.pods)
        nominations = {each.pod.uid: NominatingInfo(True, each.node_name) for each in placed}
        groups = sum(unit.is_group for unit in condemned)
        return GroupPreemption(nominations, Victims(pods, violations), groups)

    def _can_stay(self, trial: _Trial, unit: Unit, placed: Sequence[PlacedPod]) -> bool:
        """Put a unit back; if a member no longer fits on its node, take it out again."""
        trial.put_back(unit)
        is_local = self._is_local(unit, placed)
        if is_local:
            nodes = {pod.pod.spec.node_name for pod in unit.pods}
            placed = [each for each in placed if each.node_name in nodes]
        with ExitStack() as undo:
            for each in placed:
                if not self._fits(each, on_node_only=is_local):
                    trial.take_out(unit)
                    return False
                self._add(each, undo)
        return True

    def _is_local(self, unit: Unit, placed: Sequence[PlacedPod]) -> bool:
        """Whether a unit can be in the way only of members on its nodes.

        So it is if filters that look beyond a node ignore its pods, whichever member is judged: the
        members fitted where they are, and nothing has changed elsewhere.
        """
        if self._caring is None:
            alike = {_kind_of(each.pod.pod): each for each in placed}
            self._caring = [
                CaringPlugins(self._framework, each.state, each.pod.pod) for each in alike.values()
            ]
        return all(
            caring.can_tell and not any(map(caring.care, unit.pods)) for caring in self._caring
        )

    def _fits(self, each: PlacedPod, *, on_node_only: bool) -> bool:
        """Whether a member passes the filters on its node, with what it knew when it was placed.

        With `on_node_only`, what filters say that look beyond the node has not changed.

        # Upstream: PreFilter of a plugin that skipped the pod then is not asked again, so a unit
        # that would matter to it is not noticed.
        """
        framework, state, pod = self._framework, each.state, each.pod
        skipped = state.skip_filter_plugins
        plugins = [
            plugin
            for plugin in framework.pre_filter
            if plugin.has_extensions and plugin.name not in skipped
        ]
        if on_node_only:
            state.skip_filter_plugins = skipped | {plugin.name for plugin in plugins}
        else:
            outcome = run_pre_filter(
                framework, state, pod.pod, NodeColumns(self._table), plugins=plugins
            )
            state.skip_filter_plugins = skipped | state.skip_filter_plugins
            if outcome.status is not None:
                return False
        row = self._table.row_of[each.node_name]
        view = NodeColumns(self._table, np.array([row]))
        result = filter_with_nominated_pods(framework, state, pod, view)
        state.skip_filter_plugins = skipped
        return result.error is None and bool(result.passing[0])

    def _add(self, each: PlacedPod, undo: ExitStack) -> None:
        """A member takes its place, so that the next one sees it."""
        pod = each.pod.assumed_on(each.node_name)
        self._table.add_pod(pod, each.node_name)
        undo.callback(self._table.remove_pod, pod, each.node_name)
        run_reserve(self._framework, each.state, pod.pod, each.node_name)
        undo.callback(run_unreserve, self._framework, each.state, pod.pod, each.node_name)


class _Trial:
    """Units that are out of the live tables; all are back, in their order, at the end."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._out: dict[int, Unit] = {}
        self._order: dict[int, list[str]] = {}

    def __enter__(self) -> _Trial:
        return self

    def __exit__(self, *_: object) -> None:
        for unit in list(self._out.values()):
            self.put_back(unit)
        for row, order in self._order.items():
            pods = self._table.pods[row]
            for uid in order:
                pods[uid] = pods.pop(uid)
        self._table.refresh()

    def take_out(self, unit: Unit) -> None:
        self._out[id(unit)] = unit
        for pod in unit.pods:
            row = self._row_of(pod)
            self._order.setdefault(row, list(self._table.pods[row]))
            self._table.remove_pod(pod, pod.pod.spec.node_name)
        self._table.refresh()

    def put_back(self, unit: Unit) -> None:
        del self._out[id(unit)]
        for pod in unit.pods:
            self._table.add_pod(pod, pod.pod.spec.node_name)
        self._table.refresh()

    def _row_of(self, pod: PodInfo) -> int:
        return self._table.row_of[pod.pod.spec.node_name]


def _kind_of(pod: Pod) -> bytes:
    """Equal for pods that filters cannot tell apart."""
    meta = pod.metadata
    return codec.encode((meta.namespace, meta.labels, meta.owner_references, pod.spec))


def _is_being_preempted(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None and any(
        condition.type == DISRUPTION_TARGET
        and condition.status == "True"
        and condition.reason == PREEMPTION_BY_SCHEDULER
        for condition in pod.status.conditions or ()
    )
