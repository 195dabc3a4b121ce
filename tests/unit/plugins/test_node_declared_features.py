"""NodeDeclaredFeatures: the specification's checklist on declared features."""

import pytest
from judging import cluster, hint, make, passes, verdict

from kubesched.config.features import FeatureGates
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import Action, Hint, Resource
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Code
from kubesched.plugins.node_declared_features import NodeDeclaredFeatures
from kubesched.testing import make_node, make_pod

OFF = FeatureGates(NodeDeclaredFeatures=False)
USER_NAMESPACES = "UserNamespacesHostNetworkSupport"
RESTART_ALL = "RestartAllContainersOnContainerExits"


def on_host_network(host_users=False):
    return make_pod("p").spec(hostNetwork=True, hostUsers=host_users)


def restarting_all(pod):
    return pod.container(image="x", restartPolicyRules=[{"action": "RestartAllContainers"}])


def mounting():
    mount = {"name": "v", "mountPath": "/v", "bindMountOptions": ["noexec"]}
    return make_pod("p").init_container(image="x", volumeMounts=[{"name": "w"}, mount])


def test_with_the_gate_off_nothing_is_checked():
    table = cluster(make_node("n"))
    plugin = make(NodeDeclaredFeatures, table, gates=OFF)
    assert verdict(plugin, on_host_network(), table).code is Code.SKIP
    answer = plugin.filter_nodes(CycleState(), on_host_network().build(), NodeColumns(table))
    assert answer is None
    assert plugin.events_to_register() == ()


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(make_pod("p"), id="an ordinary pod"),
        pytest.param(make_pod("p").spec(hostNetwork=True), id="host network with users unsaid"),
        pytest.param(on_host_network(host_users=True), id="host network with host users"),
        pytest.param(
            make_pod("p").spec(hostUsers=False), id="a user namespace without host network"
        ),
    ],
)
def test_pods_that_need_no_feature_are_skipped(pod):
    table = cluster(make_node("n"))
    assert verdict(make(NodeDeclaredFeatures, table), pod, table).code is Code.SKIP


@pytest.mark.parametrize(
    ("pod", "declared", "fits"),
    [
        pytest.param(on_host_network(), [USER_NAMESPACES], True, id="the feature is declared"),
        pytest.param(on_host_network(), [], False, id="nothing is declared"),
        pytest.param(on_host_network(), [RESTART_ALL], False, id="another feature is declared"),
        pytest.param(
            on_host_network(),
            [RESTART_ALL, "Unheard", USER_NAMESPACES],
            True,
            id="more than needed is declared, known or not",
        ),
        pytest.param(
            restarting_all(on_host_network()),
            [USER_NAMESPACES],
            False,
            id="one of two needed features is declared",
        ),
        pytest.param(
            restarting_all(on_host_network()),
            [RESTART_ALL, USER_NAMESPACES],
            True,
            id="both needed features are declared",
        ),
        pytest.param(
            make_pod("p").init_container(
                image="x", restartPolicyRules=[{"action": "RestartAllContainers"}]
            ),
            [],
            False,
            id="an init container can need a feature",
        ),
        pytest.param(
            restarting_all(make_pod("p")),
            [USER_NAMESPACES, RESTART_ALL],
            False,
            id="what comes out of order in the list is overlooked",
        ),
        pytest.param(mounting(), ["VolumeBindMountOptions"], True, id="bind mount options"),
        pytest.param(mounting(), [USER_NAMESPACES], False, id="bind mount options are unknown"),
    ],
)
def test_filter(pod, declared, fits):
    table = cluster(make_node("n").declares(*declared))
    plugin = make(NodeDeclaredFeatures, table)
    assert passes(plugin, pod, table) is fits
    if not fits:
        answer = verdict(plugin, pod, table)
        assert answer.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        assert answer.reasons == ("node(s) didn't match Pod's required features",)


def test_filtering_without_prepared_state_is_an_error():
    table = cluster(make_node("n"))
    plugin = make(NodeDeclaredFeatures, table)
    answer = plugin.filter_nodes(CycleState(), on_host_network().build(), NodeColumns(table))
    assert answer.code is Code.ERROR


@pytest.mark.parametrize(
    ("was", "becomes", "expected"),
    [
        pytest.param(None, [], Hint.QUEUE, id="a new node"),
        pytest.param(["A"], ["A"], Hint.SKIP, id="an unchanged list"),
        pytest.param(["A"], ["A", "B"], Hint.QUEUE, id="a longer list"),
        pytest.param(["A", "B"], ["B", "A"], Hint.QUEUE, id="another order"),
    ],
)
def test_node_hint(was, becomes, expected):
    action = Action.ADD if was is None else Action.UPDATE_NODE_DECLARED_FEATURE
    old = None if was is None else make_node("n").declares(*was)
    plugin, new = make(NodeDeclaredFeatures), make_node("n").declares(*becomes)
    assert hint(plugin, Resource.NODE, action, make_pod("p"), old, new) is expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(True, Hint.QUEUE, id="its own requirements changed"),
        pytest.param(False, Hint.SKIP, id="its own requirements stayed"),
    ],
)
def test_pod_hint(changes, expected):
    pod = old = on_host_network()
    new = make_pod("p") if changes else on_host_network()
    event = (Resource.TARGET_POD, Action.UPDATE)
    assert hint(make(NodeDeclaredFeatures), *event, pod, old, new) is expected


def test_the_signature_has_a_bit_per_feature_in_sorted_order():
    plugin = make(NodeDeclaredFeatures)
    fragment = plugin.sign_pod(restarting_all(on_host_network()).build())
    assert fragment == {"v1.Pod.Spec.RequiredFeatures()": "000000110"}
