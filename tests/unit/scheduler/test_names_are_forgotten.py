"""Names that users choose: whatever pods and nodes bring along, nothing of it is left when they
have gone.

Caches with a bound are made small, so that what goes on growing is seen after a few hundred
objects.
"""

from __future__ import annotations

import gc

import pytest
from dra_objects import claim, device_class, exactly, resource_slice
from held_entries import held_entries

from kubesched.api.core_v1 import Node, Pod
from kubesched.framework.nodes import pod_index
from kubesched.insight.state.cluster import Cluster
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.plugins.dynamic_resources.structured import (
    allocated_state,
    node_pools,
    selectors,
)
from kubesched.plugins.inter_pod_affinity import plugin as inter_pod_affinity
from kubesched.scheduler import decisions
from kubesched.scheduler.classes import pod_classes, signature
from kubesched.testing import make_node, make_pod

MANY = 60
SMALL = 5
HOST = "kubernetes.io/hostname"

PODS = {
    "label keys": lambda pod, n: pod.label(f"key{n}", "x"),
    "label values": lambda pod, n: pod.label("key", f"value{n}"),
    "node selectors": lambda pod, n: pod.node_selector(**{f"key{n}": "x"}),
    "tolerations": lambda pod, n: pod.tolerates(f"taint{n}"),
    "topology keys, spread": lambda pod, n: pod.spread(1, f"key{n}", app="a"),
    "topology keys, affinity": lambda pod, n: pod.pod_anti_affinity(f"key{n}", app="a"),
    "selectors": lambda pod, n: pod.pod_anti_affinity(HOST, app=f"a{n}"),
    "images": lambda pod, n: pod.image(f"image{n}"),
    "ports": lambda pod, n: pod.host_port(1 + n),
    "resources": lambda pod, n: pod.request(f"example.com/r{n}", "1"),
    "resources, on a node": lambda pod, n: pod.on("n0").request(f"example.com/r{n}", "1"),
    "amounts": lambda pod, n: pod.cpu(f"{n}m"),
    "amounts that fit nowhere": lambda pod, n: pod.cpu(10_000 + n),
    "priorities": lambda pod, n: pod.priority(n),
    "claims": lambda pod, n: pod.claim(f"claim{n}"),
    "gates": lambda pod, n: pod.gate(f"example.com/g{n}"),
    "scheduler names": lambda pod, n: pod.scheduler(f"scheduler{n}"),
    "nodes that are not there": lambda pod, n: pod.on(f"nowhere{n}"),
}


@pytest.fixture(autouse=True)
def small_caches(monkeypatch):
    for module, limit in (
        (pod_index, "COUNTER_LIMIT"),
        (inter_pod_affinity, "_RESOLVED_LIMIT"),
        (selectors, "_EXPRESSIONS_LIMIT"),
    ):
        assert getattr(module, limit) <= 10_000
        monkeypatch.setattr(module, limit, SMALL)
    monkeypatch.setattr(inter_pod_affinity, "_MATCHED_BYTES_LIMIT", 128 * SMALL)
    monkeypatch.setattr(signature, "SIGNATURES_BYTES_LIMIT", 128 * SMALL)
    for module, limit in ((node_pools, "_NUMBERS_LIMIT"), (allocated_state, "_VERSIONS_LIMIT")):
        assert getattr(module, limit) <= 1 << 16, "there may be one for each of many nodes"
        monkeypatch.setattr(module, limit, SMALL)
    for made in (pod_classes.ClassCache, decisions.DecisionRing):
        assert all(limit <= 10_000 for limit in made.__init__.__defaults__)
        monkeypatch.setattr(made.__init__, "__defaults__", (SMALL,))


def five_nodes():
    state = ClusterState("test")
    for n in range(5):
        node = make_node(f"n{n}").capacity(cpu="1000", memory="4Gi", pods=10_000)
        state.put(node.zone("ab"[n % 2]).label(HOST, f"n{n}").build())
    return state


def entries(world):
    gc.collect()
    counts = held_entries(world.assembly, without=[world, world.listers])
    for log in ("RowLog._rows", "DecisionRing._entries"):  # both have a bound
        counts.pop(log, None)
    return counts


def series(world):
    """The lines of the metrics page, without their values."""
    return {line.rpartition(" ")[0] for line in world.metrics.text().splitlines()}


def grown(before, after):
    return {name: n for name in after if (n := after[name] - before[name]) >= MANY // 2}


@pytest.mark.parametrize("brings", PODS.values(), ids=PODS)
def test_what_a_pod_brings_along_goes_with_it(brings):
    with Cluster(five_nodes(), remembers=False) as world:

        def come_and_go(first):
            pods = [
                brings(make_pod(f"p{n}", f"space{n}").cpu("1m"), n).build()
                for n in range(first, first + MANY)
            ]
            for pod in pods:
                world.add(pod)
            world.settle()
            for pod in pods:
                world.delete(world.current(pod))
            world.settle()
            return series(world), entries(world)

        labelled, before = come_and_go(1)
        labelled_then, after = come_and_go(1 + MANY)
        assert labelled_then == labelled
        assert grown(before, after) == {}
        world.assembly.scheduler.check_invariants()


def test_what_claims_and_their_devices_bring_along_goes_with_them():
    with Cluster(five_nodes(), remembers=False) as world:

        def come_and_go(first):
            numbers = range(first, first + MANY)
            brought = []
            for n in numbers:
                driver, expression = f"d{n}.example.com", f'device.driver == "d{n}.example.com"'
                requests = exactly(f"r{n}", class_name=f"class{n}", selectors=[expression])
                brought += [
                    device_class(f"class{n}", f'device.driver != "x{n}.example.com"'),
                    resource_slice(
                        f"slice{n}",
                        {"name": f"device{n}", "attributes": {"model": {"string": f"m{n}"}}},
                        nodeName=f"n{n % 5}",
                        driver=driver,
                    ),
                    claim(f"claim{n}", requests, namespace=f"space{n}"),
                    make_pod(f"p{n}", f"space{n}")
                    .spec(resourceClaims=[{"name": "r", "resourceClaimName": f"claim{n}"}])
                    .build(),
                ]
            world.add(*brought)
            world.settle()
            pods = world.objects(Pod)
            assert len(pods) == MANY
            assert all(pod.spec.node_name for pod in pods)
            for obj in reversed(brought):
                meta = obj.metadata
                world.delete(world.find(type(obj), meta.namespace, meta.name))
            world.settle()
            return series(world), entries(world)

        labelled, before = come_and_go(1)
        labelled_then, after = come_and_go(1 + MANY)
        assert labelled_then == labelled
        assert grown(before, after) == {}
        world.assembly.scheduler.check_invariants()


NODES = {
    "resources": lambda node, n: node.offers(f"example.com/r{n}", "1"),
    "label keys": lambda node, n: node.label(f"key{n}", "x"),
    "images": lambda node, n: node.image(f"image{n}", size_bytes=1000),
}


@pytest.mark.parametrize("brings", NODES.values(), ids=NODES)
def test_what_a_node_brings_along_goes_with_it(brings):
    with Cluster(five_nodes(), remembers=False) as world:

        def come_and_go(first):
            for n in range(first, first + MANY):
                world.add(brings(make_node("more").capacity(cpu="1"), n).build())
                pod = make_pod("p").label("app", "a").image(f"image{n}")
                pod.spread(1, f"key{n}", app="a").request(f"example.com/r{n}", "1")
                world.add(pod.build())
                world.settle()
                world.delete(world.objects(Pod)[0])
                world.delete(world.find(Node, "", "more"))
            world.settle()
            return entries(world)

        before = come_and_go(1)
        assert grown(before, come_and_go(1 + MANY)) == {}
        world.assembly.scheduler.check_invariants()
