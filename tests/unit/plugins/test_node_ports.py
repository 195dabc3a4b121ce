"""NodePorts: the specification's checklist on host ports."""

import pytest
from judging import cluster, hint, make, verdict

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import Action, Hint, Resource
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Code
from kubesched.plugins.node_ports import NodePorts
from kubesched.testing import make_node, make_pod


def with_ports(name, *ports):
    """Ports as `protocol/ip/port`."""
    pod = make_pod(name)
    for port in ports:
        protocol, ip, number = port.split("/")
        pod.host_port(int(number), protocol, ip)
    return pod


def port(number):
    return {"ports": [{"containerPort": number, "hostPort": number}]}


@pytest.mark.parametrize(
    ("pod", "is_skipped"),
    [
        pytest.param(make_pod("p"), True, id="a pod without host ports"),
        pytest.param(with_ports("p", "TCP//0"), True, id="host port 0 is none"),
        pytest.param(
            make_pod("p").init_container(**port(80)),
            True,
            id="an ordinary init container gives its port back",
        ),
        pytest.param(
            make_pod("p").init_container(restartPolicy="Always", **port(80)),
            False,
            id="a sidecar keeps its port",
        ),
    ],
)
def test_pods_without_lasting_ports_are_skipped(pod, is_skipped):
    table = cluster(make_node("n"))
    answer = make(NodePorts, table).pre_filter(CycleState(), pod.build(), NodeColumns(table))
    assert (answer is not None and answer.code is Code.SKIP) is is_skipped


@pytest.mark.parametrize(
    ("wanted", "used", "fits"),
    [
        pytest.param(
            ["UDP/127.0.0.1/80"], ["TCP/127.0.0.1/80"], True, id="protocols have ports of their own"
        ),
        pytest.param(
            ["TCP/127.0.0.1/80"],
            ["TCP/127.0.0.1/80"],
            False,
            id="the same address, protocol and port",
        ),
        pytest.param(
            ["TCP/127.0.0.1/80"], ["TCP/127.0.0.2/80"], True, id="addresses have ports of their own"
        ),
        pytest.param(
            ["TCP/0.0.0.0/80"], ["TCP/10.0.0.1/80"], False, id="every address includes a taken one"
        ),
        pytest.param(
            ["TCP/10.0.0.1/80"],
            ["TCP/0.0.0.0/80"],
            False,
            id="a port taken on every address is taken on each",
        ),
        pytest.param(["TCP/0.0.0.0/80"], ["UDP/10.0.0.1/80"], True, id="not with another protocol"),
        pytest.param(
            ["TCP//1", "TCP//2"], ["TCP//2"], False, id="the second wanted port counts too"
        ),
        pytest.param(["TCP//80"], ["TCP/0.0.0.0/80"], False, id="no address means every address"),
        pytest.param(["//80"], ["TCP//80"], False, id="no protocol means TCP"),
        pytest.param(
            ["TCP/::/80"],
            ["TCP/10.0.0.1/80"],
            True,
            id="the IPv6 wildcard is an address like any other",
        ),
        pytest.param(["TCP//80", "TCP//80"], [], True, id="a pod does not conflict with itself"),
    ],
)
def test_conflicts(wanted, used, fits):
    table = cluster(make_node("n"), pods=[with_ports("other", *used).on("n")] if used else [])
    answer = verdict(make(NodePorts, table), with_ports("p", *wanted), table)
    if fits:
        assert answer is None
    else:
        assert answer.code is Code.UNSCHEDULABLE
        assert answer.reasons == ("node(s) didn't have free ports for the requested pod ports",)


def test_a_port_shared_by_two_pods_is_free_when_the_first_leaves():
    table = cluster(
        make_node("n"), pods=[with_ports(name, "TCP//80").on("n") for name in ("a", "b")]
    )
    leaving = next(iter(table.pods[0].values()))
    table.remove_pod(leaving, "n")
    assert verdict(make(NodePorts, table), with_ports("p", "TCP//80"), table) is None


def test_filtering_without_prepared_state_is_an_error():
    table = cluster(make_node("n"))
    pod = with_ports("p", "TCP//80").build()
    answer = make(NodePorts, table).filter_nodes(CycleState(), pod, NodeColumns(table))
    assert answer.code is Code.ERROR
    assert answer.message == 'reading "PreFilterNodePorts" from cycleState: not found'


@pytest.mark.parametrize(
    ("deleted", "expected"),
    [
        pytest.param(with_ports("d", "TCP//80"), Hint.SKIP, id="a pod that was nowhere"),
        pytest.param(make_pod("d").on("n"), Hint.SKIP, id="a pod without ports"),
        pytest.param(with_ports("d", "TCP//81").on("n"), Hint.SKIP, id="a pod with another port"),
        pytest.param(
            with_ports("d", "TCP//80").on("n"), Hint.QUEUE, id="a pod with the wanted port"
        ),
        pytest.param(
            with_ports("d", "TCP//80").nominated("n"),
            Hint.QUEUE,
            id="a pod that was about to take the port",
        ),
    ],
)
def test_deletion_hint(deleted, expected):
    pod = with_ports("p", "TCP//80")
    event = (Resource.ASSIGNED_POD, Action.DELETE)
    assert hint(make(NodePorts), *event, pod, deleted, None) is expected


def test_a_new_node_always_has_free_ports():
    assert hint(make(NodePorts), Resource.NODE, Action.ADD, make_pod("p")) == "always"


def test_the_signature_holds_port_numbers_of_all_containers():
    pod = with_ports("p", "TCP/10.0.0.1/443", "UDP//80", "TCP//80").init_container(**port(9))
    assert make(NodePorts).sign_pod(pod.build()) == {"v1.Pod.Spec.HostPorts()": [9, 80, 443]}
