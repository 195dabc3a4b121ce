"""Fake nodes publish the devices of their pool as ResourceSlices."""

from __future__ import annotations

import pytest

from kubesched.base.errors import ConfigError
from kubesched.playground.kubelet.devices import SLICES
from kubesched.playground.kubelet.node_templates import load_node_pools
from kubesched.playground.kubelet.options import KubeletOptions

HEAD = """
apiVersion: kubesched.io/v1alpha1
kind: NodePools
pools:
- name: plain
  count: 1
- name: gpu
  count: 2
  drivers:
"""


def pools(drivers: str):
    return load_node_pools((HEAD + drivers).encode(), "pools.yaml")


def slices_of(world, node):
    return [item for item in world.list(SLICES) if item["spec"]["nodeName"] == node]


def test_devices_become_slices_of_their_node(make_world):
    declared = pools("""
  - driver: gpu.example.com
    devices:
    - name: gpu
      count: 2
      attributes: {model: {string: a100}, version: {version: 1.2.3}}
      capacity: {memory: {value: 80Gi}}
    - name: old
      taints: [{key: broken, effect: NoSchedule}]
""")
    world = make_world(kubelet=KubeletOptions(pools=declared))
    assert slices_of(world, "plain-0") == []
    (published,) = slices_of(world, "gpu-1")
    spec = published["spec"]
    assert spec["driver"] == "gpu.example.com"
    assert spec["pool"] == {"name": "gpu-1", "generation": 1, "resourceSliceCount": 1}
    assert [device["name"] for device in spec["devices"]] == ["gpu-0", "gpu-1", "old"]
    assert spec["devices"][1] == {
        "name": "gpu-1",
        "attributes": {"model": {"string": "a100"}, "version": {"version": "1.2.3"}},
        "capacity": {"memory": {"value": "80Gi"}},
    }
    assert published["metadata"]["ownerReferences"][0]["name"] == "gpu-1"


def test_counters_have_a_slice_of_their_own_and_devices_as_many_as_they_need(make_world):
    declared = pools("""
  - driver: gpu.example.com
    sharedCounters: [{name: card, counters: {memory: {value: 80Gi}}}]
    devices:
    - name: part
      count: 70
      consumesCounters: [{counterSet: card, counters: {memory: {value: 1Gi}}}]
""")
    world = make_world(kubelet=KubeletOptions(pools=declared))
    published = slices_of(world, "gpu-0")
    assert [len(item["spec"].get("devices", ())) for item in published] == [0, 64, 6]
    assert {item["spec"]["pool"]["resourceSliceCount"] for item in published} == {3}


def test_slices_go_with_their_node_and_edits_stay(make_world):
    declared = pools("""
  - driver: gpu.example.com
    devices: [{name: gpu}]
""")
    world = make_world(kubelet=KubeletOptions(pools=declared))
    (first,) = slices_of(world, "gpu-0")
    name = first["metadata"]["name"]
    world.patch(SLICES, name, {"spec": {"devices": []}})
    world.restart()
    world.run(5)
    assert world.get(SLICES, name)["spec"]["devices"] == []
    world.delete("nodes", "gpu-0")
    world.run(60)
    assert slices_of(world, "gpu-0") == []
    assert len(slices_of(world, "gpu-1")) == 1


@pytest.mark.parametrize(
    ("drivers", "path", "words"),
    [
        ("  - devices: [{name: a}]", "pools[1].drivers[0].driver", "Required value"),
        (
            "  - {driver: d, devices: [{name: A}]}",
            "pools[1].drivers[0].devices[0].name",
            "a lowercase RFC 1123 label",
        ),
        (
            "  - {driver: d, devices: [{name: a, capacity: {m: {value: much}}}]}",
            "pools[1].drivers[0]",
            "quantities must match",
        ),
        (
            "  - {driver: d, devices: [{name: a, count: -1}]}",
            "pools[1].drivers[0].devices[0].count",
            "must not be negative",
        ),
        (
            "  - {driver: d, devices: [{name: a}]}\n  - {driver: d, devices: [{name: b}]}",
            "pools[1].drivers[1].driver",
            "Duplicate value",
        ),
    ],
)
def test_mistakes_in_devices_are_named_with_their_place(drivers, path, words):
    with pytest.raises(ConfigError) as refusal:
        pools(drivers)
    assert any(
        problem.path == path and words in problem.message for problem in refusal.value.problems
    ), str(refusal.value)
