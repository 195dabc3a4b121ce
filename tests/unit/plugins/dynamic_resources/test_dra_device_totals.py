"""Devices in the scores of NodeResourcesFit and NodeResourcesBalancedAllocation."""

import pytest
from dra_objects import allocation, claim, device, device_class, resource_slice
from msgspec import convert

from kubesched.api.core_v1 import Node
from kubesched.api.resource_v1 import DeviceClass
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.plugin_args import (
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    ResourceSpec,
    ScoringStrategy,
)
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.views import NodeColumns
from kubesched.insight.state.memory import MemoryListers
from kubesched.plugins.dynamic_resources.device_totals import device_totals
from kubesched.plugins.dynamic_resources.manager import DRAManager
from kubesched.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from kubesched.plugins.node_resources.fit import NodeResourcesFit
from kubesched.testing.builders import make_node, make_pod

GPU = "example.com/gpu"
ZONE_A = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    ]
}


def listers(*objects):
    made = MemoryListers()
    for each in objects:
        made.of(type(each)).put(each)
    return made


def totals(*slices, taken=(), expressions=(), on=None):
    known = listers(device_class("gpu", *expressions), *slices, *taken)
    dra = DRAManager(known, DEFAULT_GATES)
    node = on or convert({"metadata": {"name": "n1", "labels": {"zone": "a"}}}, Node)
    return device_totals(node, known.of(DeviceClass).get("", "gpu"), dra)


@pytest.mark.parametrize(
    ("slices", "count"),
    [
        pytest.param([resource_slice("s", "a", "b")], 2, id="its own"),
        pytest.param([resource_slice("s", "a", nodeName="n2")], 0, id="another node's"),
        pytest.param([resource_slice("s", "a", nodeSelector=ZONE_A)], 1, id="of its zone"),
        pytest.param([resource_slice("s", "a", allNodes=True)], 1, id="everywhere"),
        pytest.param(
            [
                resource_slice(
                    "s",
                    device("a", nodeName="n1"),
                    device("b", nodeName="n2"),
                    device("c", nodeSelector=ZONE_A),
                    perDeviceNodeSelection=True,
                )
            ],
            2,
            id="by device",
        ),
        pytest.param(
            [
                resource_slice("old", "a", pool="p", generation=1),
                resource_slice("new", "b", pool="p", generation=2),
            ],
            2,
            id="any generation",
        ),
    ],
)
def test_devices_that_count(slices, count):
    assert totals(*slices) == (count, 0)


def test_selectors_and_allocations():
    slices = [resource_slice("s", device("a", attributes={"m": "x"}), "b")]
    has_model = 'has(device.attributes["gpu.example.com"].m)'
    taken = [claim("c", status={"allocation": allocation(("r", "s", "a"), ("q", "s", "b"))})]
    assert totals(*slices, expressions=[has_model]) == (1, 0)
    assert totals(*slices, taken=taken) == (2, 2)
    assert totals(*slices, taken=taken, expressions=[has_model]) == (1, 1)


def test_a_selector_that_fails_makes_both_zero():
    assert totals(resource_slice("s", "a"), expressions=["device.attributes['x'].y == 1"]) == (0, 0)


def test_shareable_devices_look_exclusive_to_selectors():
    slices = [resource_slice("s", device("a", allowMultipleAllocations=True))]
    assert totals(*slices, expressions=["!device.allowMultipleAllocations"]) == (1, 0)


def scores(plugin_type, args, *nodes):
    """Scores of n0 (2 free of 2 devices), n1 (1 free of 2) and n2 (a device plugin with 2)."""
    table = NodeTable()
    for each in nodes:
        table.set_node(each.build())
    objects = [
        device_class("gpu", extendedResourceName=GPU),
        resource_slice("s0", "a", "b", nodeName="n0"),
        resource_slice("s1", "a", "b", nodeName="n1"),
        claim("c", status={"allocation": allocation(("r", "s1", "a"))}),
    ]
    plugin = plugin_type(args, Handle(table, listers=listers(*objects)))
    pod = make_pod("p").spec(containers=[{"name": "c", "resources": {"requests": {GPU: "1"}}}])
    state, view = CycleState(), NodeColumns(table)
    plugin.pre_score(state, pod.build(), view)
    assert plugin.score_rule(state, pod.build()) is None
    return plugin.score_nodes(state, pod.build(), view).tolist()


NODES = [make_node("n0"), make_node("n1"), make_node("n2").capacity(**{GPU: "2"})]


def test_the_emptier_pool_scores_higher():
    strategy = ScoringStrategy(type="LeastAllocated", resources=[ResourceSpec(name=GPU, weight=1)])
    args = NodeResourcesFitArgs(scoring_strategy=strategy)
    assert scores(NodeResourcesFit, args, *NODES) == [50, 0, 50]


def test_balance_counts_devices():
    specs = [ResourceSpec(name="cpu", weight=1), ResourceSpec(name=GPU, weight=1)]
    args = NodeResourcesBalancedAllocationArgs(resources=specs)
    nodes = [
        make_node(name).capacity(cpu="4", **offered)
        for name, offered in (("n0", {}), ("n1", {}), ("n2", {GPU: "2"}))
    ]
    # Without a look at the devices nothing but cpu would be compared, and nothing would change: 75.
    assert scores(NodeResourcesBalancedAllocation, args, *nodes) == [62, 62, 62]
