"""HorizontalPodAutoscalers under `autoscaling/v1`."""

from __future__ import annotations

import json

import pytest

from kubesched.playground.apimachinery.autoscaler_v1 import autoscaler_from_v1, autoscaler_to_v1

TARGET = {"kind": "Deployment", "name": "web"}
CPU = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
MEMORY = {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 70}}


def v2(**spec):
    spec = {"scaleTargetRef": TARGET, "maxReplicas": 5, **spec}
    return {"apiVersion": "autoscaling/v2", "metadata": {"name": "web"}, "spec": spec}


def test_the_target_of_the_old_version():
    old = {
        "apiVersion": "autoscaling/v1",
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": TARGET,
            "maxReplicas": 5,
            "targetCPUUtilizationPercentage": 50,
        },
    }
    new = v2(metrics=[{"type": "Resource", "resource": CPU}])
    assert autoscaler_from_v1(old) == new
    assert autoscaler_to_v1(new) == old


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"metrics": [{"type": "Resource", "resource": MEMORY}]},
        {
            "metrics": [
                {"type": "Resource", "resource": CPU},
                {"type": "Resource", "resource": MEMORY},
            ]
        },
        {"behavior": {"scaleDown": {"selectPolicy": "Disabled"}}},
    ],
)
def test_nothing_is_lost_on_the_way(spec):
    new = v2(**spec)
    new["status"] = {
        "currentReplicas": 2,
        "currentMetrics": [
            {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 9}}}
        ],
        "conditions": [{"type": "AbleToScale", "status": "True"}],
    }
    old = autoscaler_to_v1(new)
    assert old["status"]["currentCPUUtilizationPercentage"] == 9
    assert not {"metrics", "behavior", "conditions", "currentMetrics"} & {
        *old["spec"],
        *old["status"],
    }
    assert autoscaler_from_v1(json.loads(json.dumps(old))) == new


@pytest.mark.parametrize(
    "part",
    [
        {"spec": "x"},
        {"status": [1]},
        {"metadata": {"annotations": "x"}},
        {"metadata": {"annotations": {"autoscaling.alpha.kubernetes.io/metrics": "{"}}},
        {"metadata": {"annotations": {"autoscaling.alpha.kubernetes.io/metrics": "7"}}},
        {"spec": {"metrics": "x", "targetCPUUtilizationPercentage": "y"}},
    ],
)
def test_nonsense_is_left_to_the_check_of_the_fields(part):
    assert autoscaler_from_v1(part)["apiVersion"] == "autoscaling/v2"
