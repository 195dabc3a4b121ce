"""Stages are read strictly, chosen in order, and leave chance where it belongs."""

from __future__ import annotations

import random

import pytest

from kubesched.base.errors import ConfigError
from kubesched.playground.apimachinery.paths import Path, PathError
from kubesched.playground.kubelet.stages import choose, default_stages, load_stages

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
        "- {name: other, selector: {matchLabels: {app: db}}}",
        "- {name: mine, selector: {matchLabels: {app: web}}}",
        "- {name: rest}",
    )
    chosen = choose(found, POD, random.Random(1), set())
    assert chosen is not None
    assert chosen.name == "mine"


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("matchAnnotations: {example.com/speed: 5s}", True),
        ("matchAnnotations: {example.com/speed: 6s}", False),
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


def test_chance_passes_a_pod_on_and_is_not_asked_twice():
    found = stages("- {name: rare, probability: 0.25}", "- {name: usual}")
    rng = random.Random(3)
    counts = {"rare": 0, "usual": 0}
    for _ in range(2000):
        passed: set[str] = set()
        first = choose(found, POD, rng, passed)
        assert first is not None
        counts[first.name] += 1
        if first.name == "usual":
            assert passed == {"rare"}
            assert choose(found, POD, rng, passed) is first
    assert 400 < counts["rare"] < 600


def test_the_built_in_stages_load():
    assert default_stages()[0].name == "terminate"


def test_every_mistake_is_named_with_its_place():
    text = b"""apiVersion: kubesched.io/v1alpha1
kind: KubeletStages
stages:
- name: a
  probability: 2
  delay: {duration: -1s}
  selector:
    matchExpressions:
    - {key: status.phase, operator: In, values: [x]}
    - {key: .a, operator: Equals}
    - {key: .a, operator: In}
    - {key: .a, operator: Exists, values: [x]}
  next:
    phase: Done
    containers: {state: asleep, exitCodeFrom: nowhere}
    events: [{type: Loud, scope: world}]
    colour: red
- name: a
"""
    with pytest.raises(ConfigError) as caught:
        load_stages(text, "stages.yaml")
    found = {problem.path: problem.line for problem in caught.value.problems}
    assert found == {
        "stages[0].probability": 5,
        "stages[0].delay.duration": 6,
        "stages[0].selector.matchExpressions[0].key": 9,
        "stages[0].selector.matchExpressions[1].operator": 10,
        "stages[0].selector.matchExpressions[2].values": 11,
        "stages[0].selector.matchExpressions[3].values": 12,
        "stages[0].next.phase": 14,
        "stages[0].next.containers.state": 15,
        "stages[0].next.containers.exitCodeFrom": 15,
        "stages[0].next.events[0].reason": 16,
        "stages[0].next.events[0].type": 16,
        "stages[0].next.events[0].scope": 16,
        "stages[0].next.colour": 17,
        "stages[1].name": 18,
    }
    assert str(caught.value).startswith("stages.yaml: ")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        pytest.param(b"kind: KubeletStages\nstages: [{name: a}]", "apiVersion", id="no version"),
        pytest.param(
            b"apiVersion: kubesched.io/v1alpha1\nkind: Stage\nstages: [{name: a}]",
            "kind",
            id="kind",
        ),
        pytest.param(
            b"apiVersion: kubesched.io/v1alpha1\nkind: KubeletStages", "stages", id="no stages"
        ),
        pytest.param(b"[", "", id="no YAML"),
    ],
)
def test_a_file_that_is_something_else_is_refused(text, path):
    with pytest.raises(ConfigError) as caught:
        load_stages(text)
    assert [problem.path for problem in caught.value.problems] == [path]
