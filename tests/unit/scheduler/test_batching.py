"""Opportunistic batching: when a hint is given, when it is not, and in which order nodes are given
up.
"""

from __future__ import annotations

import pytest
from frameworks import default_framework, framework_of
from hypothesis import given
from hypothesis import strategies as st

from kubesched.config.features import defaults
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.scheduler.batching import Batching, RankedNodes, Unusable, signer
from kubesched.testing import Cluster, make_node, make_pod

SIGNATURE = b"same"


def remembered(*, rescores: bool = True) -> Batching:
    batching = Batching("p", None, rescores=rescores)
    ranking = RankedNodes(["a", "b", "c"], [3, 5, 4], chosen=1)
    batching.store(SIGNATURE, "", "b", ranking, cycle=7, now=100.0)
    return batching


def with_the_last_node(ranking: RankedNodes, node: str) -> RankedNodes:
    return RankedNodes([*ranking.names, node], [1] * len(ranking) + [9], None)


def hint(batching: Batching, **changes) -> str:
    arguments = {
        "signature": SIGNATURE,
        "cycle": 8,
        "now": 100.2,
        "exists": lambda _node: True,
        "has_room": lambda _node: False,
        "rescore": with_the_last_node,
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
        pytest.param({"has_room": lambda _node: None}, id="a filter fails on the chosen node"),
    ],
)
def test_no_hint(changes) -> None:
    for rescores in (True, False):
        assert hint(remembered(rescores=rescores), **changes) == ""


def test_a_chosen_node_with_room_competes_again() -> None:
    assert hint(remembered(), has_room=lambda _node: True) == "b"
    assert hint(remembered(rescores=False), has_room=lambda _node: True) == "", "1.36 gives up"


def test_a_nominated_pod_gets_no_hint() -> None:
    assert hint(remembered(), is_nominated=True) == ""
    assert hint(remembered(rescores=False), is_nominated=True) == "c"


def test_rescoring_may_fail() -> None:
    def fails(_ranking: RankedNodes, _node: str) -> RankedNodes:
        raise Unusable("prescore_error")

    batching = remembered()
    assert hint(batching, has_room=lambda _node: True, rescore=fails) == ""
    assert hint(batching) == "c", "the batch is kept"


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
      enabled:
        [{name: PrioritySort}, {name: DefaultBinder}, {name: NodeName}, {name: NodeResourcesFit}]
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


SPREAD_BY_LIST = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 1
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: PodTopologySpread
    args: {defaultingType: List}
"""


@pytest.mark.parametrize(
    ("version", "nodes", "counts"),
    [
        pytest.param(
            "1.37",
            "n0 n2 n1 n2 n1 n0 n1 n0 n2",
            {"hint_used": 8, "no_hint": 1, "rescored": 8},
            id="1.37",
        ),
        pytest.param(
            "1.36", "n0 n1 n2 n0 n1 n2 n0 n1 n2", {"no_hint": 9, "node_not_full": 8}, id="1.36"
        ),
    ],
)
def test_nine_identical_pods_on_three_nodes(version, nodes, counts) -> None:
    """T47, as observed on both releases."""
    with Cluster(config=SPREAD_BY_LIST, gates=defaults(version)) as world:
        for number in range(3):
            world.add(make_node(f"n{number}").capacity(cpu="4", memory="8Gi", pods="110").build())
        for number in range(9):
            world.add(make_pod(f"p{number}").cpu("500m").memory("512Mi").build())
        world.settle()
        placed = [world.client.bindings[f"default/p{number}"] for number in range(9)]
        metrics = world.assembly.scheduler.metrics
        counted = {
            name: int(cell.current())
            for family in (metrics.batch_attempts_total, metrics.batch_cache_flushed_total)
            for (_, name), cell in family.cells().items()
        }
        for cell in metrics.batch_rescore_attempts_total.cells().values():
            counted["rescored"] = int(cell.current())
    assert " ".join(placed) == nodes
    assert counted == counts
