"""Invalid pods, nodes and claims that can be decoded do no harm: the scheduler lives, other pods
are placed.

An API server would have refused most of them; a scheduler must not depend on that.
`KUBESCHED_FUZZ_EXAMPLES` sets how many examples each test draws.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from json_places import places

from kubesched.api import codec
from kubesched.api.codec import MalformedObject
from kubesched.api.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.base.errors import KubeschedError
from kubesched.testing import Cluster
from kubesched.testing.builders import make_node, make_pod

EXAMPLES = int(os.environ.get("KUBESCHED_FUZZ_EXAMPLES", "25"))
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
SELECTOR = {
    "matchLabels": {"a": "b"},
    "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
}
TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": SELECTOR, "namespaces": ["x"]}
NODE_TERM = {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}

POD: dict[str, Any] = {
    "metadata": {"name": "odd", "namespace": "default", "uid": "odd", "labels": {"a": "b"}},
    "spec": {
        "schedulerName": "default-scheduler",
        "containers": [
            {
                "name": "c",
                "image": "i",
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"x.y/z": "1"}},
                "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
            }
        ],
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2"}}}],
        "overhead": {"cpu": "1m"},
        "nodeSelector": {"a": "b"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [NODE_TERM]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": NODE_TERM}
                ],
            },
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [TERM],
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": TERM}
                ],
            },
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]},
        },
        "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 3}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "minDomains": 2,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": SELECTOR,
                "matchLabelKeys": ["a"],
            }
        ],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        "priority": 5,
        "preemptionPolicy": "PreemptLowerPriority",
    },
    "status": {
        "phase": "Pending",
        "nominatedNodeName": "n",
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "PodScheduled", "status": "False"}],
    },
}
NODE: dict[str, Any] = {
    "metadata": {"name": "odd", "uid": "odd", "labels": {"a": "5", "zone": "z"}},
    "spec": {
        "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
        "unschedulable": False,
    },
    "status": {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10", "x.y/z": "3"},
        "images": [{"names": ["i:latest"], "sizeBytes": 100}],
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
CLAIM: dict[str, Any] = {
    "metadata": {"name": "c", "namespace": "default", "uid": "c", "annotations": {"a": "b"}},
    "spec": {
        "accessModes": ["ReadWriteOncePod"],
        "storageClassName": "s",
        "volumeName": "v",
        "resources": {"requests": {"storage": "1Gi"}},
    },
}
VOLUME: dict[str, Any] = {
    "metadata": {"name": "v", "uid": "v"},
    "spec": {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "s",
        "claimRef": {"namespace": "default", "name": "c", "uid": "c"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [NODE_TERM]}},
    },
}
NONSENSE = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(
        [
            "",
            "abc",
            "-1",
            "1e308",
            "9" * 40,
            "1e-30",
            "0x10",
            "NotIn",
            "Nonsense",
            "!",
            "a b",
            [],
            {},
        ]
    )
)


def spoilt(tree: dict[str, Any], changes: list[tuple[tuple[Any, ...], object]]) -> Any:
    """The tree with values replaced; places that an earlier change took away are passed over."""
    changed = deepcopy(tree)
    for path, value in changes:
        at: Any = changed
        try:
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue
    return changed


def changes_of(tree: dict[str, Any]) -> st.SearchStrategy[list[tuple[tuple[Any, ...], object]]]:
    spoilable = [path for path in places(tree) if path not in KEPT]
    return st.lists(st.tuples(st.sampled_from(spoilable), NONSENSE), min_size=1, max_size=3)


KEPT = {("metadata",), ("metadata", "name"), ("metadata", "namespace"), ("metadata", "uid")}
"""Without these there would be no object to speak of."""


def decoded(tree: Any, kind: type[Any]) -> Any:
    """None for what the decoder refuses: that never gets into the scheduler."""
    try:
        return codec.convert(tree, kind)
    except MalformedObject:
        return None


def told(handle: Callable[..., None], *arguments: Any) -> None:
    """What an informer does with news: an error that says what is wrong ends the matter, any other
    is a failure.
    """
    try:
        handle(*arguments)
    except KubeschedError as error:
        text = str(error)
    else:
        return
    assert "odd" in text, f"{text} does not name the object"


def place_others(world: Cluster) -> None:
    world.add(make_node("good").capacity(cpu="2", memory="4Gi").build())
    world.add(make_pod("good").cpu("1").build())
    world.settle()
    world.advance(20.0)
    assert "default/good" in world.client.bindings, "another pod suffers"


@FUZZ
@given(changes_of(POD))
def test_an_odd_pending_pod_does_no_harm(
    changes: list[tuple[tuple[Any, ...], object]],
) -> None:
    pod = decoded(spoilt(POD, changes), Pod)
    if pod is None:
        return
    with Cluster() as world:
        world.add(codec.convert(NODE, Node))
        told(world.add, pod)
        world.settle()
        place_others(world)
        told(world.delete, world.pod("odd"))
        world.settle()


@FUZZ
@given(changes_of(POD))
def test_an_odd_pod_on_a_node_does_no_harm(
    changes: list[tuple[tuple[Any, ...], object]],
) -> None:
    tree = spoilt(POD, changes)
    if not isinstance(tree.get("spec"), dict):
        return
    tree["spec"]["nodeName"] = "odd"
    pod = decoded(tree, Pod)
    if pod is None:
        return
    with Cluster() as world:
        world.add(codec.convert(NODE, Node))
        told(world.add, pod)
        world.settle()
        world.add(make_pod("high").cpu("4").priority(1000).label("a", "b").build())
        world.settle()
        place_others(world)


@FUZZ
@given(changes_of(NODE))
def test_an_odd_node_does_no_harm(changes: list[tuple[tuple[Any, ...], object]]) -> None:
    node = decoded(spoilt(NODE, changes), Node)
    if node is None:
        return
    with Cluster() as world:
        world.add(codec.convert(NODE, Node))
        told(world.update, node)
        world.add(codec.convert({**POD, "spec": {**POD["spec"], "volumes": None}}, Pod))
        world.settle()
        place_others(world)
        told(world.delete, world.find(Node, "", "odd"))
        world.settle()


@FUZZ
@given(changes_of(CLAIM), changes_of(VOLUME))
def test_odd_claims_and_volumes_do_no_harm(
    claims: list[tuple[tuple[Any, ...], object]], volumes: list[tuple[tuple[Any, ...], object]]
) -> None:
    claim = decoded(spoilt(CLAIM, claims), PersistentVolumeClaim)
    volume = decoded(spoilt(VOLUME, volumes), PersistentVolume)
    with Cluster() as world:
        for obj in (claim, volume):
            if obj is not None:
                world.listers.of(type(obj)).put(obj)
        world.add(codec.convert(NODE, Node))
        pod = make_pod("user").cpu("1").build()
        spec = {"volumes": POD["spec"]["volumes"], "containers": [{"name": "c"}]}
        tree = {"metadata": {"name": "user", "namespace": "default", "uid": "user"}, "spec": spec}
        tree["spec"]["schedulerName"] = pod.spec.scheduler_name
        world.add(codec.convert(tree, Pod))
        world.settle()
        place_others(world)
