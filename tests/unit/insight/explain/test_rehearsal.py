"""Fixes are tried with the queue as it stands and the whole workload; what they promise is what the
copy showed.
"""

import pytest
from explaining import HEADER, explain, explainer, state_of

from kubesched.api import codec
from kubesched.api.apps_v1 import ControllerSpec, ReplicaSet, StatefulSet
from kubesched.api.core_v1 import PersistentVolumeClaim
from kubesched.api.meta import ObjectMeta, OwnerReference
from kubesched.api.storage_v1 import StorageClass
from kubesched.base.clock import ManualClock
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.load import default_config, load
from kubesched.framework.interfaces import PermitPlugin, Wait
from kubesched.insight.explain import Verdict
from kubesched.insight.explain.fixes import rehearsal
from kubesched.insight.explain.fixes.changes import addition
from kubesched.insight.explain.fixes.rehearsal import Rehearsals
from kubesched.insight.explain.sources import copier, explainer_of
from kubesched.insight.state.replacements import provisioned
from kubesched.plugins.registry import in_tree_registry
from kubesched.testing import make_node, make_pod

HOST = "kubernetes.io/hostname"


def node(name, cpu="4"):
    return make_node(name).capacity(cpu=cpu, memory="32Gi", pods="10").label(HOST, name)


def member(name, of="web", kind="ReplicaSet", cpu="1"):
    made = make_pod(name).cpu(cpu).label("app", of)
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": of, "uid": of, "controller": True}
    made.json["metadata"]["ownerReferences"] = [owner]
    return made


def deployed(name="web"):
    """The ReplicaSet of a Deployment."""
    owner = OwnerReference(kind="Deployment", name=name, uid=f"{name}-d", controller=True)
    return ReplicaSet(metadata=ObjectMeta(name=name, namespace="default", owner_references=[owner]))


def promises(explanation):
    return {
        ", ".join(change.text for change in fix.changes): (fix.places, fix.wanted)
        for fix in explanation.fixes
    }


def test_as_many_nodes_are_added_as_the_workload_needs():
    pods = [member(f"web-{i}", cpu="3") for i in range(3)]
    found = promises(
        explain(pods[0], *pods[1:], node("n"), make_pod("x").cpu("4").on("n"), fix=True)
    )
    assert found["add 3 nodes like n"] == (3, 3)


def test_a_request_is_lowered_so_that_all_replicas_fit():
    pods = [member(f"web-{i}", cpu="3") for i in range(3)]
    found = promises(
        explain(pods[0], *pods[1:], node("n"), make_pod("x").cpu("2").on("n"), fix=True)
    )
    assert found["request cpu 666m instead of 3"] == (3, 3)


def test_max_skew_is_raised_so_that_all_replicas_fit_and_no_further():
    selector = {"matchLabels": {"app": "web"}}
    pods = [member(f"web-{i}").spread(1, HOST, selector=selector) for i in range(4)]
    far = node("far").taint("node.kubernetes.io/not-ready")
    found = promises(explain(pods[0], *pods[1:3], pods[3].on("n"), node("n"), far, fix=True))
    assert found["maxSkew 4 over kubernetes.io/hostname"] == (3, 3)


def test_a_pod_of_higher_priority_takes_the_room_first():
    rival = make_pod("api-7").cpu("3").priority(10)
    pod = make_pod("a").cpu("3")
    explanation = explain(pod, rival, node("n").taint("gpu"), fix=True)
    assert "remove taint gpu:NoSchedule from n" not in promises(explanation)
    (note,) = [note for note in explanation.notes if "remove taint" in note]
    assert note.endswith("default/api-7 would take the room first")


def test_the_next_replica_meets_anti_affinity():
    pods = [member(f"web-{i}", cpu="3").pod_anti_affinity(HOST, app="web") for i in range(2)]
    found = explain(pods[0], pods[1], node("n"), make_pod("x").cpu("2").on("n"), fix=True)
    assert promises(found)["request cpu 2 instead of 3"] == (1, 2)


def test_the_replacement_of_a_deleted_pod_queues_up_behind():
    there = [member("api-0", of="api", cpu="3").on("n")]
    found = explain(make_pod("a").cpu("3"), *there, node("n"), fix=True)
    assert promises(found)["delete default/api-0"] == (1, 1)


def test_deleting_a_sibling_does_not_help():
    pods = [member("web-0", cpu="3").on("n"), member("web-1", cpu="3")]
    assert "delete default/web-0" not in promises(explain(pods[1], pods[0], node("n"), fix=True))


def test_a_stateful_set_makes_its_next_pods_then():
    owner = StatefulSet(
        metadata=ObjectMeta(name="db", namespace="default"), spec=ControllerSpec(replicas=3)
    )
    pod = member("db-0", of="db", kind="StatefulSet")
    found = promises(explain(pod, owner, node("n").taint("gpu"), fix=True))
    assert found["tolerate gpu:NoSchedule"] == (3, 3)


@pytest.mark.parametrize("mode", ["WaitForFirstConsumer", "Immediate"])
def test_the_next_pods_of_a_stateful_set_get_claims_of_their_own(mode):
    owner = StatefulSet(
        metadata=ObjectMeta(name="db", namespace="default"), spec=ControllerSpec(replicas=3)
    )
    storage_class = StorageClass(
        metadata=ObjectMeta(name="fast"), provisioner="csi", volume_binding_mode=mode
    )
    spec = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"]}
    claim = codec.convert(
        {"metadata": {"name": "data-db-0", "namespace": "default"}, "spec": spec},
        PersistentVolumeClaim,
    )
    pod = member("db-0", of="db", kind="StatefulSet").claim("data-db-0")
    objects = [owner, storage_class, *provisioned(claim, storage_class), node("n").taint("gpu")]
    found = promises(explain(pod, *objects, fix=True))
    assert found["tolerate gpu:NoSchedule"] == (3, 3)


def test_pods_that_share_a_claim_stay_in_the_zone_of_its_volume():
    storage_class = StorageClass(
        metadata=ObjectMeta(name="fast"),
        provisioner="csi",
        volume_binding_mode="WaitForFirstConsumer",
    )
    spec = {"storageClassName": "fast", "accessModes": ["ReadWriteMany"]}
    claim = codec.convert(
        {"metadata": {"name": "data", "namespace": "default"}, "spec": spec}, PersistentVolumeClaim
    )
    pods = [member(f"web-{number}", cpu="3").claim("data") for number in range(2)]
    nodes = [node(f"n{zone}").zone(zone).taint("gpu") for zone in "ab"]
    found = promises(explain(pods[0], pods[1], storage_class, claim, *nodes, fix=True))
    assert found["tolerate gpu:NoSchedule"] == (1, 2)


def test_a_stateful_set_does_not_roll_out_while_a_pod_is_pending():
    """The running pod keeps its size until all others run: what it would free is not there."""
    owner = StatefulSet(
        metadata=ObjectMeta(name="db", namespace="default"), spec=ControllerSpec(replicas=3)
    )
    running = member("db-0", of="db", kind="StatefulSet", cpu="3").on("n")
    pending = member("db-1", of="db", kind="StatefulSet", cpu="3")
    found = promises(explain(pending, running, owner, node("n"), fix=True))
    assert found["request cpu 500m instead of 3"] == (2, 2)


def test_a_rollout_that_gets_stuck_is_not_promised():
    """The new pod finds no room beside the old ones, whose anti-affinity refuses it."""
    running = [member(f"web-{i}").pod_anti_affinity(HOST, app="web").on(f"n{i}") for i in range(2)]
    pending = member("web-2").pod_anti_affinity(HOST, app="web")
    found = explain(pending, *running, deployed(), node("n0"), node("n1"), fix=True)
    assert list(promises(found)) == ["add a node like n0"]


def test_a_deployment_rolls_out_over_its_running_pods():
    running = member("web-0", cpu="3").on("n")
    found = promises(explain(member("web-1", cpu="3"), running, deployed(), node("n"), fix=True))
    assert found["request cpu 1 instead of 3"] == (1, 1)


def test_trials_end_at_their_bounds(monkeypatch):
    pod = make_pod("a").cpu("3").build()
    monkeypatch.setattr(rehearsal, "MOST_REHEARSALS", 1)
    found = explainer(pod, node("n"), make_pod("x").cpu("4").on("n")).explain(pod, fix=True)
    assert [fix.places for fix in found.fixes] == [1, None]
    assert any("the bound of trials was met" in note for note in found.notes)


def test_trials_end_when_time_is_up():
    clock, pod, full = ManualClock(), make_pod("a").build(), node("n").build()
    copy = copier(default_config(DEFAULT_GATES), DEFAULT_GATES)
    trials = Rehearsals(copy, state_of(pod, full), pod, clock)
    assert trials.outcome([addition(full)]) is not None
    clock.advance(rehearsal.MOST_SECONDS + 1)
    assert trials.outcome([addition(full)]) is None
    assert trials.is_over


# -- what holds a pod ------------------------------------------------------------------------------


def test_a_misspelt_scheduler_is_named_with_the_nearest_one():
    pod = make_pod("a").scheduler("defualt-scheduler")
    found = explain(pod, node("n"), fix=True)
    assert found.verdict is Verdict.WAITING
    assert "the nearest name that exists is default-scheduler" in found.summary
    text = "schedulerName default-scheduler instead of defualt-scheduler"
    assert promises(found) == {text: (1, 1)}


def test_another_scheduler_that_places_pods_is_not_misspelt():
    placed = make_pod("b").scheduler("batch").on("n")
    found = explain(make_pod("a").scheduler("batch"), placed, node("n"), fix=True)
    assert "the scheduler batch is to place it, as it did with 1 other pods" in found.summary
    assert not found.fixes


class Held(PermitPlugin):
    name = "Held"
    answer = Wait(timeout_s=30.0)

    def permit(self, state, pod, node_name):
        return self.answer


def held_explanation(pod, *objects):
    registry = in_tree_registry()
    registry.register("Held", lambda: Held)
    config = HEADER + "profiles: [{plugins: {permit: {enabled: [{name: Held}]}}}]\n"
    built = pod.build()
    made = explainer_of(state_of(built, *objects), load(config.encode()), registry=registry)
    found = made.explain(built)
    made.assembly.scheduler.check_invariants()
    return found


def test_permit_and_its_plugin_are_named():
    found = held_explanation(make_pod("a"), node("n"))
    assert found.verdict is Verdict.WAITING
    assert "Permit would hold it, with room on n, for at most 30s (Held)" in found.summary


def test_a_pod_that_fits_nowhere_does_not_reach_permit():
    assert held_explanation(make_pod("a").cpu("9"), node("n")).verdict is Verdict.NEVER


@pytest.mark.parametrize(("cpu", "helps"), [("64", False), ("3", True)])
def test_pods_leaving_help_only_where_the_node_is_large_enough(cpu, helps):
    found = explain(make_pod("a").cpu(cpu), node("n"), make_pod("x").cpu("2").on("n"))
    assert ("pods leaving" in found.reasons[0].remedy) is helps
