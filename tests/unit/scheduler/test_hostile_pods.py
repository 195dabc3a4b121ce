"""Pods that are as expensive as the API server admits: the work of an attempt grows with the pod.

Anyone who may create pods can create these. Work is counted in calls of the interpreter, which do
not depend on the machine. A plugin with quadratic work, in one part or in the product of two,
exceeds the budget: 400 items form 160,000 pairs.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager

import msgspec
import pytest

from kubesched.api.codec import decode
from kubesched.api.core_v1 import Pod
from kubesched.plugins.taint_toleration import TaintToleration
from kubesched.testing import Cluster, make_node, make_pod

ITEMS = 400
NODES = 5
MOST_CALLS = 10_000 + 100 * NODES + 300 * ITEMS
"""Twice the work of the most expensive kind."""


def pod_terms(kind):
    terms = [
        {"topologyKey": f"example.com/key-{n}", "labelSelector": {"matchLabels": {"x": f"{n}"}}}
        for n in range(ITEMS)
    ]
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": f"example.com/key-{n}",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    for n in range(ITEMS)
]
NODE_TERMS = [
    {"matchExpressions": [{"key": f"key-{n}", "operator": "In", "values": [f"v{n}"]}]}
    for n in range(ITEMS)
]
CONTAINERS = [
    {
        "name": f"c{n}",
        "image": f"image-{n}",
        "ports": [{"containerPort": 80, "hostPort": 9000 + n, "protocol": "TCP"}],
    }
    for n in range(ITEMS)
]
SPECS = {
    "spread constraints": {"topologySpreadConstraints": SPREAD},
    "affinity terms": pod_terms("podAffinity"),
    "anti-affinity terms": pod_terms("podAntiAffinity"),
    "node selector terms": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": NODE_TERMS}
            }
        }
    },
    "tolerations": {"tolerations": [{"key": f"k{n}", "operator": "Exists"} for n in range(ITEMS)]},
    "containers": {"containers": CONTAINERS},
}


def hostile_pod(spec):
    spec = {"schedulerName": "default-scheduler", "containers": CONTAINERS[:1], **spec}
    metadata = {"name": "hostile", "namespace": "default", "uid": "hostile", "resourceVersion": "1"}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return decode(msgspec.json.encode(body), Pod)


@contextmanager
def counted_calls(counts):
    def on_event(_frame, event, _argument):
        if event in ("call", "c_call"):
            counts.append(event)

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        yield
    finally:
        sys.setprofile(before)


def calls_of_search(spec):
    """Calls in the searches for a node for a pod with this spec, of which there is at least one."""
    calls = []
    with Cluster() as cluster:
        cluster.add(*(make_node(f"n{n}").build() for n in range(NODES)))
        cluster.add(
            *(make_pod(f"p{n}").label("app", "web").on(f"n{n}").build() for n in range(NODES))
        )
        cluster.settle()
        algorithm = cluster.assembly.scheduler.cycle.algorithm
        schedule = algorithm.schedule

        def counted(framework, state, info):
            calls.clear()
            with counted_calls(calls):
                return schedule(framework, state, info)

        algorithm.schedule = counted
        cluster.add(hostile_pod(spec))
        cluster.settle()
    assert calls
    return len(calls)


@pytest.mark.parametrize("kind", SPECS)
def test_work_grows_with_the_pod(kind):
    assert calls_of_search(SPECS[kind]) <= MOST_CALLS


def test_quadratic_work_is_noticed(monkeypatch):
    filter_nodes = TaintToleration.filter_nodes

    def compares_all_pairs(plugin, state, pod, nodes):
        tolerations = pod.spec.tolerations or ()
        sum(one.key.startswith(other.key) for one in tolerations for other in tolerations)
        return filter_nodes(plugin, state, pod, nodes)

    monkeypatch.setattr(TaintToleration, "filter_nodes", compares_all_pairs)
    assert calls_of_search(SPECS["tolerations"]) > MOST_CALLS
