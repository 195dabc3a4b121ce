"""The premises of kept answers besides dirty rows, and the cheap check that they still hold."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.rules import Premise, Rule, unconditional
from kubesched.framework.runtime.framework import Framework
from kubesched.snapshot.node_table import NodeTable

FilterRules = dict[str, Rule[bool] | None]
ScoreRules = dict[str, Rule[int] | None]


def filter_rules(framework: Framework, state: CycleState, pod: Pod) -> FilterRules:
    """The rule of every plugin that takes part in PreFilter or Filter, by name. A plugin may raise anything."""
    plugins = {p.name: p for p in (*framework.pre_filter, *framework.filter)}
    return {name: plugin.filter_rule(state, pod) for name, plugin in plugins.items()}


def score_rules(framework: Framework, state: CycleState, pod: Pod) -> ScoreRules:
    """The rule of every plugin that takes part in PreScore or Score, by name. A plugin may raise anything."""
    plugins = {p.name: p for p in (*framework.pre_score, *framework.score)}
    return {name: plugin.score_rule(state, pod) for name, plugin in plugins.items()}


def is_lasting(rule: Rule[Any] | None) -> bool:
    return rule is not None and rule.is_lasting


class Premises:
    """The premises of some rules with the values they had, and the layout of the node table."""

    def __init__(self, table: NodeTable, rules: Iterable[Rule[Any] | None]) -> None:
        premises: Sequence[Premise] = [
            rule.premise
            for rule in rules
            if rule is not None and rule.is_lasting and rule.premise is not unconditional
        ]
        self._values: list[tuple[Premise, Hashable]] = [
            (premise, premise()) for premise in premises
        ]
        self._table = table
        self._epoch = table.epoch  # rules may hold references to columns

    def hold(self) -> bool:
        if self._epoch != self._table.epoch:
            return False
        for premise, value in self._values:
            # Usually the very same object, which need not be looked at.
            if (now := premise()) is not value and now != value:
                return False
        return True
