"""Fake nodes look real, spread over zones, and heartbeat evenly."""

from __future__ import annotations

import itertools

import pytest

from kubesched.base.errors import ConfigError
from kubesched.playground.apimachinery.objects import parse_timestamp
from kubesched.playground.kubelet.node_templates import (
    NodePool,
    build_node,
    load_node_pools,
    plan_nodes,
)
from kubesched.playground.kubelet.options import KubeletOptions

LEASES = "leases.coordination.k8s.io"


def test_a_registered_node_has_what_a_kubelet_reports(world):
    node = world.get("nodes", "node-0")
    assert node["metadata"]["labels"] == {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": "node-0",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/region": "region-1",
        "topology.kubernetes.io/zone": "zone-a",
    }
    status = node["status"]
    assert status["allocatable"] == status["capacity"]
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
        "Ready": "True",
    }
    assert {each["type"] for each in status["addresses"]} == {"InternalIP", "Hostname"}
    assert status["nodeInfo"]["kubeletVersion"] == "v1.37.0"


def test_zones_are_dealt_out_in_turn(make_world):
    world = make_world(7)
    zones = [
        node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in world.list("nodes")
    ]
    assert sorted(zones.count(zone) for zone in set(zones)) == [2, 2, 3]


def test_pools_share_what_is_asked_for():
    pools = (NodePool(name="fixed", count=2), NodePool(name="a"), NodePool(name="b"))
    planned = plan_nodes(pools, 7)
    assert [each.name for each in planned] == [
        "fixed-0",
        "fixed-1",
        "a-0",
        "a-1",
        "a-2",
        "b-0",
        "b-1",
    ]
    assert [each.ordinal for each in planned] == list(range(7))


def test_fixed_pools_alone_ignore_the_number_asked_for():
    assert len(plan_nodes((NodePool(name="fixed", count=3),), 100)) == 3


def test_every_node_has_its_own_addresses():
    nodes = [build_node(each, 0.0, "v1.37.0") for each in plan_nodes((NodePool(),), 5000)]
    assert len({node["spec"]["podCIDR"] for node in nodes}) == 5000
    assert len({node["status"]["addresses"][0]["address"] for node in nodes}) == 5000


def test_a_pool_file_shapes_the_nodes():
    text = b"""
apiVersion: kubesched.io/v1alpha1
kind: NodePools
pools:
- name: gpu
  count: 2
  zones: [z1]
  capacity: {cpu: "64", memory: 512Gi, pods: "250", example.com/gpu: "8"}
  allocatable: {cpu: "62"}
  labels: {accelerator: a100}
  taints: [{key: gpu, value: "yes", effect: NoSchedule}]
  images: [{names: ["big:1"], sizeBytes: 4000000000}]
  declaredFeatures: [GuaranteedQoSPodCPUResize]
"""
    [first, _] = plan_nodes(load_node_pools(text), 10)
    node = build_node(first, 0.0, "v1.37.0")
    assert node["status"]["allocatable"]["cpu"] == "62"
    assert node["status"]["capacity"]["example.com/gpu"] == "8"
    assert node["spec"]["taints"] == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    assert node["metadata"]["labels"]["accelerator"] == "a100"
    assert node["status"]["images"] == [{"names": ["big:1"], "sizeBytes": 4000000000}]
    assert node["status"]["declaredFeatures"] == ["GuaranteedQoSPodCPUResize"]


def test_every_mistake_in_a_pool_file_is_named_with_its_place():
    text = b"""apiVersion: kubesched.io/v1alpha1
kind: NodePools
pools:
- name: a
  count: -1
  capacity: {cpu: many}
  labels: {"bad key!": x}
  taints: [{effect: Never}]
  size: 3
- name: a
"""
    with pytest.raises(ConfigError) as caught:
        load_node_pools(text, "pools.yaml")
    assert {problem.path for problem in caught.value.problems} == {
        "pools[0].count",
        "pools[0].capacity[cpu]",
        "pools[0].labels[bad key!]",
        "pools[0].taints[0].key",
        "pools[0].taints[0].effect",
        "pools[0].size",
        "pools[1].name",
    }


def renewals(world):
    return {
        lease["metadata"]["name"]: parse_timestamp(lease["spec"]["renewTime"])
        for lease in world.list(LEASES, "kube-node-lease")
    }


def test_leases_are_renewed_every_ten_seconds(world):
    world.run(60)
    now = world.clock.now()
    assert all(now - renewed <= 10 for renewed in renewals(world).values())
    lease = world.get(LEASES, "node-0", "kube-node-lease")
    assert lease["spec"]["leaseDurationSeconds"] == 40
    assert lease["metadata"]["ownerReferences"][0]["kind"] == "Node"


def test_heartbeats_are_spread_over_the_interval(make_world):
    world = make_world(100)
    world.run(60)
    moments = sorted(renewals(world).values())
    widest = max(later - earlier for earlier, later in itertools.pairwise(moments))
    assert moments[-1] - moments[0] > 5
    assert widest < 2.5


def test_many_nodes_share_a_budget_of_writes(make_world):
    world = make_world(kubelet=KubeletOptions(nodes=300, max_heartbeats_per_s=5.0), events=False)
    world.run(30)
    before = world.registry.store.revision
    world.run(60)
    assert world.registry.store.revision - before <= 60 * 5 * 1.2
    conditions = [node["status"]["conditions"] for node in world.list("nodes")]
    assert all(c["status"] == "True" for each in conditions for c in each if c["type"] == "Ready")


def test_a_cluster_that_grows_promises_longer_leases_before_it_heartbeats_more_slowly(make_world):
    world = make_world(kubelet=KubeletOptions(nodes=2, max_heartbeats_per_s=0.5), events=False)
    world.run(30)
    for index in range(60):
        world.create("nodes", {"metadata": {"name": f"late-{index}"}}, "")
        world.run(5)
    world.run(600)
    health = {
        each["status"]
        for node in world.list("nodes")
        for each in node["status"]["conditions"]
        if each["type"] == "Ready"
    }
    assert health == {"True"}
    assert all(not node["spec"].get("taints") for node in world.list("nodes"))


def test_a_node_made_by_hand_is_adopted(world):
    world.create(
        "nodes",
        {"metadata": {"name": "hand"}, "status": {"allocatable": {"cpu": "1", "pods": "5"}}},
        "",
    )
    world.settle()
    conditions = world.get("nodes", "hand")["status"]["conditions"]
    assert any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    assert world.exists(LEASES, "hand", "kube-node-lease")


def test_a_node_made_by_hand_keeps_its_own_health(world):
    sick = [{"type": "Ready", "status": "False", "reason": "Sick"}]
    world.create("nodes", {"metadata": {"name": "hand"}, "status": {"conditions": sick}}, "")
    world.run(30)
    conditions = world.get("nodes", "hand")["status"]["conditions"]
    assert [(each["type"], each["status"]) for each in conditions] == [("Ready", "False")]


def test_a_deleted_node_is_not_registered_again(world):
    world.delete("nodes", "node-1")
    world.run(60)
    assert not world.exists("nodes", "node-1")


def test_extended_resources_of_the_capacity_can_be_allocated(world):
    dongles = {"example.com/dongle": "4"}
    world.api.patch(
        "nodes", None, "node-0", {"status": {"capacity": dongles}}, subresource="status"
    )
    world.run(1)
    assert world.get("nodes", "node-0")["status"]["allocatable"]["example.com/dongle"] == "4"
    gone = {"example.com/dongle": None}
    world.api.patch("nodes", None, "node-0", {"status": {"capacity": gone}}, subresource="status")
    world.run(1)
    assert "example.com/dongle" not in world.get("nodes", "node-0")["status"]["allocatable"]
