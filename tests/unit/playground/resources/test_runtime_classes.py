"""RuntimeClasses add overhead, node selectors and tolerations to pods.

Messages are kube-apiserver 1.36's.
"""

from __future__ import annotations

import re

import pytest

from kubesched.base.errors import Forbidden, Invalid
from kubesched.playground.resources.admission.runtime_classes import merge_tolerations

CLASSES = "runtimeclasses.node.k8s.io"
OVERHEAD = {"cpu": "250m", "memory": "120Mi"}


@pytest.fixture
def classes(api):
    sandbox = {
        "metadata": {"name": "sandbox"},
        "handler": "sandbox",
        "overhead": {"podFixed": OVERHEAD},
        "scheduling": {
            "nodeSelector": {"runtime": "sandbox"},
            "tolerations": [{"key": "sandbox", "operator": "Exists", "effect": "NoSchedule"}],
        },
    }
    api.create(CLASSES, sandbox)
    api.create(CLASSES, {"metadata": {"name": "plain"}, "handler": "plain"})
    return api


def test_a_pod_gets_what_its_class_says(classes, make_pod):
    pod = classes.create("pods", make_pod(runtimeClassName="sandbox", nodeSelector={"disk": "ssd"}))
    assert pod["spec"]["overhead"] == OVERHEAD
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd", "runtime": "sandbox"}
    assert {each["key"] for each in pod["spec"]["tolerations"]} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "sandbox",
    }


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param(
            {"runtimeClassName": "none"},
            'pods "p" is forbidden: pod rejected: RuntimeClass "none" not found',
            id="no such class",
        ),
        pytest.param(
            {"runtimeClassName": "sandbox", "overhead": {"cpu": "1"}},
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
            id="another overhead",
        ),
        pytest.param(
            {"overhead": {"cpu": "1"}},
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            id="overhead without class",
        ),
        pytest.param(
            {"runtimeClassName": "plain", "overhead": {"cpu": "1"}},
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            id="overhead of a class without",
        ),
        pytest.param(
            {"runtimeClassName": "sandbox", "nodeSelector": {"runtime": "x"}},
            "conflict: runtimeClass.scheduling.nodeSelector[runtime] = sandbox; "
            "pod.spec.nodeSelector[runtime] = x",
            id="another node selector",
        ),
    ],
)
def test_a_pod_that_contradicts_its_class_is_refused(classes, make_pod, spec, words):
    with pytest.raises(Forbidden, match=re.escape(words)):
        classes.create("pods", make_pod(**spec))


def test_the_same_overhead_may_be_stated(classes, make_pod):
    assert classes.create("pods", make_pod(runtimeClassName="sandbox", overhead=OVERHEAD))


@pytest.mark.parametrize(
    ("tolerations", "merged"),
    [
        pytest.param([{"key": "a", "operator": "Exists"}] * 2, [0], id="equal ones"),
        pytest.param(
            [{"key": "a", "operator": "Equal", "value": "x"}, {"key": "a", "operator": "Exists"}],
            [1],
            id="a wider one later",
        ),
        pytest.param(
            [{"operator": "Exists"}, {"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
            [0],
            id="all keys",
        ),
        pytest.param(
            [
                {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
                {"key": "a", "operator": "Exists", "effect": "NoExecute"},
            ],
            [1],
            id="a longer time",
        ),
        pytest.param(
            [
                {"key": "a", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "a", "operator": "Exists", "effect": "NoExecute"},
            ],
            [0, 1],
            id="other effects",
        ),
    ],
)
def test_tolerations_that_others_cover_are_left_out(tolerations, merged):
    assert merge_tolerations(tolerations) == [tolerations[index] for index in merged]


def test_classes_are_validated(classes):
    with pytest.raises(Invalid, match="handler: Required value"):
        classes.create(CLASSES, {"metadata": {"name": "x"}})
    with pytest.raises(Invalid, match="handler: Invalid value"):
        classes.create(CLASSES, {"metadata": {"name": "x"}, "handler": "A b"})
    with pytest.raises(Invalid, match=r"handler: Invalid value.*field is immutable"):
        classes.patch(CLASSES, None, "plain", {"handler": "other"})
