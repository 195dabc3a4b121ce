"""Verdicts, and what comes with each of them.

That reasons and scores are kube-scheduler's is proved in tests/conformance.
"""

from __future__ import annotations

import numpy as np
import pytest
from explaining import HEADER, explain, explainer, state_of

from kubesched.api.core_v1 import Pod
from kubesched.config.load import load
from kubesched.framework.interfaces import FilterPlugin, ScorePlugin
from kubesched.framework.status import error_status, unschedulable
from kubesched.framework.verdicts import Verdicts
from kubesched.insight.explain.model import Verdict
from kubesched.insight.explain.sources import explainer_of
from kubesched.insight.state.memory import in_memory_scheduler
from kubesched.plugins.node_ports import NodePorts
from kubesched.plugins.registry import in_tree_registry
from kubesched.scheduler.scheduler import FINISHED
from kubesched.testing import make_node, make_pod

SMALL = {"cpu": "4", "memory": "8Gi"}


def node(name: str, **amounts: str):
    return make_node(name).capacity(**(amounts or SMALL))


def test_a_pod_that_some_node_takes_fits():
    found = explain(
        make_pod("a").cpu("2"), node("full"), node("free"), make_pod("b").cpu("3").on("full")
    )
    assert found.verdict is Verdict.FITS
    assert (found.nodes.total, found.nodes.feasible) == (2, 1)
    assert found.chosen.node == "free"
    assert (found.message, found.woken_by, found.fixes) == ("", [], None)


def test_a_pod_that_fits_once_others_leave_is_not_now():
    found = explain(make_pod("a").cpu("2"), node("full"), make_pod("b").cpu("3").on("full"))
    assert found.verdict is Verdict.NOT_NOW
    assert found.message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert found.condition_reason == "Unschedulable"
    assert [each.plugin for each in found.woken_by] == ["NodeResourcesFit"]
    assert "AssignedPod/Delete" in found.woken_by[0].events


@pytest.mark.parametrize(
    ("pod", "cluster", "verdict"),
    [
        pytest.param(
            make_pod("a").cpu("5"), [node("n")], Verdict.NEVER, id="larger than every node"
        ),
        pytest.param(
            make_pod("a").cpu("5"),
            [node("n"), node("big", cpu="6").taint("gpu")],
            Verdict.NOT_NOW,
            id="a tainted node is large enough",
        ),
        pytest.param(make_pod("a"), [node("n").unschedulable()], Verdict.NOT_NOW, id="cordoned"),
        pytest.param(
            make_pod("a").node_selector(disk="ssd"), [node("n")], Verdict.NEVER, id="no such label"
        ),
        pytest.param(
            make_pod("a").pod_affinity("kubernetes.io/hostname", app="db"),
            [node("n")],
            Verdict.NOT_NOW,
            id="the pod it wants to be near may come",
        ),
        pytest.param(
            make_pod("a").spread(1, "rack", selector={"matchLabels": {}}),
            [node("n")],
            Verdict.NEVER,
            id="no node has the topology label",
        ),
        pytest.param(
            make_pod("a"), [node("n", cpu="4", pods="0")], Verdict.NEVER, id="no place for pods"
        ),
        pytest.param(make_pod("a"), [], Verdict.NOT_NOW, id="there are no nodes"),
    ],
)
def test_never_means_that_even_empty_and_untainted_nodes_reject_it(pod, cluster, verdict):
    assert explain(pod, *cluster).verdict is verdict


def test_every_reason_counts_its_nodes_and_those_without_another():
    found = explain(
        make_pod("a").cpu("3").memory("6Gi"),
        node("both", cpu="2", memory="2Gi"),
        node("cpu", cpu="2", memory="8Gi"),
        node("tainted", cpu="2", memory="8Gi").taint("gpu", "true"),
    )
    counted = {(r.reason, r.detail): (r.nodes, r.only_reason) for r in found.reasons}
    assert counted == {
        (
            "Insufficient cpu",
            "wants 3, largest free part is 2, the largest of these nodes offers 2",
        ): (3, 1),
        (
            "Insufficient memory",
            "wants 6Gi, largest free part is 2Gi, the largest of these nodes offers 2Gi",
        ): (1, 0),
        ("node(s) had untolerated taint(s)", "taint gpu=true:NoSchedule"): (1, 0),
    }
    codes = {r.code for r in found.reasons}
    assert codes == {"InsufficientResource", "UntoleratedTaint"}


def test_the_matrix_does_not_stop_at_the_first_rejection():
    found = explain(make_pod("a").cpu("3"), node("n", cpu="2").taint("gpu").unschedulable())
    (row,) = found.matrix
    assert [failure.plugin for failure in row.failures] == [
        "NodeUnschedulable",
        "TaintToleration",
        "NodeResourcesFit",
    ]
    assert found.message.startswith("0/1 nodes are available: 1 node(s) were unschedulable.")


def test_a_gated_pod_waits_and_its_nodes_are_judged_all_the_same():
    found = explain(make_pod("a").gate("quota").gate("net"), node("n"))
    assert found.verdict is Verdict.WAITING
    assert [(w.code, w.names) for w in found.waiting_for] == [("SchedulingGated", ["quota", "net"])]
    assert found.nodes.feasible == 1
    assert found.message == ""


def test_a_missing_claim_is_waited_for_by_name():
    found = explain(make_pod("a").claim("data"), node("n"))
    assert found.verdict is Verdict.WAITING
    assert [(w.code, w.names) for w in found.waiting_for] == [("ObjectMissing", ["data"])]
    assert found.message.startswith(
        '0/1 nodes are available: persistentvolumeclaim "data" not found.'
    )


def test_a_pod_of_another_scheduler_is_not_judged():
    found = explain(make_pod("a").scheduler("other"), node("n"))
    assert found.verdict is Verdict.WAITING
    assert [(w.code, w.names) for w in found.waiting_for] == [("OtherScheduler", ["other"])]
    assert (found.profile, found.matrix) == ("", [])


def test_a_pod_that_is_being_deleted_waits_for_nothing():
    found = explain(make_pod("a").terminating(), node("n"))
    assert [w.code for w in found.waiting_for] == ["BeingDeleted"]


def test_a_placed_pod_is_compared_as_if_it_were_not_there():
    pod = make_pod("a").cpu("3").on("n1")
    found = explain(pod, node("n1"), node("n2"), make_pod("b").cpu("1").on("n2"))
    assert found.verdict is Verdict.PLACED
    assert (found.chosen.node, found.chosen.rank, found.nodes.feasible) == ("n1", 1, 2)
    assert found.chosen.margin > 0
    assert found.chosen.runners_up == ["n2"]


def test_a_plugin_is_decisive_if_another_node_wins_without_it():
    tainted = node("big", cpu="64", memory="64Gi").taint("slow", effect="PreferNoSchedule")
    found = explain(make_pod("a").cpu("3").memory("6Gi"), node("n1"), node("n2"), tainted)
    rows = {row.node: row for row in found.matrix}
    decisive = []
    for plugin in rows["n1"].scores:
        left = {name: row.total - row.scores[plugin].weighted for name, row in rows.items()}
        if max(left.values()) > left[found.chosen.node]:
            decisive.append(plugin)
    assert decisive
    assert found.chosen.decisive == decisive


class Power(ScorePlugin):
    name = "Power"

    def score(self, state, pod, node_info):
        return {"n1": 100, "n2": 60, "n3": 20}[node_info.node.metadata.name]


def test_a_plugin_without_which_others_tie_is_told():
    registry = in_tree_registry()
    registry.register("Power", lambda: Power)
    plugins = "profiles: [{plugins: {score: {enabled: [{name: Power, weight: 10}]}}}]\n"
    pod = make_pod("a").build()
    state = state_of(pod, node("n1"), node("n2"), node("n3"))
    found = explainer_of(state, load((HEADER + plugins).encode()), registry=registry).explain(pod)
    assert (found.chosen.node, found.chosen.tied) == ("n1", 0)
    assert (found.chosen.decisive, found.chosen.tying) == ([], ["Power"])
    without = explain(make_pod("a"), node("n1"), node("n2"), node("n3"))
    assert without.chosen.tied == 2, "the same by asking a scheduler without the plugin"


def test_explaining_a_placed_pod_leaves_the_scheduler_as_it_was():
    pod = make_pod("a").cpu("3").on("n1").build()
    explaining = explainer(pod, node("n1"))
    first = explaining.explain(pod)
    assert explaining.explain(pod) == first
    explaining.assembly.scheduler.check_invariants()


def test_equal_totals_are_counted_as_ties():
    found = explain(make_pod("a"), node("n1"), node("n2"), node("n3"))
    assert found.chosen.tied == 2
    assert found.chosen.margin == 0
    assert [row.rank for row in found.matrix] == [1, 1, 1]


def test_preemption_is_told_with_its_victims_and_nothing_is_evicted():
    objects = [node("n"), make_pod("low").cpu("3").on("n"), make_pod("high").cpu("3").priority(9)]
    state = state_of(*objects)
    explaining = explainer_of(state)
    found = explaining.explain(state.get(Pod, "default", "high"))
    assert found.verdict is Verdict.NOT_NOW
    assert found.preemption.node == "n"
    assert [victim.pod for victim in found.preemption.victims] == ["default/low"]
    assert found.message == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: found a potential placement for pod on node n, preempting 1 victims"
    )
    assert explaining.explain(state.get(Pod, "default", "high")) == found


def test_a_place_held_for_a_nominated_pod_is_not_free():
    found = explain(
        make_pod("a").cpu("3"),
        node("n"),
        make_pod("rival").cpu("2").priority(9).nominated("n"),
    )
    assert found.verdict is Verdict.NOT_NOW
    (failure,) = found.matrix[0].failures
    assert (failure.plugin, failure.with_nominated) == ("NodeResourcesFit", ["default/rival"])


def test_the_nominated_node_is_chosen_first():
    found = explain(make_pod("a").nominated("n2"), node("n1", cpu="64"), node("n2"))
    assert (found.verdict, found.chosen.node) == (Verdict.FITS, "n2")
    assert found.nominated_node == "n2"


def test_a_plugin_with_state_of_its_own_does_not_lead_to_never():
    """An emptied node does not empty what the plugin remembers of it."""

    class Remembering(FilterPlugin):
        name = "Remembering"

        def filter_nodes(self, state, pod, nodes):
            return Verdicts.reject(nodes.alive, unschedulable("taken, as far as is known"))

    registry = in_tree_registry()
    registry.register("Remembering", lambda: Remembering)
    enabled = "profiles: [{plugins: {filter: {enabled: [{name: Remembering}]}}}]"
    config = load((HEADER + enabled).encode())
    for cpu, verdict in (("1", Verdict.NOT_NOW), ("5", Verdict.NEVER)):
        state = state_of(node("n"), make_pod("a").cpu(cpu))
        explained = explainer_of(state, config, registry=registry).explain(state.of(Pod)[0])
        assert explained.verdict is verdict


def test_an_error_of_a_plugin_is_not_a_rejection():
    bad = {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["x"]}]}
        ]
    }
    found = explain(make_pod("a").affinity("nodeAffinity", required=bad), node("n").label("a", "1"))
    assert found.message
    assert found.verdict in (Verdict.NEVER, Verdict.NOT_NOW)


def test_a_plugin_that_fails_on_a_node_still_rejects_others(monkeypatch):
    """The scheduler does not notice the failure if an earlier plugin rejects that node."""

    def filter_nodes(self, state, pod, nodes):
        codes = [{"broken": 1, "closed": 2}.get(nodes.name_at(at), 0) for at in range(len(nodes))]
        numbers = np.array(codes, dtype=np.uint16)
        statuses = [error_status("no answer"), unschedulable("is closed")]
        return Verdicts.numbered(numbers, statuses, numbers == 1)

    monkeypatch.setattr(NodePorts, "filter_nodes", filter_nodes)
    wanted = make_pod("a").host_port(80)
    found = explain(wanted, node("broken").taint("x"), node("closed"), node("fine"))
    reasons = {
        row.node: [f.reasons for f in row.failures if f.plugin == "NodePorts"]
        for row in found.matrix
    }
    assert reasons["closed"] == [["is closed"]]
    assert "no answer" in reasons["broken"][0][0]
    assert [row.node for row in found.matrix if row.feasible] == ["fine"]
    assert found.chosen.node == "fine"


def test_extenders_are_not_asked_and_that_is_said():
    config = """
extenders:
- urlPrefix: http://extender.example
  filterVerb: filter
"""
    found = explain(make_pod("a"), node("n"), config=config)
    assert any("http://extender.example" in note for note in found.notes)


def test_the_message_is_the_one_an_attempt_writes():
    """The same state, tried by the scheduler itself."""
    objects = [
        node("small", cpu="1"),
        node("tainted").taint("gpu"),
        make_pod("a").cpu("2").build(),
    ]
    state = state_of(*objects)
    scheduler = in_memory_scheduler(state).assembly.scheduler
    written = []
    scheduler.failures._put_status = lambda _pod, condition, _nomination: written.append(condition)
    assert scheduler.attempt() is FINISHED
    found = explainer_of(state).explain(state.get(Pod, "default", "a"))
    assert found.message == written[0].message
    assert found.condition_reason == written[0].reason


def test_a_missing_resource_claim_is_waited_for():
    pod = make_pod("a").spec(resourceClaims=[{"name": "gpu", "resourceClaimName": "shared"}])
    found = explain(pod, node("n"))
    assert found.verdict is Verdict.WAITING
    first = found.waiting_for[0]
    assert (first.code, first.names) == ("ObjectMissing", ["default/shared"])
    assert found.message == "", "PreEnqueue keeps it from being tried"
