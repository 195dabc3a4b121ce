"""Disruption budgets: which evictions would violate them.

# Upstream: budgets are charged in order of importance for every potential victim, and a charge is
# not returned when the pod is reprieved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.api.selectors import Selector, SelectorError, from_label_selector
from kubesched.framework.handle import Listers
from kubesched.framework.nodes.pod_index import LabelClass
from kubesched.framework.nodes.pods import PodInfo

_MEMO_LIMIT: Final = 65536


@dataclass(frozen=True, slots=True, eq=False)
class _Budget:
    """One budget. Compared by identity: equal budgets are charged separately."""

    selector: Selector
    allowed: int
    disrupted: frozenset[str]
    """Names of pods whose eviction was already granted: they are exempt from the budget."""


class Budgets:
    """All budgets of the cluster at one moment."""

    def __init__(
        self, budgets: Sequence[PodDisruptionBudget], *, stops_at_violation: bool = True
    ) -> None:
        """With `stops_at_violation`, a pod is charged to no budget after the first it violates."""
        self._stops_at_violation = stops_at_violation
        self._by_namespace: dict[str, list[_Budget]] = {}
        self._matching: dict[LabelClass, tuple[_Budget, ...]] = {}
        for listed in budgets:
            budget = _parsed(listed)
            if budget is not None:
                self._by_namespace.setdefault(listed.metadata.namespace, []).append(budget)

    @property
    def is_empty(self) -> bool:
        """True if no eviction can violate a budget."""
        return not self._by_namespace

    def violated_by(
        self, pods: Sequence[PodInfo], *, stops_at_violation: bool = True
    ) -> list[bool]:
        """For each pod of a node, most important first: would evicting it violate a budget?"""
        left: dict[_Budget, int] = {}
        verdicts = []
        for pod in pods:
            violates = False
            for budget in self._about(pod):
                if pod.name in budget.disrupted:
                    continue
                remaining = left.get(budget, budget.allowed) - 1
                left[budget] = remaining
                if remaining < 0:
                    violates = True
                    if self._stops_at_violation and stops_at_violation:
                        break
            verdicts.append(violates)
        return verdicts

    def _about(self, pod: PodInfo) -> tuple[_Budget, ...]:
        """The budgets that select a pod, cached per label class."""
        label_class = pod.label_class
        if label_class is None:
            return self._match(pod)
        known = self._matching.get(label_class)
        if known is None:
            if len(self._matching) >= _MEMO_LIMIT:
                self._matching.clear()
            known = self._matching[label_class] = self._match(pod)
        return known

    def _match(self, pod: PodInfo) -> tuple[_Budget, ...]:
        labels = pod.pod.metadata.labels
        if not labels:
            return ()
        budgets = self._by_namespace.get(pod.namespace, ())
        return tuple(budget for budget in budgets if budget.selector.matches(labels))


def _parsed(budget: PodDisruptionBudget) -> _Budget | None:
    """None for a budget that matches no pod: a missing, empty or invalid selector."""
    try:
        selector = from_label_selector(budget.spec.selector)
    except SelectorError:
        return None
    if selector.selects_nothing or selector.is_empty():
        return None
    status = budget.status
    return _Budget(selector, status.disruptions_allowed, frozenset(status.disrupted_pods or ()))


class BudgetLister:
    """The informer's budgets, parsed again only after a change."""

    def __init__(self, listers: Listers | None, *, stops_at_violation: bool = True) -> None:
        self._listers = listers
        self._stops_at_violation = stops_at_violation
        self._version: int | None = None
        self._budgets = Budgets(())

    def list(self) -> Budgets:
        if self._listers is not None:
            lister = self._listers.of(PodDisruptionBudget)
            if lister.version != self._version:
                self._version = lister.version
                self._budgets = Budgets(lister.list(), stops_at_violation=self._stops_at_violation)
        return self._budgets
