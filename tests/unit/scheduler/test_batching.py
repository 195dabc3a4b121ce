"""Opportunistic batching: when a hint is given, when it is not, and in which order nodes are given up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.framework.nodes.node_table import NodeTable
from kubesched.scheduler.batching import Batching, RankedNodes, signer
from kubesched.testing import Cluster, make_node, make_pod
from kubesched.testing.frameworks import default_framework, framework_of

SIGNATURE = b"same"


def remembered(**changes) -> Batching:
    batching = Batching("p", None)
    ranking = RankedNodes(["a", "b", "c"], [3, 5, 4], chosen=1)
    batching.store(SIGNATURE, "", "b", ranking, cycle=7, now=100.0)
    return batching


def hint(batching: Batching, **changes) -> str:
    arguments = {
        "signature": SIGNATURE,
        "cycle": 8,
        "now": 100.2,
        "exists": lambda _node: True,
        "is_full": lambda _node: True,
    } | changes
    return batching.hint(**arguments)


def test_the_next_best_node_is_hinted_once_the_chosen_one_is_full() -> None:
    batching = remembered()
    assert hint(batching) == "c"
    batching.store(SIGNATURE, "c", "c", None, cycle=8, now=100.2)
    assert hint(batching, cycle=9) == "a"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"cycle": 9}, id="another pod came in between"),
        pytest.param({"signature": b"other"}, id="the pod is of another kind"),
        pytest.param({"signature": None}, id="the pod cannot be signed"),
        pytest.param({"now": 100.6}, id="what was learnt is older than half a second"),
        pytest.param({"exists": lambda _node: False}, id="the chosen node is gone"),
        pytest.param({"is_full": lambda _node: False}, id="the chosen node has room for one more"),
    ],
)
def test_no_hint(changes) -> None:
    assert hint(remembered(), **changes) == ""


@given(st.lists(st.integers(0, 5), min_size=2, max_size=40))
def test_nodes_are_given_up_from_best_to_worst(totals: list[int]) -> None:
    best = totals.index(max(totals))
    ranking = RankedNodes([str(i) for i in range(len(totals))], totals, best)
    popped = [int(ranking.pop()) for _ in range(len(totals) - 1)]
    assert sorted([*popped, best]) == list(range(len(totals)))
    assert [totals[i] for i in popped] == sorted((totals[i] for i in popped), reverse=True)
    assert len(ranking) == 0


def test_the_default_profile_signs_nothing() -> None:
    framework = default_framework(NodeTable())
    sign = signer(framework)
    assert sign is None or sign(make_pod("p").build()) is None


def test_a_profile_of_signing_plugins_signs_alike_pods_alike() -> None:
    framework = framework_of(NodeTable(), "NodeName", "TaintToleration", "NodeResourcesFit")
    sign = signer(framework)
    one, two = make_pod("one").cpu("1").build(), make_pod("two").cpu("1").build()
    assert sign(one) == sign(two) is not None
    assert sign(one) != sign(make_pod("three").cpu("2").build())


CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 1
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      disabled: [{name: "*"}]
      enabled: [{name: PrioritySort}, {name: DefaultBinder}, {name: NodeName}, {name: NodeResourcesFit}]
"""


def test_hints_fill_nodes_that_hold_one_pod_each() -> None:
    with Cluster(config=CONFIG) as world:
        for number in range(4):
            world.add(make_node(f"n{number}").capacity(cpu="1", memory="1Gi").build())
        for number in range(4):
            world.add(make_pod(f"p{number}").cpu("1").build())
        world.settle()
        assert sorted(world.client.bindings.values()) == ["n0", "n1", "n2", "n3"]
        used = world.assembly.scheduler.metrics.batch_attempts_total.labels(
            "default-scheduler", "hint_used"
        )
        assert used.current() == 3
