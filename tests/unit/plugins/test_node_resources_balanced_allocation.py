"""NodeResourcesBalancedAllocation: the specification's checklist."""

import numpy as np
import pytest
from judging import cluster, make, scores

from kubesched.base.errors import ConfigError
from kubesched.config.plugin_args import NodeResourcesBalancedAllocationArgs, ResourceSpec
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import RowRule
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Code
from kubesched.plugins.node_resources.balanced_allocation import (
    NodeResourcesBalancedAllocation,
    balances,
)
from kubesched.testing import make_node, make_pod

GPU = "example.com/gpu"


def asking(name="p", **amounts):
    pod = make_pod(name)
    for resource, amount in amounts.items():
        pod.request(resource.replace("_", "-"), amount)
    return pod


def resources(*names):
    return NodeResourcesBalancedAllocationArgs(
        resources=tuple(ResourceSpec(name=name, weight=1) for name in names)
    )


THREE = resources("cpu", "memory", GPU)


@pytest.mark.parametrize(
    ("args", "node", "used", "pod", "expected"),
    [
        pytest.param(None, {"cpu": "8", "memory": "32Gi"}, {"cpu": "2", "memory": "4Gi"},
                     {"cpu": "1", "memory": "8Gi"}, 78, id="a pod that evens out what is used"),
        pytest.param(None, {"cpu": "8", "memory": "32Gi"}, {"cpu": "2", "memory": "4Gi"},
                     {"cpu": "4", "memory": "1Gi"}, 63, id="a pod that makes it more uneven"),
        pytest.param(None, {"cpu": "5", "memory": "10000"}, {}, {"cpu": "1", "memory": "6000"}, 65,
                     id="an uneven pod on an empty node"),
        pytest.param(None, {"cpu": "4", "memory": "4000"}, {"cpu": "1", "memory": "1000"},
                     {"cpu": "1", "memory": "1000"}, 75, id="balanced before and after"),
        pytest.param(None, {"cpu": "4", "memory": "4000"}, {"cpu": "4"},
                     {"cpu": "0", "memory": "4000"}, 100, id="the best that can happen"),
        pytest.param(None, {"cpu": "4", "memory": "4000"}, {}, {"cpu": "4"}, 50,
                     id="the worst that can happen"),
        pytest.param(None, {"cpu": "4", "memory": "4000"}, {"cpu": "8", "memory": "4000"},
                     {"cpu": "8", "memory": "1"}, 75, id="beyond full is full"),
        pytest.param(THREE, {"cpu": "8", "memory": "32", GPU: "4"}, {"cpu": "2", "memory": "16"},
                     {"cpu": "1", "memory": "4", GPU: "1"}, 77,
                     id="three resources by standard deviation"),
        pytest.param(THREE, {"cpu": "8", "memory": "32Gi", GPU: "4"},
                     {"cpu": "2", "memory": "4Gi", GPU: "4"}, {"cpu": "1", "memory": "8Gi"}, 78,
                     id="a device that is not requested is left out"),
        pytest.param(THREE, {"cpu": "8", "memory": "32Gi"}, {"cpu": "2", "memory": "4Gi"},
                     {"cpu": "1", "memory": "8Gi", GPU: "1"}, 78,
                     id="a device the node does not have is left out"),
        pytest.param(None, {}, {}, {"cpu": "1"}, 75, id="a node that offers nothing"),
        pytest.param(None, {"cpu": "4"}, {}, {"cpu": "1"}, 75,
                     id="a single resource is always balanced"),
    ],
)  # fmt: skip
def test_score(args, node, used, pod, expected):
    pods = [asking("other", **used).on("n")] if used else []
    table = cluster(make_node("n").capacity(**node), pods=pods)
    plugin, wanting = make(NodeResourcesBalancedAllocation, table, args), asking(**pod)
    assert scores(plugin, wanting, table) == {"n": expected}
    state = CycleState()
    plugin.pre_score(state, wanting.build(), NodeColumns(table))
    rule = plugin.score_rule(state, wanting.build())
    has_form = isinstance(rule, RowRule)
    assert not has_form or rule.at(0) == expected
    assert has_form or args is THREE, "two resources have a form for single rows"


@pytest.mark.parametrize(
    ("fractions", "expected"),
    [
        pytest.param([0.8, 0.6], 89, id="doubles round 0.8 and 0.6 below 90"),
        pytest.param([0.8, 0.1], 64, id="doubles round 0.8 and 0.1 below 65"),
        pytest.param([0.5], 100, id="one fraction has nothing to differ from"),
        pytest.param([], 100, id="no fraction either"),
    ],
)
def test_balance(fractions, expected):
    used = np.array(fractions, dtype=np.float64).reshape(-1, 1)
    assert balances(used, np.ones(used.shape, dtype=np.bool_)).tolist() == [expected]


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(make_pod("p"), id="a pod that asks for nothing"),
        pytest.param(asking(cpu="0"), id="a pod that asks for 0"),
        pytest.param(asking(**{GPU: "1"}), id="a pod that asks for none of the compared resources"),
    ],
)
def test_best_effort_pods_are_skipped(pod):
    table = cluster(make_node("n").offers(GPU, "1"))
    plugin = make(NodeResourcesBalancedAllocation, table)
    assert scores(plugin, pod, table).code is Code.SKIP


def test_a_best_effort_pod_that_is_scored_all_the_same_gets_0():
    table = cluster(make_node("n"))
    plugin = make(NodeResourcesBalancedAllocation, table)
    nodes = NodeColumns(table)
    assert plugin.score_nodes(CycleState(), make_pod("p").build(), nodes).tolist() == [0]
    assert plugin.score_nodes(CycleState(), asking(cpu="1").build(), nodes).tolist() == [68]


def test_pod_level_requests_count():
    table = cluster(make_node("n").capacity(cpu="5", memory="10000"))
    pod = make_pod("p").spec(resources={"requests": {"cpu": "1", "memory": "6000"}})
    assert scores(make(NodeResourcesBalancedAllocation, table), pod, table) == {"n": 65}


def test_kept_balances_follow_pods_that_come_and_go():
    table = cluster(*(make_node(f"n{i}").capacity(cpu="4", memory="4000") for i in range(40)))
    plugin, pod = make(NodeResourcesBalancedAllocation, table), asking(memory="2000")
    everywhere = dict.fromkeys(table.row_of, 62)
    assert scores(plugin, pod, table) == everywhere
    uneven = [PodInfo(asking(f"q{i}", cpu="3").build()) for i in range(30)]
    table.add_pod(uneven[0], "n7")
    assert scores(plugin, pod, table) == everywhere | {"n7": 87}
    for number, other in enumerate(uneven[1:], start=1):
        table.add_pod(other, f"n{number + 8}")
    assert scores(plugin, pod, table)["n20"] == 87
    for number, other in enumerate(uneven):
        table.remove_pod(other, f"n{number + 8}" if number else "n7")
    assert scores(plugin, pod, table) == everywhere


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(resources("cpu", "cpu"), id="a resource named twice"),
        pytest.param(
            NodeResourcesBalancedAllocationArgs(resources=(ResourceSpec(name="cpu", weight=2),)),
            id="a weight other than 1",
        ),
    ],
)
def test_wrong_arguments_are_refused_at_start(args):
    with pytest.raises(ConfigError, match="resources"):
        make(NodeResourcesBalancedAllocation, args=args)


def test_the_signature_is_that_of_node_resources_fit():
    fragment = make(NodeResourcesBalancedAllocation).sign_pod(asking(cpu="1").build())
    assert fragment["v1.Pod.Spec.ContainerRequestsAndOverheads()"]["MilliCPU"] == 1000
