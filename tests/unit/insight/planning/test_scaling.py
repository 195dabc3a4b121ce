"""Existing workloads scaled, extenders asked."""

from __future__ import annotations

import pytest
from planning_worlds import nodes, owned, planned

from kubesched.api import codec
from kubesched.api.apps_v1 import ReplicaSet
from kubesched.insight.planning.existing_workloads import Scale
from kubesched.insight.state.planned_cluster import PlanError


def with_deployment(count=2):
    state = nodes(count=3)
    owner = {"kind": "Deployment", "name": "web", "uid": "d", "controller": True}
    meta = {"name": "web-1", "namespace": "default", "ownerReferences": [owner], "uid": "uid-web-1"}
    state.put(codec.convert({"metadata": meta, "spec": {"replicas": count}}, ReplicaSet))
    for number in range(count):
        state.put(owned(f"web-1-{number}", f"n{number}", owner="web-1"))
    return state


def test_a_deployment_gets_more_pods_like_those_it_has():
    plan = planned(with_deployment(), scale=[Scale("deployment/web", 5)])
    assert len(plan.placed) == 3
    assert all(each.pod.startswith("default/web-1-") for each in plan.placed)
    assert plan.is_complete
    assert plan.after.resources["cpu"].requested == 5000


def test_pods_that_do_not_fit_are_left_over():
    plan = planned(with_deployment(), scale=[Scale("deploy/default/web", 20)])
    assert not plan.is_complete
    assert sum(len(each.pods) for each in plan.unplaced) == 20 - 12


def test_scaling_down_takes_pods_away_for_good():
    state = with_deployment(3)
    plan = planned(state, scale=[Scale("deployment/web", 1)])
    assert [each.by for each in plan.evicted] == ["scale", "scale"]
    assert not plan.placed
    assert not plan.moved
    assert plan.after.resources["cpu"].requested == 1000


def test_a_stateful_set_gains_and_loses_its_last_pods():
    state = nodes(3)
    for number in range(3):
        state.put(owned(f"db-{number}", f"n{number}", kind="StatefulSet", owner="db"))
    more = planned(state, scale=[Scale("sts/db", 5)])
    assert [each.pod for each in more.placed] == ["default/db-3", "default/db-4"]
    fewer = planned(state, scale=[Scale("statefulset/db", 2)])
    assert [each.pod for each in fewer.evicted] == ["default/db-2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("deployment/gone", 'there is no pod of Deployment "default/gone"'),
        ("daemonset/web", "a DaemonSet cannot be scaled"),
        ("nonsense/web", "expected KIND/NAME"),
    ],
)
def test_what_cannot_be_scaled(text, message):
    with pytest.raises(PlanError, match=message):
        planned(with_deployment(), scale=[Scale(text, 3)])


@pytest.mark.parametrize("text", ["web=3", "deployment/web", "deployment/web=x", "3x"])
def test_scales_that_make_no_sense(text):
    with pytest.raises(ValueError, match="KIND/NAME=N"):
        Scale.parse(text)
