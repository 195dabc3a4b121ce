"""Fixes: what is suggested for single rejections, and a brute-force twin that finds none wrong and
none smaller.

The twin tries every set of the changes in the search space, each on a scheduler filled anew with
the changed objects.
"""

from __future__ import annotations

import json
import shlex
from copy import deepcopy
from itertools import combinations
from random import Random

import msgspec
import pytest
from explaining import HEADER, explain, state_of

from kubesched.api.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.config.load import load
from kubesched.framework import FilterPlugin, PreEnqueuePlugin, Verdicts, unschedulable
from kubesched.insight.explain.evaluation import evaluate
from kubesched.insight.explain.fixes import pod_edits
from kubesched.insight.explain.fixes.changes import (
    NodeAddition,
    NodeEdit,
    ObjectChange,
    PodDeletion,
    PodEdit,
    edited,
)
from kubesched.insight.explain.fixes.commands import commands_for
from kubesched.insight.explain.fixes.conditions import may_be_deleted
from kubesched.insight.explain.fixes.search import FixSearch, Proposal, changes_for_entry
from kubesched.insight.explain.model import Verdict
from kubesched.insight.explain.selection import no_node
from kubesched.insight.explain.sources import explainer_of
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.plugins.registry import in_tree_registry
from kubesched.testing import make_node, make_pod

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REGISTRY = in_tree_registry()


class Racks(FilterPlugin):
    """Stands for a plugin of a third party."""

    name = "Racks"

    def filter_nodes(self, state, pod, nodes):
        return Verdicts.reject(nodes.label_ids("rack") < 0, unschedulable("node(s) had no rack"))


REGISTRY.register("Racks", lambda: Racks)
RACKS = "profiles: [{plugins: {multiPoint: {enabled: [{name: Racks}]}}}]"
RACKS_CONFIG = load((HEADER + RACKS).encode())


def bound_claim(name, zone):
    """A claim and the volume that it is bound to, which only a zone can reach."""
    labels = {"topology.kubernetes.io/zone": zone}
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name}
    volume = {
        "metadata": {"name": f"pv-{name}", "labels": labels},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {**reference, "uid": f"uid-{name}"},
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
                    ]
                }
            },
        },
    }
    claim = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {"volumeName": f"pv-{name}", "accessModes": ["ReadWriteOnce"]},
        "status": {"phase": "Bound"},
    }
    return msgspec.convert(volume, PersistentVolume), msgspec.convert(claim, PersistentVolumeClaim)


def fixes_of(pod, *objects):
    found = explain(pod, *objects, fix=True)
    return [(" and ".join(change.text for change in fix.changes), fix.node) for fix in found.fixes]


def node(name, cpu="4"):
    return make_node(name).capacity(cpu=cpu, memory="8Gi")


def filler(name, on, cpu="3"):
    return make_pod(name).cpu(cpu).on(on)


# -- single rejections -----------------------------------------------------------------------------


def test_a_smaller_request_a_pod_that_leaves_or_a_new_node():
    assert fixes_of(make_pod("a").cpu("2"), node("n"), filler("b", "n")) == [
        ("add a node like n", "n-new-1"),
        ("request cpu 1 instead of 2", "n"),
        ("delete default/b", "n"),
    ]


def test_a_small_cut_of_a_request_comes_before_a_new_node():
    found = fixes_of(make_pod("a").cpu("2"), node("n"), filler("b", "n", cpu="2500m"))
    assert [text for text, _ in found][:2] == [
        "request cpu 1500m instead of 2",
        "add a node like n",
    ]


def test_a_taint_is_tolerated_or_removed():
    assert fixes_of(make_pod("a"), node("n").taint("gpu", "yes")) == [
        ("tolerate gpu=yes:NoSchedule", "n"),
        ("remove taint gpu=yes:NoSchedule from n", "n"),
    ]


def test_taints_that_the_node_controller_manages_are_left_alone():
    found = fixes_of(make_pod("a"), node("n").taint("node.kubernetes.io/not-ready"))
    assert found == [("add a node like n", "n-new-1")]


def test_a_cordoned_node_is_uncordoned_with_its_taint():
    cordoned = node("n").unschedulable().taint("node.kubernetes.io/unschedulable")
    assert fixes_of(make_pod("a"), cordoned)[0] == ("uncordon n", "n")


def test_a_selector_is_dropped_or_the_node_labelled():
    assert fixes_of(make_pod("a").node_selector(disk="ssd"), node("n")) == [
        ("label n disk=ssd", "n"),
        ("drop the selector disk=ssd", "n"),
    ]


@pytest.mark.parametrize("key", [ZONE, HOST, "node-role.kubernetes.io/infra", "x.k8s.io/y"])
def test_labels_that_the_cluster_sets_are_not_suggested(key):
    pod = make_pod("a").node_selector(**{key: "b"})
    assert fixes_of(pod, node("n")) == [(f"drop the selector {key}=b", "n")]


def test_a_label_that_contradicts_another_is_not_suggested():
    pod = make_pod("a").node_selector(disk="ssd")
    assert fixes_of(pod, node("n").label("disk", "hdd")) == [("drop the selector disk=ssd", "n")]


def test_an_expression_of_node_affinity_is_dropped():
    terms = {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [
                    {"key": HOST, "operator": "Exists"},
                    {"key": "disk", "operator": "In", "values": ["ssd"]},
                ]
            }
        ]
    }
    found = fixes_of(make_pod("a").affinity("nodeAffinity", required=terms), node("n"))
    assert found == [("label n disk=ssd", "n"), ("drop the node affinity disk In [ssd]", "n")]


def test_a_host_port_is_dropped_or_its_holder_deleted():
    holder = make_pod("b").host_port(80).on("n")
    assert fixes_of(make_pod("a").host_port(80), node("n"), holder) == [
        ("add a node like n", "n-new-1"),
        ("drop host port 80/TCP", "n"),
        ("delete default/b", "n"),
    ]


def test_anti_affinity_is_dropped_or_the_other_pod_deleted():
    pod = make_pod("a").pod_anti_affinity(HOST, app="x").label("app", "x")
    found = fixes_of(pod, node("n"), make_pod("b").label("app", "x").on("n"))
    assert found == [
        ("add a node like n", "n-new-1"),
        ("drop the pod anti-affinity over kubernetes.io/hostname (term 1)", "n"),
        ("delete default/b", "n"),
    ]


def test_max_skew_is_raised_just_enough():
    pod = make_pod("a").label("app", "x")
    pod.spread(1, HOST, selector={"matchLabels": {"app": "x"}})
    there = [make_pod(f"x{i}").label("app", "x").on("n1") for i in range(3)]
    full = node("n2").taint("node.kubernetes.io/not-ready")
    assert fixes_of(pod, node("n1"), full, *there)[0] == (
        "maxSkew 4 over kubernetes.io/hostname",
        "n1",
    )


def test_conditions_add_up_only_where_no_node_needs_fewer_changes():
    found = fixes_of(
        make_pod("a").cpu("2"),
        node("n1").taint("gpu"),
        node("n2").taint("gpu"),
        filler("b", "n1"),
        filler("c", "n2"),
    )
    assert found[0][0] == "tolerate gpu:NoSchedule and request cpu 1 instead of 2"


def test_a_pod_that_fits_needs_no_fix():
    assert explain(make_pod("a"), node("n"), fix=True).fixes == []


def test_nothing_is_suggested_that_helps_nothing():
    not_ready = node("n").taint("node.kubernetes.io/not-ready")
    assert fixes_of(make_pod("a").cpu("2").claim("missing"), not_ready) == []


# -- gates, claims and plugins of others -----------------------------------------------------------


def test_gates_are_removed_all_of_them_and_the_owner_is_named():
    found = explain(make_pod("a").gate("example.com/quota").gate("other"), node("n"), fix=True)
    (fix,) = found.fixes
    assert [change.text for change in fix.changes] == [
        "remove the scheduling gate example.com/quota",
        "remove the scheduling gate other",
    ]
    assert fix.node == "n"
    assert "is for the controller of example.com to remove" in fix.effects[0]
    assert "is for the controller or webhook that set it to remove" in fix.effects[1]
    removals = (
        '[{"op":"remove","path":"/spec/schedulingGates/1"},'
        '{"op":"remove","path":"/spec/schedulingGates/0"}]'
    )
    assert fix.commands == [f"kubectl patch pod a -n default --type=json -p '{removals}'"]


def test_a_gated_pod_that_would_not_fit_either_needs_both():
    found = fixes_of(make_pod("a").cpu("8").gate("quota"), node("n"))
    assert found == [("remove the scheduling gate quota and request cpu 4 instead of 8", "n")]


def test_the_gate_is_removed_from_the_pod_and_not_from_its_template():
    pod = owned(make_pod("a").gate("quota"), "StatefulSet", "db")
    (fix,) = explain(pod, node("n"), fix=True).fixes
    assert fix.commands[0].startswith("kubectl patch pod a ")
    assert not any("changes every pod" in effect for effect in fix.effects)


def test_a_pod_that_is_being_deleted_needs_no_fix():
    pod = make_pod("a").gate("quota")
    pod.json["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert explain(pod, node("n"), fix=True).fixes == []


def test_nothing_is_suggested_for_a_volume_that_is_out_of_reach():
    objects = [*bound_claim("near", "a"), *bound_claim("far", "b")]
    pod = make_pod("a").claim("near").claim("far")
    found = explain(pod, node("n").zone("a"), *objects, fix=True)
    assert found.fixes == []
    assert any("only nodes with" in told for need in found.volumes for told in need.told)


def test_nothing_is_suggested_for_a_plugin_of_a_third_party():
    built = make_pod("a").build()
    explainer = explainer_of(state_of(built, node("n")), RACKS_CONFIG, registry=REGISTRY)
    assert explainer.explain(built, no_node, fix=True).fixes == []


def test_nothing_is_suggested_for_a_plugin_that_keeps_pods_out_of_the_queue():
    class Doorman(PreEnqueuePlugin):
        name = "Doorman"

        def pre_enqueue(self, pod):
            return unschedulable("not today")

    registry = in_tree_registry()
    registry.register("Doorman", lambda: Doorman)
    config = load((HEADER + RACKS.replace("Racks", "Doorman")).encode())
    built = make_pod("a").build()
    explainer = explainer_of(state_of(built, node("n")), config, registry=registry)
    assert explainer.explain(built, no_node, fix=True).fixes == []


# -- commands and effects --------------------------------------------------------------------------


def commands(pod, *objects):
    found = explain(pod, *objects, fix=True)
    return {fix.changes[0].kind: (fix.commands, fix.effects) for fix in found.fixes}


def owned(builder, kind, name):
    reference = {"apiVersion": "v1", "kind": kind, "name": name, "uid": "u", "controller": True}
    builder.json["metadata"]["ownerReferences"] = [reference]
    return builder


def test_commands_for_a_pod_without_owner():
    found = commands(make_pod("a").cpu("2"), node("n"), filler("b", "n"))
    (lower,) = found["LowerRequest"][0]
    assert lower == (
        "kubectl get pod a -n default -o json | kubectl patch --local -f - --type=json -p "
        '\'[{"op":"replace","path":"/spec/containers/0/resources/requests/cpu","value":"1"}]\''
        " -o json | kubectl replace --force -f -"
    )
    assert found["DeletePod"] == (
        ["kubectl delete pod b -n default"],
        ["disruption budgets allow it"],
    )
    assert found["AddNode"] == ([], [])


def test_a_deployment_is_found_without_its_replica_sets():
    pod = owned(make_pod("a").label("pod-template-hash", "7d9c"), "ReplicaSet", "web-7d9c")
    (command,), effects = commands(pod, node("n").taint("gpu"))["AddToleration"]
    assert command.startswith("kubectl patch deployment web -n default ")
    assert effects == ["changes every pod of deployment/web"]


def test_a_pod_is_deleted_once():
    """A claim made anew needs a new pod, and so does an edit of the template: one deletion does."""
    pod = owned(make_pod("a"), "StatefulSet", "db").build()
    again = "kubectl delete pod a -n default"
    claim = ObjectChange("FewerDevices", "", 1.0, "", commands=("kubectl replace claim", again))
    gpu = make_node("n").taint("gpu").build().spec.taints[0]
    first, second, third = commands_for(pod, [claim, pod_edits.add_toleration(pod, gpu)], None)
    assert (first, third) == ("kubectl replace claim", "kubectl delete pod -n default a")
    assert second.startswith("kubectl patch statefulset db ")
    assert commands_for(pod, [claim], None)[-1] == again


def test_the_template_of_the_owner_is_patched():
    found = commands(owned(make_pod("a"), "StatefulSet", "db"), node("n").taint("gpu"))
    (command, then), effects = found["AddToleration"]
    assert then == "kubectl delete pod -n default a"
    assert command == (
        "kubectl patch statefulset db -n default --type=json -p "
        '\'[{"op":"add","path":"/spec/template/spec/tolerations","value":'
        '[{"key":"gpu","operator":"Exists","effect":"NoSchedule"}]}]\''
    )
    assert effects == ["changes every pod of statefulset/db"]


def limited(cpu, **more):
    """A pod whose requests are all limits, too, of a Deployment."""
    made = owned(make_pod("a").cpu(cpu), "ReplicaSet", "web-7d9c").label(
        "pod-template-hash", "7d9c"
    )
    resources = made.json["spec"]["containers"][0]["resources"]
    resources["requests"] |= more
    resources["limits"] = dict(resources["requests"])
    return made


def patch_in(command):
    return json.loads(shlex.split(command)[shlex.split(command).index("-p") + 1])


def test_a_template_that_has_only_limits_gets_requests():
    """The API server makes a pod's requests from its limits; the template's stay as written."""
    (command,), _ = commands(limited("6", memory="1Gi"), node("n"))["LowerRequest"]
    place = "/spec/template/spec/containers/0/resources/requests"
    requests = {"cpu": "4", "memory": "1Gi"}
    assert patch_in(command) == [{"op": "add", "path": place, "value": requests}]


def test_two_requests_of_a_template_are_lowered_at_once():
    (command,), _ = commands(limited("6", memory="16Gi"), node("n"))["LowerRequest"]
    ((operation),) = patch_in(command)
    assert operation["value"] == {"cpu": "4", "memory": "8Gi"}


@pytest.mark.parametrize("resource", ["example.com/gpu", "hugepages-2Mi"])
def test_the_limit_of_what_cannot_be_overcommitted_follows_the_request(resource):
    pod = limited("1", **{resource: "8Mi"})
    made = make_node("n").capacity(**{"cpu": "4", "memory": "8Gi", resource: "4Mi"})
    (command,), _ = commands(pod, made)["LowerRequest"]
    limits, requests = patch_in(command)
    assert limits["path"] == requests["path"].replace("requests", "limits")
    assert limits["value"] == requests["value"]
    assert limits["value"][resource] != "8Mi"


def test_requests_of_a_pod_and_of_its_containers_are_lowered_together():
    pod = make_pod("a").cpu("6")
    pod.json["spec"]["resources"] = {"requests": {"cpu": "7"}}
    (command,), _ = commands(pod, node("n"))["LowerRequest"]
    assert patch_in(command) == [
        {"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "4"},
        {"op": "replace", "path": "/spec/resources/requests/cpu", "value": "4"},
    ]


def test_a_port_of_a_pod_on_the_host_network_stays_a_host_port():
    """The API server would set it again, so that a template would not even change."""
    pod = make_pod("a").host_port(80)
    taken = filler("b", "n", cpu="0").host_port(80)
    assert "DropHostPort" in commands(pod, node("n"), taken)
    pod.json["spec"]["hostNetwork"] = True
    assert "DropHostPort" not in commands(pod, node("n"), taken)


def spread_twice(*more, **fields):
    """A pod that no zone may take."""
    selector = {"matchLabels": {"app": "x"}}
    hard = {"topologyKey": ZONE, "maxSkew": 1, "labelSelector": selector, **fields}
    made = make_pod("a").label("app", "x")
    made.json["spec"]["topologySpreadConstraints"] = [
        {**hard, "whenUnsatisfiable": "DoNotSchedule"},
        *more,
    ]
    return made


def test_a_constraint_that_is_softened_loses_its_min_domains():
    pod = spread_twice(minDomains=2)
    there = filler("b", "n", cpu="1").label("app", "x")
    (command,), _ = commands(pod, node("n").zone("z"), there)["SoftenSpread"]
    path = "/spec/topologySpreadConstraints/0"
    assert patch_in(command) == [
        {"op": "replace", "path": f"{path}/whenUnsatisfiable", "value": "ScheduleAnyway"},
        {"op": "remove", "path": f"{path}/minDomains"},
    ]


def test_a_hard_constraint_beside_a_soft_one_is_dropped():
    """Two constraints with the same key and action are refused."""
    soft = {"topologyKey": ZONE, "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"}
    pod = spread_twice(soft, minDomains=2)
    there = filler("b", "n", cpu="1").label("app", "x")
    (command,), _ = commands(pod, node("n").zone("z"), there)["SoftenSpread"]
    assert patch_in(command) == [{"op": "remove", "path": "/spec/topologySpreadConstraints/0"}]


def test_node_affinity_of_which_nothing_would_be_left_is_dropped():
    expressions = [{"key": key, "operator": "Exists"} for key in ("x", "y")]
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    pod = make_pod("a")
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    pod.json["spec"]["affinity"] = {"nodeAffinity": required}
    assert ("drop the required node affinity", "n") in fixes_of(pod, node("n"))


def test_names_are_quoted_for_the_shell():
    found = commands(make_pod("a"), node("n").taint("gpu", "x y"))
    assert found["RemoveTaint"][0] == ["kubectl taint node n 'gpu=x y:NoSchedule-'"]


def test_the_effect_on_disruption_budgets_is_told():
    budget = msgspec.convert(
        {
            "metadata": {"name": "b", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "x"}}},
            "status": {"disruptionsAllowed": 0},
        },
        PodDisruptionBudget,
    )
    found = commands(make_pod("a").cpu("2"), node("n"), filler("b", "n").label("app", "x"), budget)
    assert found["DeletePod"][1] == ["violates the disruption budget of default/b"]


def test_pods_of_daemon_sets_are_not_suggested():
    found = commands(make_pod("a").cpu("2"), node("n"), owned(filler("b", "n"), "DaemonSet", "d"))
    assert "DeletePod" not in found


# -- the twin --------------------------------------------------------------------------------------

LARGEST = 3


def changed(state: ClusterState, pod: Pod, changes) -> tuple[ClusterState, Pod]:
    """The objects after the changes, as an API server would hold them."""
    state = deepcopy(state)
    for change in changes:
        if isinstance(change, PodDeletion):
            meta = change.pod.metadata
            assert state.remove(Pod, meta.namespace, meta.name)
        elif isinstance(change, NodeEdit):
            state.put(change.applied(state.get(Node, "", change.node_name)))
        elif isinstance(change, NodeAddition):
            state.put(change.node)
    pod = edited(pod, [each for each in changes if isinstance(each, PodEdit)])
    state.put(pod)
    return state, pod


def feasible_after(state: ClusterState, pod: Pod, changes) -> set[str]:
    """Nodes that take the pod after the changes; none while something keeps it out of the queue."""
    state, pod = changed(state, pod, changes)
    found = explainer_of(state, RACKS_CONFIG, registry=REGISTRY).explain(pod)
    if found.verdict is Verdict.WAITING:
        return set()
    return {row.node for row in found.matrix if row.feasible}


def random_cluster(random: Random) -> tuple[ClusterState, Pod]:
    objects = []
    for i in range(random.randint(1, 3)):
        made = node(f"n{i}", cpu=str(random.randint(2, 4))).zone(random.choice("ab"))
        if random.random() < 0.4:
            made.taint(random.choice(["gpu", "spot"]), random.choice(["", "x"]))
        if random.random() < 0.2:
            made.unschedulable()
        if random.random() < 0.3:
            made.label("disk", "ssd")
        if random.random() < 0.7:
            made.label("rack", "r")
        objects.append(made)
        for j in range(random.randint(0, 3)):
            there = filler(f"p{i}-{j}", f"n{i}", cpu=str(random.randint(0, 2)))
            there.label("app", random.choice("xy"))
            if random.random() < 0.3:
                there.host_port(80)
            objects.append(there)
    pod = make_pod("a").cpu(str(random.randint(1, 5))).label("app", "x")
    for claim in ("one", "two"):
        if random.random() < 0.25:
            pod.claim(claim)
            objects += bound_claim(claim, random.choice("abc")) if random.random() < 0.8 else ()
    if random.random() < 0.2:
        pod.gate("quota")
    if random.random() < 0.3:
        pod.host_port(80)
    if random.random() < 0.3:
        pod.node_selector(disk="ssd")
    if random.random() < 0.3:
        pod.pod_anti_affinity(random.choice([HOST, ZONE]), app=random.choice("xy"))
    if random.random() < 0.3:
        selector = {"matchLabels": {"app": "x"}}
        pod.spread(1, random.choice([HOST, ZONE]), selector=selector)
    built = pod.build()
    return state_of(built, *objects), built


def search_space(state: ClusterState, pod: Pod):
    """For every node, the single changes that fixes for it are made of."""
    explainer = explainer_of(state, RACKS_CONFIG, registry=REGISTRY)
    framework = explainer.assembly.frameworks["default-scheduler"]
    with explainer.as_pending(pod) as info:
        search = FixSearch(framework, evaluate(framework, info))
        table = explainer.assembly.table
        for row in search.rows():
            alternatives = [c for each in search.conditions(row) for c in each.alternatives]
            pods = filter(may_be_deleted, table.pods[row].values())
            changes = {c.key: c for c in (*alternatives, *map(search._deletion, pods))}
            yield table.names[row], list(changes.values())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_no_fix_is_wrong_and_none_smaller_exists(seed):
    state, pod = random_cluster(Random(f"fixes {seed}"))
    explainer = explainer_of(state, RACKS_CONFIG, registry=REGISTRY)
    found = explainer.explain(pod, no_node, fix=True)
    if found.verdict not in (Verdict.NOT_NOW, Verdict.NEVER, Verdict.WAITING):
        assert found.fixes == []
        return
    framework = explainer.assembly.frameworks["default-scheduler"]
    before = changes_for_entry(framework, pod)
    with explainer.as_pending(pod) as info:
        search = FixSearch(framework, evaluate(framework, info), before)
        verified = list(search.verified())
    for tried in verified:
        proposal, others = tried.proposal, tried.other_nodes
        changes = (*before, *proposal.changes)
        feasible = feasible_after(state, pod, changes)
        assert proposal.node_name in feasible, "a fix that does not help"
        assert others == len(feasible) - 1
        for size in range(len(changes)):
            for fewer in combinations(changes, size):
                assert not feasible_after(state, pod, fewer), "a part of the fix is enough"
    cheapest = cheapest_by_force(state, pod, before)
    without_new_nodes = [
        tried.proposal
        for tried in verified
        if not any(isinstance(c, NodeAddition) for c in tried.proposal.changes)
    ]
    if cheapest is not None:
        assert min(proposal.cost for proposal in without_new_nodes) == cheapest
    else:
        assert all(len(proposal.changes) > LARGEST for proposal in without_new_nodes)
    explainer.assembly.scheduler.check_invariants()
    assert explainer.explain(pod, no_node, fix=True) == found, "trials are put back"


def cheapest_by_force(state: ClusterState, pod: Pod, before) -> float | None:
    """The cost of the cheapest set besides what is needed in any case."""
    sets = [
        Proposal(chosen, name)
        for name, changes in search_space(state, pod)
        for size in range(LARGEST + 1)
        for chosen in combinations(changes, size)
    ]
    for proposal in sorted(sets, key=lambda proposal: proposal.order):
        if proposal.node_name in feasible_after(state, pod, (*before, *proposal.changes)):
            return proposal.cost
    return None
