"""Which evictions disruption budgets can spare: the classification of a node's pods, table by
table.
"""

from __future__ import annotations

import pytest
from msgspec import structs

from kubesched.api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta
from kubesched.api.policy_v1 import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.preemption.budgets import BudgetLister, Budgets
from kubesched.insight.state.memory import MemoryListers
from kubesched.testing import make_pod


def budget(allowed, selector="web", disrupted=(), namespace="default"):
    if isinstance(selector, str):
        selector = LabelSelector(match_labels={"app": selector})
    return PodDisruptionBudget(
        metadata=ObjectMeta(name="b", namespace=namespace),
        spec=PodDisruptionBudgetSpec(selector=selector),
        status=PodDisruptionBudgetStatus(
            disruptions_allowed=allowed, disrupted_pods=dict.fromkeys(disrupted, "") or None
        ),
    )


INVALID = LabelSelector(
    match_expressions=[LabelSelectorRequirement(key="app", operator="Near", values=["web"])]
)


def pods(*apps):
    """Pods a, b, c... with these labels (None for no labels), the most important first."""
    made = []
    for name, app in zip("abcdef", apps, strict=False):
        pod = make_pod(name)
        made.append(PodInfo((pod if app is None else pod.labels(app=app)).build()))
    return made


@pytest.mark.parametrize(
    ("budgets", "apps", "violating"),
    [
        pytest.param([], ["web", "web"], "", id="without budgets nothing is violated"),
        pytest.param([budget(1)], ["web", "web"], "b",
                     id="one disruption is left: the second violates"),
        pytest.param([budget(0)], ["web", "db"], "a", id="only pods the selector means"),
        pytest.param([budget(0)], [None], "", id="a pod without labels is not selected"),
        pytest.param([budget(0, None)], ["web"], "", id="no selector means no pod"),
        pytest.param([budget(0, LabelSelector())], ["web"], "",
                     id="an empty selector means no pod"),
        pytest.param([budget(0, INVALID)], ["web"], "", id="an invalid selector means no pod"),
        pytest.param([budget(0, namespace="other")], ["web"], "", id="another namespace's budget"),
        pytest.param(
            [budget(0, disrupted=["a"])], ["web", "web"], "b",
            id="a pod whose disruption was granted does not violate",
        ),
        pytest.param(
            [budget(1, disrupted=["a"])], ["web", "web"], "",
            id="a pod whose disruption was granted uses no budget",
        ),
        pytest.param(
            [budget(1, disrupted=["z"])], ["web", "web"], "b",
            id="a disruption granted to some other pod changes nothing",
        ),
        pytest.param(
            [budget(1), budget(1)], ["web", "web"], "b",
            id="two equal budgets are charged once each, not one of them twice",
        ),
        pytest.param(
            [budget(0), budget(1, LabelSelector(match_labels={"app": "web"}))],
            ["web", "web"], "ab",
            id="every matching budget is charged, also after a violation",
        ),
        pytest.param(
            [budget(1), budget(0, "db")], ["web", "db", "web"], "bc",
            id="budgets are charged in the order of importance",
        ),
    ],
)  # fmt: skip
def test_violations(budgets, apps, violating) -> None:
    candidates = pods(*apps)
    found = Budgets(budgets).violated_by(candidates)
    assert "".join(p.name for p, bad in zip(candidates, found, strict=True) if bad) == violating


def test_each_node_starts_with_the_full_budget() -> None:
    budgets = Budgets([budget(1)])
    assert budgets.violated_by(pods("web", "web")) == [False, True]
    assert budgets.violated_by(pods("web", "web")) == [False, True]


def test_budgets_are_read_again_when_they_change() -> None:
    listers = MemoryListers()
    lister = BudgetLister(listers)
    assert lister.list().is_empty
    listers.of(PodDisruptionBudget).put(budget(0))
    assert lister.list().violated_by(pods("web")) == [True]
    assert lister.list() is lister.list()
    listers.of(PodDisruptionBudget).put(budget(1))
    assert lister.list().violated_by(pods("web")) == [False]


def test_a_relabelled_pod_is_matched_by_its_new_labels(world) -> None:
    world.node("n")
    pod = world.on("n", "a", app="web")
    budgets = Budgets([budget(0)])
    (info,) = world.table.pods[0].values()
    assert budgets.violated_by([info]) == [True]
    world.change(pod, metadata=structs.replace(pod.metadata, labels={"app": "db"}))
    (info,) = world.table.pods[0].values()
    assert budgets.violated_by([info]) == [False]
