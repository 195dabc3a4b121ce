"""TaintToleration: the specification's checklist on taints and tolerations."""

import numpy as np
import pytest
from judging import cluster, hint, make, scores, verdict

from kubesched.config.features import from_map
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import Action, Hint, Resource
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Code
from kubesched.plugins.taint_toleration import TaintToleration
from kubesched.testing import make_node, make_pod

COMPARISONS = from_map({"TaintTolerationComparisonOperators": True})


@pytest.mark.parametrize(
    ("tolerations", "taints", "fits"),
    [
        pytest.param([], [("d", "u1", "NoSchedule")], False, id="an untolerated taint rejects"),
        pytest.param([], [("d", "u1", "NoExecute")], False, id="so does one that would evict"),
        pytest.param([], [("d", "u1", "PreferNoSchedule")], True, id="a soft taint does not"),
        pytest.param([], [("d", "u1", "Whatever")], True, id="an unknown effect does not"),
        pytest.param(
            [("d", "u1", "NoSchedule", "Equal")],
            [("d", "u2", "NoSchedule")],
            False,
            id="another value is not tolerated",
        ),
        pytest.param(
            [("d", "", "NoSchedule", "Exists")],
            [("d", "u2", "NoSchedule")],
            True,
            id="Exists tolerates any value",
        ),
        pytest.param(
            [("d", "u1", "", "Equal")],
            [("d", "u1", "NoSchedule"), ("d", "u1", "NoExecute")],
            True,
            id="no effect covers both hard effects",
        ),
        pytest.param(
            [("d", "u1", "PreferNoSchedule", "Equal")],
            [("d", "u1", "NoSchedule")],
            False,
            id="a soft toleration does not cover a hard taint",
        ),
        pytest.param(
            [("a", "", "", "Exists")],
            [("a", "", "NoSchedule"), ("b", "", "NoSchedule")],
            False,
            id="one of two taints tolerated is not enough",
        ),
        pytest.param(
            [("", "", "", "Equal")],
            [("any", "", "NoSchedule")],
            True,
            id="Equal with neither key nor value tolerates a taint without value",
        ),
        pytest.param(
            [("d", "500", "", "Gt"), ("d", "u1", "", "Equal")],
            [("d", "u1", "NoSchedule")],
            True,
            id="beside an inert Gt, Equal still works",
        ),
        pytest.param(
            [("d", "500", "", "Gt")],
            [("d", "501", "NoSchedule")],
            False,
            id="Gt is inert while its gate is off",
        ),
    ],
)
def test_filter(tolerations, taints, fits):
    node, pod = make_node("n"), make_pod("p")
    for taint in taints:
        node.taint(*taint)
    for toleration in tolerations:
        pod.tolerates(*toleration)
    table = cluster(node)
    answer = verdict(make(TaintToleration, table), pod, table)
    if fits:
        assert answer is None
    else:
        assert answer.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        assert answer.reasons == ("node(s) had untolerated taint(s)",)


@pytest.mark.parametrize(
    ("operator", "bound", "value", "fits"),
    [
        pytest.param("Gt", "500", "501", True, id="501 is greater than 500"),
        pytest.param("Gt", "500", "500", False, id="500 is not greater than 500"),
        pytest.param("Gt", "500", "0501", False, id="leading zeros are no number"),
        pytest.param("Gt", "500", "+501", False, id="a plus sign is no number"),
        pytest.param("Gt", "500", "", False, id="an empty value is no number"),
        pytest.param("Lt", "-3", "-4", True, id="-4 is less than -3"),
        pytest.param("Lt", "0", "-0", False, id="minus zero is no number"),
        pytest.param(
            "Gt", str(-(2**63)), str(2**63 - 1), True, id="the ends of the 64-bit range compare"
        ),
        pytest.param("Gt", "0", str(2**63), False, id="beyond the 64-bit range is no number"),
    ],
)
def test_comparisons_with_the_gate_on(operator, bound, value, fits):
    table = cluster(make_node("n").taint("d", value))
    pod = make_pod("p").tolerates("d", bound, operator=operator)
    plugin = make(TaintToleration, table, gates=COMPARISONS)
    assert (verdict(plugin, pod, table) is None) is fits


@pytest.mark.parametrize(
    ("disliked", "expected"),
    [
        pytest.param([0, 0, 0], [100, 100, 100], id="without soft taints every node is perfect"),
        pytest.param([0, 2, 5], [100, 60, 0], id="scores fall in proportion"),
        pytest.param([0, 1, 3], [100, 67, 0], id="the division truncates before it is reversed"),
        pytest.param([2, 2], [0, 0], id="equally disliked nodes score nothing"),
    ],
)
def test_score(disliked, expected):
    nodes = [make_node(f"n{i}") for i in range(len(disliked))]
    for node, count in zip(nodes, disliked, strict=True):
        for number in range(count):
            node.taint(f"t{number}", effect="PreferNoSchedule")
    table = cluster(*nodes)
    assert list(scores(make(TaintToleration, table), make_pod("p"), table).values()) == expected


def test_a_hard_toleration_does_not_soften_a_soft_taint():
    table = cluster(make_node("n0"), make_node("n1").taint("d", "u1", "PreferNoSchedule"))
    plugin = make(TaintToleration, table)
    hard = make_pod("p").tolerates("d", "u1", "NoSchedule")
    assert scores(plugin, hard, table) == {"n0": 100, "n1": 0}


def test_tolerated_soft_taints_count_like_none():
    table = cluster(
        make_node("n0"),
        make_node("n1").taint("a", "", "PreferNoSchedule").taint("b", "", "PreferNoSchedule"),
        make_node("n2").taint("c", "", "PreferNoSchedule"),
    )
    pod = make_pod("p").tolerates("a").tolerates("b", effect="PreferNoSchedule")
    expected = {"n0": 100, "n1": 100, "n2": 0}
    assert scores(make(TaintToleration, table), pod, table) == expected


def test_scoring_without_its_prepared_state_is_an_error():
    table = cluster(make_node("n"))
    plugin = make(TaintToleration, table)
    answer = plugin.score_nodes(CycleState(), make_pod("p").build(), NodeColumns(table))
    assert answer.code is Code.ERROR
    assert answer.message == ('failed to read "PreScoreTaintToleration" from cycleState: not found')


@pytest.mark.parametrize(
    ("was", "becomes", "expected"),
    [
        pytest.param(["a"], ["a", "b"], Hint.SKIP, id="one more untolerated taint does not help"),
        pytest.param(
            ["a"], ["ok"], Hint.QUEUE, id="an untolerated taint gone for a tolerated one helps"
        ),
        pytest.param(
            ["ok"], [], Hint.SKIP, id="a node that never repelled the pod does not matter"
        ),
        pytest.param(None, ["ok"], Hint.QUEUE, id="a new node with tolerated taints helps"),
        pytest.param(None, ["a"], Hint.SKIP, id="a new node with an untolerated taint does not"),
    ],
)
def test_node_hint(was, becomes, expected):
    def node(keys):
        built = make_node("n")
        for key in keys:
            built.taint(key)
        return built

    action = Action.ADD if was is None else Action.UPDATE_NODE_TAINT
    pod = make_pod("p").tolerates("ok")
    old = None if was is None else node(was)
    assert hint(make(TaintToleration), Resource.NODE, action, pod, old, node(becomes)) is expected


def test_only_its_own_tolerations_bring_a_pod_back():
    plugin, pod = make(TaintToleration), make_pod("p")
    action = Action.UPDATE_POD_TOLERATION
    assert hint(plugin, Resource.TARGET_POD, action, pod, pod, pod) == "always"
    assert hint(plugin, Resource.ASSIGNED_POD, action, pod, pod, pod) is None


def test_the_signature_lists_tolerations_by_key_and_value():
    pod = make_pod("p").tolerates("b", "2").tolerates("b", "1").tolerates("a")
    fragment = make(TaintToleration).sign_pod(pod.build())
    assert [
        (each["key"], each.get("value", "")) for each in fragment["v1.Pod.Spec.Tolerations"]
    ] == [("a", ""), ("b", "1"), ("b", "2")]


def test_taints_that_appear_later_are_judged_for_a_class_seen_before():
    table = cluster(make_node("n0").taint("a"), make_node("n1"))
    plugin, pod, memo = make(TaintToleration, table), make_pod("p").build(), {}

    def rejected():
        state = CycleState()
        state.class_memo = memo
        return np.flatnonzero(plugin.filter_nodes(state, pod, NodeColumns(table)).codes).tolist()

    assert rejected() == [0]
    table.set_node(make_node("n1").taint("b").build())
    assert rejected() == [0, 1]
