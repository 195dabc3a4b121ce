"""What a kept answer rests on.

Placements, failures and what-ifs of preemption are kept for the next pods of a class in the same way:

    answer      any columns over rows
    basis       premises of the rules behind it, the layout of the table, and how far the logs were read

    basis.holds()            may the answer be used at all? If not, it is made anew
    basis.dirty_rows()       the rows to judge again before it is used; None: all of them
    basis.settle()           the answer is up to date

A basis can also follow nominations, and replaced pod objects where the answer holds pods.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Nominator
from kubesched.framework.rules import Premise, Rule, always
from kubesched.framework.runtime.framework import Framework
from kubesched.snapshot.node_table import NodeTable

FilterRules = dict[str, Rule[bool] | None]
ScoreRules = dict[str, Rule[int] | None]


def filter_rules(framework: Framework, state: CycleState, pod: Pod) -> FilterRules:
    """The rule of every PreFilter and Filter plugin, by name. A plugin may raise anything."""
    plugins = {p.name: p for p in (*framework.pre_filter, *framework.filter)}
    return {name: plugin.filter_rule(state, pod) for name, plugin in plugins.items()}


def score_rules(framework: Framework, state: CycleState, pod: Pod) -> ScoreRules:
    """The rule of every PreScore and Score plugin, by name. A plugin may raise anything."""
    plugins = {p.name: p for p in (*framework.pre_score, *framework.score)}
    return {name: plugin.score_rule(state, pod) for name, plugin in plugins.items()}


def is_lasting(rule: Rule[Any] | None) -> bool:
    return rule is not None and rule.is_lasting


class _Cursors(NamedTuple):
    pods: int
    swaps: int
    nominations: int


class Basis:
    """The premises of some rules with the values they had, and cursors of the table's logs."""

    __slots__ = ("_cursors", "_epoch", "_follows_swaps", "_nominator", "_premises", "_table")

    def __init__(
        self,
        table: NodeTable,
        rules: Iterable[Rule[Any] | None],
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
        """Are all premises what they were?"""
        if self._epoch != self._table.epoch:
            return False
        for premise, value in self._premises:  # noqa: SIM110  # for every pod: a generator costs more
            if premise() != value:
                return False
        return True

    @property
    def is_settled(self) -> bool:
        """Has nothing been logged since the answer was brought up to date?"""
        return self._cursors == self._ends()

    def dirty_rows(self) -> list[int] | None:
        """Rows that changed or were nominated since, repeats included; None if the logs are cut."""
        table, cursors = self._table, self._cursors
        rows = table.pod_log.since(cursors.pods)
        if rows is None:
            return None
        if self._follows_swaps:
            swapped = table.swap_log.since(cursors.swaps)
            if swapped is None:
                return None
            rows += swapped
        nominator = self._nominator
        if nominator is not None and nominator.version != cursors.nominations:
            names = nominator.changes_since(cursors.nominations)
            if names is None:
                return None
            rows += [table.row_of[name] for name in names if name in table.row_of]
        return rows

    def settle(self) -> None:
        """The answer is up to date."""
        self._cursors = self._ends()

    def _ends(self) -> _Cursors:
        table, nominator = self._table, self._nominator
        nominations = 0 if nominator is None else nominator.version
        return _Cursors(table.pod_log.end, table.swap_log.end, nominations)
