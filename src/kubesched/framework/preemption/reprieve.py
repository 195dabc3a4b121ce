"""The reprieve: which lower units may stay beside a group that was placed without them.

Upstream puts units back one by one and judges all members in order, each beside those before it.
Here a unit is tried only where it can change a verdict: on its own nodes and, if filters that look
beyond a node care about its pods, in their topology domains. Units without a common node of members
are tried in one round, in which members that are alike are judged together, as rows.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import zip_longest

import numpy as np

from kubesched.api import codec
from kubesched.framework.engine import TopologyKeys
from kubesched.framework.groups.tree import PlacedPod
from kubesched.framework.nodes.columns import ABSENT
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.preemption.units import Unit
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.filter import CaringPlugins, union
from kubesched.framework.runtime.nominated import filter_with_nominated_pods, is_nominated
from kubesched.framework.runtime.pre_filter import run_pre_filter
from kubesched.framework.runtime.reserve import run_reserve, run_unreserve

Tried = tuple[Unit, Collection[int], bool]
"""A unit, the rows of members it may affect, and whether filters beyond a node care about it."""


class Trial(AbstractContextManager["Trial"]):
    """Units that are out of the live tables; all are back, in their places, at the end."""

    def __init__(self, table: NodeTable, units: Sequence[PodInfo | Unit]) -> None:
        self._table = table
        parts = (unit.pods if isinstance(unit, Unit) else (unit,) for unit in units)
        self._out = table.take_out([pod for pods in parts for pod in pods])
        self._back: dict[int, Unit] = {}
        """Those that were put back for now."""

    def __exit__(self, *_: object) -> None:
        self.take_out(list(self._back.values()))
        self._table.put_back(self._out)
        self._table.refresh()

    def put_back(self, units: Sequence[Unit]) -> None:
        self._back |= {id(unit): unit for unit in units}
        for pod in (pod for unit in units for pod in unit.pods):
            self._table.add_pod(pod, pod.pod.spec.node_name)

    def take_out(self, units: Sequence[Unit]) -> None:
        for unit in units:
            del self._back[id(unit)]
            for pod in unit.pods:
                self._table.remove_pod(pod, pod.pod.spec.node_name)


class Reprieve:
    """Decides which units stay."""

    def __init__(self, framework: Framework, trial: Trial, placed: Sequence[PlacedPod]) -> None:
        self._framework, self._table = framework, framework.handle.table
        self._trial, self._placed = trial, placed
        self._at: dict[int, list[PlacedPod]] = {}
        """The members by row, in order."""
        for each in placed:
            self._at.setdefault(self._row_of(each), []).append(each)
        self._domains: dict[str, dict[int, list[int]]] = {}
        self._kinds = {each.pod.uid: self._kind_of(each) for each in placed}
        alike = {self._kinds[each.pod.uid]: each for each in placed}.values()
        self._caring = [CaringPlugins(framework, each.state, each.pod.pod) for each in alike]
        keys = union([self._keys_affected_by(each.pod) for each in alike])
        together = (rows for key in keys or () for rows in self._rows_in(key).values())
        self._are_independent = keys is not None and all(len(rows) == 1 for rows in together)
        """True if no member changes the verdict on another that is on a different node."""

    def concerned(self, units: Sequence[PodInfo | Unit]) -> list[PodInfo | Unit]:
        """Those of these units that may change a verdict, and all of several pods."""
        nodes = {each.node_name for each in self._placed}
        if all(each.are_row_local for each in self._caring):
            return [u for u in units if isinstance(u, Unit) or u.pod.spec.node_name in nodes]
        return [u for u in units if isinstance(u, Unit) or self._affected_by((u,))[0]]

    def condemned(self, units: Sequence[Unit]) -> set[int]:
        """The ids of the units that cannot stay, of these, in the order in which they come back."""
        rounds: list[list[Tried]] = []
        next_round = dict.fromkeys(self._at, 0)
        for unit in units:
            rows, looks_beyond = self._affected_by(unit.pods)
            if rows:
                number = max([next_round[row] for row in rows])
                next_round.update(dict.fromkeys(rows, number + 1))
                rounds += [[]] if number == len(rounds) else []
                rounds[number].append((unit, rows, looks_beyond))
        return {id(unit) for tried_together in rounds for unit in self._try(tried_together)}

    def _affected_by(self, pods: Sequence[PodInfo]) -> tuple[Collection[int], bool]:
        """The rows of members that pods may affect, and whether filters beyond a node care."""
        rows, looks_beyond = set[int](), False
        for pod in pods:
            row = self._table.row_of[pod.pod.spec.node_name]
            if row in self._at:
                rows.add(row)
            keys = self._keys_affected_by(pod)
            if keys is None or (keys and not self._are_independent):
                return self._at.keys(), True
            for key in keys:
                looks_beyond, domains = True, self._table.label_column(key).ids
                rows.update(self._rows_in(key).get(int(domains[row]), ()))
        return rows, looks_beyond

    def _rows_in(self, key: str) -> dict[int, list[int]]:
        """The rows of members by their domain, if they have one."""
        found = self._domains.get(key)
        if found is None:
            found, domains = self._domains.setdefault(key, {}), self._table.label_column(key).ids
            for row in self._at:
                if domains[row] != ABSENT:
                    found.setdefault(int(domains[row]), []).append(row)
        return found

    def _keys_affected_by(self, pod: PodInfo) -> TopologyKeys:
        """The topology keys in whose domains a pod may change a member's verdict."""
        if len(self._caring) == 1 and self._caring[0].can_tell:
            return self._caring[0].keys_affected_by(pod)
        return union(
            [each.keys_affected_by(pod) if each.can_tell else None for each in self._caring]
        )

    def _try(self, tried: Sequence[Tried]) -> list[Unit]:
        """Put units back, and take those out again beside which a member no longer fits."""
        self._trial.put_back([unit for unit, _, _ in tried])
        looks_beyond = any(beyond for _, _, beyond in tried)
        unit_at = {row: number for number, (_, rows, _) in enumerate(tried) for row in rows}
        layers = list(zip_longest(*(self._at[row] for row in unit_at)))
        if looks_beyond and not self._are_independent:
            layers = [(each,) for each in self._placed]
        failed = set[int]()
        with ExitStack() as undo:
            for layer in layers:
                kinds: dict[Hashable, list[PlacedPod]] = {}
                for each in layer:
                    if each is not None and unit_at[self._row_of(each)] not in failed:
                        kinds.setdefault(self._kinds[each.pod.uid], []).append(each)
                for alike in kinds.values():
                    misfits = self._misfits(alike, looks_beyond=looks_beyond)
                    failed |= {unit_at[self._row_of(each)] for each in misfits}
                for each in layer if layer is not layers[-1] else ():
                    if each is not None and unit_at[self._row_of(each)] not in failed:
                        self._add(each, undo)
        condemned = [tried[number][0] for number in failed]
        self._trial.take_out(condemned)
        return condemned

    def _misfits(self, alike: Sequence[PlacedPod], *, looks_beyond: bool) -> Sequence[PlacedPod]:
        """Those that no longer pass the filters (only those of a node, unless `looks_beyond`).

        # Upstream: PreFilter of a plugin that skipped the pod then is not asked again, so a unit
        # that would matter to it is not noticed.
        """
        framework, state, pod = self._framework, alike[0].state, alike[0].pod
        skipped, status = state.skip_filter_plugins, None
        plugins = [p for p in framework.pre_filter if p.has_extensions and p.name not in skipped]
        if looks_beyond:
            nodes = NodeColumns(self._table)
            status = run_pre_filter(framework, state, pod.pod, nodes, plugins=plugins).status
            state.skip_filter_plugins = skipped | state.skip_filter_plugins
        else:
            state.skip_filter_plugins = skipped | {plugin.name for plugin in plugins}
        view = NodeColumns(self._table, np.array([self._row_of(each) for each in alike]))
        result = filter_with_nominated_pods(framework, state, pod, view)
        state.skip_filter_plugins = skipped
        if status is None and result.error is None:
            return [alike[index] for index in np.flatnonzero(~result.passing).tolist()]
        if status is not None or len(alike) == 1:
            return alike
        return [m for each in alike for m in self._misfits([each], looks_beyond=looks_beyond)]

    def _add(self, each: PlacedPod, undo: ExitStack) -> None:
        """A member takes its place, so that the next one sees it."""
        pod = each.pod.assumed_on(each.node_name)
        self._table.add_pod(pod, each.node_name)
        undo.callback(self._table.remove_pod, pod, each.node_name)
        run_reserve(self._framework, each.state, pod.pod, each.node_name)
        undo.callback(run_unreserve, self._framework, each.state, pod.pod, each.node_name)

    def _row_of(self, each: PlacedPod) -> int:
        return self._table.row_of[each.node_name]

    def _kind_of(self, each: PlacedPod) -> Hashable:
        """Equal for members that filters cannot tell apart. Claims and nominations differ."""
        pod, meta = each.pod.pod, each.pod.pod.metadata
        if each.pod.claims or pod.spec.resource_claims or is_nominated(self._framework, each.pod):
            return meta.uid
        labels = meta.namespace, meta.labels, meta.annotations, meta.owner_references
        return codec.encode((*labels, pod.spec)), frozenset(each.state.skip_filter_plugins)
