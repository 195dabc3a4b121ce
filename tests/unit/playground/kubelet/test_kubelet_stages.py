"""Stages are chosen in order; their delays are drawn, or a pod's own."""

from __future__ import annotations

import random

import pytest

from kubesched.playground.apimachinery.paths import Path, PathError
from kubesched.playground.kubelet.stages import default_stages, first_match, load_stages

POD = {
    "metadata": {
        "name": "p",
        "labels": {"app": "web"},
        "annotations": {"example.com/speed": "5s"},
        "ownerReferences": [{"kind": "Job"}, {"kind": "Other"}],
    },
    "spec": {"restartPolicy": "Never", "hostNetwork": True},
    "status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "Odd", "status": "False"}],
        "empty": None,
    },
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param(".status.phase", ["Running"], id="a member"),
        pytest.param(".status.missing.deeper", [], id="nothing on the way"),
        pytest.param(".status.empty", [], id="null is nothing"),
        pytest.param('.metadata.annotations["example.com/speed"]', ["5s"], id="a quoted member"),
        pytest.param(".metadata.ownerReferences[].kind", ["Job", "Other"], id="every element"),
        pytest.param(".status.conditions[type=Ready].status", ["True"], id="chosen elements"),
        pytest.param(".metadata.ownerReferences[1].kind", ["Other"], id="one element"),
        pytest.param(".metadata.ownerReferences[2].kind", [], id="an element too many"),
        pytest.param(
            '.status.conditions[?(@.type=="Ready")].status', ["True"], id="chosen by a JSON path"
        ),
        pytest.param(".metadata.annotations['example.com/speed']", ["5s"], id="single quotes"),
        pytest.param(".status.phase[].x", [], id="an element of something that has none"),
    ],
)
def test_paths_find_values(path, expected):
    assert Path(path).values(POD) == expected


@pytest.mark.parametrize("text", ["", "status", ".a..b", ".a[b", ".a[=x]", '.a["b]', ".a b"])
def test_what_is_not_a_path_is_refused(text):
    with pytest.raises(PathError):
        Path(text)


def stages(*entries: str):
    body = "\n".join(entries)
    return load_stages(
        f"apiVersion: kubesched.io/v1alpha1\nkind: KubeletStages\nstages:\n{body}\n".encode()
    )


def test_the_first_stage_that_matches_is_chosen():
    found = stages(
        "- {name: other, selector: {matchExpressions: [{key: .metadata.labels.app, operator: In, "
        "values: [db]}]}}",
        "- {name: mine, selector: {matchExpressions: [{key: .metadata.labels.app, operator: In, "
        "values: [web]}]}}",
        "- {name: rest}",
    )
    chosen = first_match(found, POD)
    assert chosen is not None
    assert chosen.name == "mine"


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("matchExpressions: [{key: .status.phase, operator: In, values: [Running, X]}]", True),
        ("matchExpressions: [{key: .status.phase, operator: NotIn, values: [Running]}]", False),
        ("matchExpressions: [{key: .status.nothing, operator: NotIn, values: [x]}]", True),
        ("matchExpressions: [{key: .status.nothing, operator: Exists}]", False),
        ("matchExpressions: [{key: .status.nothing, operator: DoesNotExist}]", True),
        ('matchExpressions: [{key: .spec.hostNetwork, operator: In, values: ["true"]}]', True),
    ],
)
def test_selectors(selector, matches):
    [stage] = stages(f"- {{name: s, selector: {{{selector}}}}}")
    assert stage.matches(POD) is matches


def test_delays_are_drawn_between_duration_and_duration_plus_jitter():
    [stage] = stages("- {name: s, delay: {duration: 2s, jitter: 3s}}")
    rng = random.Random(7)
    drawn = [stage.delay_s(POD, rng) for _ in range(500)]
    assert 2.0 <= min(drawn) < 2.1
    assert 4.9 < max(drawn) <= 5.0


def test_a_pod_can_bring_its_own_duration():
    path = '.metadata.annotations["example.com/speed"]'
    [stage] = stages(f"- {{name: s, delay: {{duration: 1h, durationFrom: '{path}'}}}}")
    assert stage.delay_s(POD, random.Random(1)) == 5.0
    nonsense = {
        **POD,
        "metadata": {**POD["metadata"], "annotations": {"example.com/speed": "soon"}},
    }
    assert stage.delay_s(nonsense, random.Random(1)) == 3600.0


def test_the_built_in_stages_load():
    assert default_stages()[0].name == "terminate"
