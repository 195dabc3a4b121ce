"""Pools: which devices a node can reach, in which order, and what makes a pool unusable."""

import pytest
from dra_objects import device, node, resource_slice

from kubesched.plugins.dynamic_resources.structured.failures import AllocationError
from kubesched.plugins.dynamic_resources.structured.features import Features
from kubesched.plugins.dynamic_resources.structured.pools import Slices, gather_pools

ZONE_A = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    ]
}


def pools_of(*slices, on=None, features=None):
    return gather_pools(Slices(slices), on or node(), features or Features())


def names(pools):
    return [pooled.device.name for pool in pools for pooled in pool.devices]


def test_pools_come_by_driver_and_name_slices_by_name_devices_as_listed():
    pools = pools_of(
        resource_slice("s3", "f", driver="b.example.com", pool="p"),
        resource_slice("s2", "d", "c", pool="q", count=2),
        resource_slice("s10", "e", pool="q", count=2),
        resource_slice("s1", "b", "a", pool="p"),
    )
    assert names(pools) == ["f", "b", "a", "e", "d", "c"]


def test_pools_with_binding_conditions_come_last():
    pools = pools_of(
        resource_slice("a", device("slow", bindingConditions=["ready"])),
        resource_slice("b", "fast"),
    )
    assert names(pools) == ["fast", "slow"]


@pytest.mark.parametrize(
    ("spec", "reachable"),
    [
        pytest.param({"nodeName": "n1"}, True, id="its own"),
        pytest.param({"nodeName": "n2"}, False, id="another node's"),
        pytest.param({"allNodes": True}, True, id="everywhere"),
        pytest.param({"nodeSelector": ZONE_A}, True, id="selected"),
        pytest.param({"allNodes": False}, False, id="nothing known is set"),
    ],
)
def test_slices_are_reachable_by_their_choice_of_nodes(spec, reachable):
    pools = pools_of(resource_slice("s", "d", **spec), on=node("n1", zone="a"))
    assert names(pools) == (["d"] if reachable else [])


def test_a_slice_with_selection_per_device_is_reachable_if_one_device_is():
    local = device("local", nodeName="n1")
    far = device("far", nodeName="n2")
    assert names(pools_of(resource_slice("s", far, local, perDeviceNodeSelection=True))) == [
        "far",
        "local",
    ]
    assert pools_of(resource_slice("s", far, perDeviceNodeSelection=True)) == []


def test_only_the_highest_generation_counts():
    pools = pools_of(
        resource_slice("old", "old", pool="p", generation=1),
        resource_slice("new", "new", pool="p", generation=2),
    )
    assert names(pools) == ["new"]


def test_a_complete_old_generation_is_used_where_the_new_one_is_elsewhere():
    pools = pools_of(
        resource_slice("old", "old", pool="p", generation=1),
        resource_slice("new", "new", pool="p", generation=2, nodeName="n2"),
    )
    assert names(pools) == ["old"]


def test_an_incomplete_old_generation_is_dropped_once_a_newer_one_exists():
    pools = pools_of(
        resource_slice("old", "old", pool="p", generation=1, count=2),
        resource_slice("new", "new", pool="p", generation=2, nodeName="n2"),
    )
    assert pools == []


def test_a_pool_with_missing_slices_offers_nothing_and_is_remembered():
    (pool,) = pools_of(resource_slice("s", "d", count=2))
    assert pool.is_incomplete
    assert not pool.is_usable
    assert names([pool]) == []


def test_slices_on_other_nodes_complete_a_pool():
    (pool,) = pools_of(
        resource_slice("here", "d", pool="p", count=2),
        resource_slice("there", "e", pool="p", count=2, nodeName="n2"),
    )
    assert names([pool]) == ["d"]
    assert [pooled.device.name for pooled in pool.elsewhere] == ["e"]


def counters(name, *sets, **more):
    shared = [{"name": each, "counters": {"m": {"value": "4"}}} for each in sets]
    return resource_slice(name, pool="p", sharedCounters=shared, **more)


def consuming(name, counter_set="c", counter="m", amount="2"):
    return device(
        name,
        consumesCounters=[{"counterSet": counter_set, "counters": {counter: {"value": amount}}}],
    )


@pytest.mark.parametrize(
    ("slices", "reason"),
    [
        pytest.param(
            [resource_slice("s", "d", "d")], "duplicate device name d", id="device name twice"
        ),
        pytest.param(
            [counters("c1", "c", count=2), counters("c2", "c", count=2)],
            "duplicate counter set name c",
            id="counter set twice",
        ),
        pytest.param(
            [resource_slice("s", consuming("d"), pool="p")],
            "counter set c not found",
            id="no such set",
        ),
        pytest.param(
            [
                counters("c1", "c", count=2),
                resource_slice("s", consuming("d", counter="x"), pool="p", count=2),
            ],
            "counter x not found in counter set c",
            id="no such counter",
        ),
        pytest.param(
            [
                resource_slice("s", "d", pool="p", count=2),
                resource_slice("t", consuming("e"), pool="p", count=2, nodeName="n2"),
            ],
            "counter set c not found",
            id="a device elsewhere",
        ),
    ],
)
def test_a_pool_that_contradicts_itself_is_invalid(slices, reason):
    (pool,) = pools_of(*slices)
    assert pool.invalid_reason == reason
    assert not pool.is_usable
    assert names([pool]) == []


def test_without_partitionable_devices_slices_that_need_them_are_ignored():
    off = Features(partitionable_devices=False)
    slices = [
        resource_slice("a", device("x", nodeName="n1"), perDeviceNodeSelection=True),
        counters("b", "c"),
        resource_slice("d", "y"),
    ]
    assert names(pools_of(*slices, features=off)) == ["y"]


def test_a_selector_that_cannot_be_read_is_an_error_that_names_the_slice():
    broken = {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "Is", "values": ["a", "b"]}]}
        ]
    }
    with pytest.raises(AllocationError) as caught:
        pools_of(resource_slice("s", "d", nodeSelector=broken))
    assert str(caught.value).startswith(
        "gather pool information: failed to perform node selection for slice s: "
        "failed to parse node selector &NodeSelector{NodeSelectorTerms:[]NodeSelectorTerm{"
        "NodeSelectorTerm{MatchExpressions:[]NodeSelectorRequirement{"
        "NodeSelectorRequirement{Key:zone,Operator:Is,Values:[a b],},},"
        "MatchFields:[]NodeSelectorRequirement{},},},}: "
    )


def test_removing_what_was_added_leaves_nothing():
    slices = Slices()
    for each in (resource_slice("a", "d"), counters("b", "c"), resource_slice("c", allNodes=True)):
        slices.add(each)
        slices.remove(each)
        assert list(slices.candidates("n1")) == []
        assert list(slices.of_pool((each.spec.driver, each.spec.pool.name))) == []
