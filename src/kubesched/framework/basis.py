"""Validity of cached answers.

Placements, failures and preemption dry runs are cached for later pods of a class in the same way:

    answer      any columns over rows
    basis       premises of the rules behind it, the table layout, and log cursors

    basis.holds()            False if the answer must be recomputed
    basis.dirty_rows()       rows to re-evaluate before use; None for all rows
    basis.settle()           marks the answer as up to date

A basis can also track nominations, and replaced pod objects if the answer holds pods.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeGuard

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Nominator
from kubesched.framework.nodes.columns import Indices
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.rules import Premise, Rule, Scope, always
from kubesched.framework.runtime.framework import Framework

Rules = Mapping[str, Rule | None]
"""By plugin."""


def filter_rules(framework: Framework, state: CycleState, pod: Pod) -> Rules:
    """The rule of every PreFilter and Filter plugin, by name. Propagates plugin exceptions."""
    plugins = {p.name: p for p in (*framework.pre_filter, *framework.filter)}
    return {name: plugin.filter_rule(state, pod) for name, plugin in plugins.items()}


def score_rules(framework: Framework, state: CycleState, pod: Pod) -> Rules:
    """The rule of every PreScore and Score plugin, by name. Propagates plugin exceptions."""
    plugins = {p.name: p for p in (*framework.pre_score, *framework.score)}
    return {name: plugin.score_rule(state, pod) for name, plugin in plugins.items()}


def is_lasting(rule: Rule | None) -> bool:
    """True if the answer is valid for other pods of the class."""
    return rule is not None and rule.premise is not None


def is_kept(rule: Rule | None) -> TypeGuard[Rule]:
    """True if the answer may be cached by row."""
    return is_lasting(rule) and rule is not None and rule.depends_on is not Scope.CLUSTER


class Basis:
    """Premises of some rules with their recorded values, and cursors into the table's logs."""

    __slots__ = (
        "_epoch",
        "_follows_swaps",
        "_nominations",
        "_nominator",
        "_pods",
        "_premises",
        "_swaps",
        "_table",
    )

    def __init__(
        self,
        table: NodeTable,
        rules: Iterable[Rule | None],
        *,
        nominator: Nominator | None = None,
        follows_swaps: bool = False,
    ) -> None:
        premises = dict.fromkeys(rule.premise for rule in rules if rule is not None)
        self._premises: Sequence[tuple[Premise, Hashable]] = [
            (premise, premise()) for premise in premises if premise not in (None, always)
        ]
        self._table = table
        self._epoch = table.epoch  # rules may hold references to columns
        self._nominator = nominator
        self._follows_swaps = follows_swaps
        self.settle()

    def holds(self) -> bool:
        """True if no premise has changed its value."""
        if self._epoch != self._table.epoch:
            return False
        for premise, value in self._premises:  # noqa: SIM110  # hot path: a generator is slower
            if premise() != value:
                return False
        return True

    @property
    def is_settled(self) -> bool:
        """True if nothing was logged since the last `settle`."""
        table, nominator = self._table, self._nominator
        return (
            self._pods == table.pod_log.end
            and (nominator is None or self._nominations == nominator.version)
            and (not self._follows_swaps or self._swaps == table.swap_log.end)
        )

    def dirty_rows(self) -> list[int] | None:
        """Rows changed or nominated since `settle`, with duplicates; None if a log was cut."""
        table, nominator = self._table, self._nominator
        rows = table.pod_log.since(self._pods)
        if rows is None:
            return None
        if self._follows_swaps:
            swapped = table.swap_log.since(self._swaps)
            if swapped is None:
                return None
            rows += swapped
        if nominator is not None and nominator.version != self._nominations:
            names = nominator.changes_since(self._nominations)
            if names is None:
                return None
            rows += [table.row_of[name] for name in names if name in table.row_of]
        return rows

    @property
    def lag(self) -> int:
        """Number of pod log entries since `settle`."""
        return self._table.pod_log.end - self._pods

    def dirty_index(self) -> Indices | None:
        """`dirty_rows` as an index array, for answers that depend on the pod log only."""
        return self._table.pod_log.index_since(self._pods)

    def settle(self) -> None:
        """Mark the answer as up to date."""
        self._pods, self._swaps = self._table.pod_log.end, self._table.swap_log.end
        self._nominations = 0 if self._nominator is None else self._nominator.version
