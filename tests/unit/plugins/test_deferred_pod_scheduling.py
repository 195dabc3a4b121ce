"""DeferredPodScheduling, and how NodeResourcesFit counts a bound pod that is to be resized."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import cluster, hint, make, verdict

from kubesched.base.errors import ConfigError
from kubesched.config.features import DEFAULT_GATES, defaults, from_map
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import Action, Hint, Resource
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import SKIP, Code
from kubesched.plugins.deferred_pod_scheduling import DeferredPodScheduling
from kubesched.plugins.node_resources.fit import NodeResourcesFit
from kubesched.testing import Cluster, make_node, make_pod

GATES = from_map({"InPlacePodVerticalScalingSchedulerPreemption": True})
GPU = "example.com/gpu"


def node(name="n", *, disables=()):
    policy = {"disableResizePreemption": list(disables)}
    made = make_node(name).capacity(cpu="2", memory="8Gi", pods="9")
    return made.spec(podPreemptionPolicy=policy)


def deferred(reason="Deferred", node_name="n"):
    pending = {"type": "PodResizePending", "status": "True", "reason": reason}
    return make_pod("p").uid("p").on(node_name).cpu("1").status(conditions=[pending])


@pytest.mark.parametrize(
    ("asked", "name", "reason"),
    [
        (node(), "n", None),
        (node(), "m", "pod assigned to different node"),
        (node(disables=["x"]), "n", "node had resize preemption disabled"),
        (node(disables=["x"]), "m", "pod assigned to different node"),
        (node(disables=["x"]), "", "node had resize preemption disabled"),
    ],
)
def test_its_node_must_allow_preemption(asked, name, reason):
    table = cluster(asked)
    plugin = make(DeferredPodScheduling, table, gates=GATES)
    told = verdict(plugin, deferred(node_name=name), table)
    if reason is None:
        assert told is None
    else:
        assert (told.code, told.reasons) == (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,))


@pytest.mark.parametrize(
    ("pod", "gates"),
    [(make_pod("p"), GATES), (deferred("Infeasible"), GATES), (deferred(), DEFAULT_GATES)],
)
def test_other_pods_are_none_of_its_business(pod, gates):
    table = cluster(node(disables=["x"]))
    plugin = make(DeferredPodScheduling, table, gates=gates)
    assert verdict(plugin, pod, table) is SKIP
    assert plugin.filter_nodes(CycleState(), pod.build(), NodeColumns(table)) is None
    assert plugin.permit(CycleState(), pod.build(), "n") is None
    assert plugin.class_fields(pod.build()) is None
    policy = Action.UPDATE_NODE_PREEMPTION_POLICY
    assert hint(plugin, Resource.NODE, policy, pod, node(disables=["x"]), node()) is Hint.SKIP


def test_permit_holds_what_fits():
    told = make(DeferredPodScheduling, gates=GATES).permit(CycleState(), deferred().build(), "n")
    assert told.reasons == ("pod resize fits, waiting for Kubelet actuation",)


@pytest.mark.parametrize(
    ("action", "old", "new", "helps"),
    [
        (Action.ADD, None, node(), True),
        (Action.ADD, None, node("m"), False),
        (Action.ADD, None, node(disables=["x"]), False),
        (Action.UPDATE_NODE_PREEMPTION_POLICY, node(disables=["x"]), node(), True),
        (Action.UPDATE_NODE_PREEMPTION_POLICY, node("m", disables=["x"]), node("m"), False),
        (Action.UPDATE_NODE_PREEMPTION_POLICY, node(), node(), False),
        (Action.UPDATE_NODE_PREEMPTION_POLICY, node(disables="x"), node(disables="y"), False),
    ],
)
def test_its_node_brings_it_back(action, old, new, helps):
    plugin = make(DeferredPodScheduling, gates=GATES)
    told = hint(plugin, Resource.NODE, action, deferred(), old, new)
    assert told is (Hint.QUEUE if helps else Hint.SKIP)


def test_1_36_does_not_know_it():
    config = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {preFilter: {enabled: [{name: DeferredPodScheduling}]}}}]
"""
    with Cluster(config=config):
        pass
    with pytest.raises(ConfigError, match='PreFilterPlugin "DeferredPodScheduling" does not exist'):
        Cluster(config=config, gates=defaults("1.36"))


AMOUNTS = st.integers(0, 4)


@settings(max_examples=200, deadline=None)
@given(
    offered=st.tuples(AMOUNTS, AMOUNTS),
    spec=st.tuples(AMOUNTS, AMOUNTS),
    charged=st.tuples(AMOUNTS, AMOUNTS),
    others=st.tuples(AMOUNTS, AMOUNTS),
    is_placed=st.booleans(),
)
def test_a_resize_is_charged_beyond_what_the_pod_has(offered, spec, charged, others, is_placed):
    """The twin, in plain numbers: memory and a scalar resource."""
    memory, gpus = offered
    table = cluster(
        make_node("n").capacity(memory=str(memory), pods="9").offers(GPU, str(gpus)),
        pods=[
            make_pod("o").uid("o").on("n").memory(str(others[0])).request(GPU, str(others[1])),
            make_pod("p")
            .uid("p" if is_placed else "q")
            .on("n")
            .memory(str(charged[0]))
            .request(GPU, str(charged[1])),
        ],
    )
    pod = make_pod("p").uid("p").on("n").memory(str(spec[0])).request(GPU, str(spec[1]))
    told = verdict(make(NodeResourcesFit, table, gates=GATES), pod, table)
    growth = [max(0, spec[at] - is_placed * charged[at]) for at in (0, 1)]
    left = [offered[at] - others[at] - charged[at] for at in (0, 1)]
    reasons, is_hopeless = [], False
    if spec[0] and growth[0] > left[0]:
        reasons.append("Insufficient memory")
        is_hopeless = spec[0] > memory
    if growth[1] and growth[1] > left[1]:
        reasons.append(f"Insufficient {GPU}")
        is_hopeless |= growth[1] > gpus
    code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if is_hopeless else Code.UNSCHEDULABLE
    assert (None if told is None else (told.code, list(told.reasons))) == (
        (code, reasons) if reasons else None
    )
