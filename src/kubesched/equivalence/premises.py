"""The premises of kept answers besides dirty rows, and the cheap check that they still hold."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.rules import (
    Premise,
    PremiseValue,
    Rule,
    VersionedPremise,
    unconditional,
)
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


class SharedVersions:
    """The versions that premises of many rules rest on, read together. One object serves all rules with equal versions."""

    __slots__ = ("__weakref__", "_functions", "_number", "_read")

    _known: ClassVar[WeakValueDictionary[tuple[Premise, ...], SharedVersions]] = (
        WeakValueDictionary()
    )

    def __init__(self, functions: tuple[Premise, ...]) -> None:
        self._functions = functions
        self._read: list[Hashable] = []
        self._number = 0

    @classmethod
    def of(cls, functions: Iterable[Premise]) -> SharedVersions:
        key = tuple(dict.fromkeys(functions))
        known = cls._known.get(key)
        if known is None:
            known = cls._known[key] = SharedVersions(key)
        return known

    def number(self) -> int:
        """Another one after any version has changed."""
        read = [version() for version in self._functions]
        if read != self._read:
            self._read = read
            self._number += 1
        return self._number


class Premises:
    """The premises of some rules with the values they had, and the layout of the node table."""

    def __init__(self, table: NodeTable, rules: Iterable[Rule[Any] | None]) -> None:
        premises: Sequence[Premise] = [
            rule.premise
            for rule in rules
            if rule is not None and rule.is_lasting and rule.premise is not unconditional
        ]
        versioned = [premise for premise in premises if isinstance(premise, VersionedPremise)]
        self._versions = SharedVersions.of([premise.version for premise in versioned])
        self._number = self._versions.number()
        self._versioned = [(premise, premise()) for premise in versioned]
        self._others = [
            (premise, premise())
            for premise in premises
            if not isinstance(premise, VersionedPremise)
        ]
        self._table = table
        self._epoch = table.epoch  # rules may hold references to columns

    def hold(self) -> bool:
        if self._epoch != self._table.epoch:
            return False
        if self._versioned and (number := self._versions.number()) != self._number:
            if not _are_same(self._versioned):
                return False
            self._number = number
        return not self._others or _are_same(self._others)


def _are_same(values: Sequence[PremiseValue]) -> bool:
    for premise, value in values:
        now = premise()
        # Usually the very same object, which need not be looked at.
        if now is not value and now != value:
            return False
    return True
