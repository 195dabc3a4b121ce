"""VolumeRestrictions: the specification's checklist, disks row by row, exclusive claims under
preemption, hints.
"""

import numpy as np
import pytest
from judging import cluster, hint, make, passes, verdict
from storage_objects import EPHEMERAL, Built, MemoryListers, claim, pod_with

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import Action, Hint, Resource
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Code
from kubesched.plugins.volume_restrictions import VolumeRestrictions
from kubesched.testing import make_node, make_pod

DISK = "node(s) had no available disk"
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode"
    " already in-use by another pod"
)


def gce(name="d", **fields):
    return {"gcePersistentDisk": {"pdName": name, **fields}}


def ebs(name="d", **fields):
    return {"awsElasticBlockStore": {"volumeID": name, **fields}}


def iscsi(iqn="d", **fields):
    return {"iscsi": {"iqn": iqn, "targetPortal": "1.2.3.4", **fields}}


def rbd(image="d", pool="p", monitors=("a", "b"), **fields):
    return {"rbd": {"image": image, "pool": pool, "monitors": list(monitors), **fields}}


def world(*holders, objects=(), nodes=("n", "m")):
    """Pods on node n, and a node m without any."""
    pods = [pod_with(*sources, name=f"holder{at}").on("n") for at, sources in enumerate(holders)]
    table = cluster(*(make_node(name) for name in nodes), pods=pods)
    return make(VolumeRestrictions, table, listers=MemoryListers(*objects)), table


@pytest.mark.parametrize(
    ("held", "wanted", "fits"),
    [
        pytest.param(gce(), gce(), False, id="same GCE disk"),
        pytest.param(gce(), gce("e"), True, id="another GCE disk"),
        pytest.param(gce(readOnly=True), gce(readOnly=True), True, id="two readers of a GCE disk"),
        pytest.param(gce(readOnly=True), gce(), False, id="a writer beside a reader"),
        pytest.param(gce(), gce(readOnly=True), False, id="a reader beside a writer"),
        pytest.param(ebs(), ebs(), False, id="same EBS volume"),
        pytest.param(ebs(), ebs("e"), True, id="another EBS volume"),
        pytest.param(
            ebs(readOnly=True), ebs(readOnly=True), False, id="EBS is not even shared by readers"
        ),
        pytest.param(iscsi(), iscsi(), False, id="same iSCSI disk"),
        pytest.param(
            iscsi(), iscsi(targetPortal="4.3.2.1"), False, id="the portal does not matter"
        ),
        pytest.param(iscsi(readOnly=True), iscsi(readOnly=True), True, id="two readers of iSCSI"),
        pytest.param(iscsi(), iscsi("e"), True, id="another iqn"),
        pytest.param(rbd(), rbd(), False, id="same RBD image"),
        pytest.param(rbd(), rbd(monitors=("b", "c")), False, id="one monitor in common is enough"),
        pytest.param(rbd(), rbd(monitors=("c",)), True, id="another Ceph cluster"),
        pytest.param(rbd(), rbd(pool="q"), True, id="another pool"),
        pytest.param(rbd(), rbd("e"), True, id="another image"),
        pytest.param(rbd(readOnly=True), rbd(readOnly=True), True, id="two readers of RBD"),
        pytest.param(gce("d"), ebs("d"), True, id="different kinds never conflict"),
    ],
)
def test_inline_disks(held, wanted, fits):
    plugin, table = world([held])
    answer = verdict(plugin, pod_with(wanted), table, "n")
    if fits:
        assert answer is None
    else:
        assert (answer.code, answer.reasons) == (Code.UNSCHEDULABLE, (DISK,))
    assert verdict(plugin, pod_with(wanted), table, "m") is None


def test_pods_without_relevant_volumes_are_skipped_whatever_others_hold():
    plugin, table = world([gce(), ebs(), rbd()])
    for pod in (make_pod("p"), pod_with({"emptyDir": {}}), pod_with(EPHEMERAL)):
        assert verdict(plugin, pod, table).code is Code.SKIP


def test_disks_are_followed_as_pods_come_and_go():
    plugin, table = world([gce("x")])
    pod = pod_with(gce())
    assert passes(plugin, pod, table, "n")
    holder = PodInfo(pod_with(gce(), name="late").on("n").build())
    table.add_pod(holder, "n")
    assert not passes(plugin, pod, table, "n")
    assert passes(plugin, pod, table, "m")
    table.remove_pod(holder, "n")
    assert passes(plugin, pod, table, "n")
    table.add_pod(holder, "n")
    table.remove_node("n")
    table.set_node(make_node("other").build())
    assert passes(plugin, pod, table, "other")
    table.set_node(make_node("n").build())
    assert not passes(plugin, pod, table, "n")


def test_a_pod_may_mount_its_own_disk_twice_and_leaves_it_behind_once():
    plugin, table = world()
    holder = PodInfo(pod_with(gce(readOnly=True), gce(), name="late").on("n").build())
    table.add_pod(holder, "n")
    assert not passes(plugin, pod_with(gce(readOnly=True)), table, "n")
    table.remove_pod(holder, "n")
    assert passes(plugin, pod_with(gce(readOnly=True)), table, "n")


def exclusive(name, **fields):
    return claim(name, modes=("ReadWriteOncePod",), **fields)


def test_a_missing_claim_turns_the_pod_away():
    plugin, table = world()
    answer = verdict(plugin, pod_with("c"), table)
    assert (answer.code, answer.reasons) == (
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
        ('persistentvolumeclaim "c" not found',),
    )


def test_an_unused_exclusive_claim_does_not_matter():
    plugin, table = world(["other"], objects=[exclusive("c")])
    assert verdict(plugin, pod_with("c"), table).code is Code.SKIP


def test_an_exclusive_claim_in_use_rules_out_every_node():
    plugin, table = world(["c"], objects=[exclusive("c")])
    for name in ("n", "m"):
        answer = verdict(plugin, pod_with("c"), table, name)
        assert (answer.code, answer.reasons) == (Code.UNSCHEDULABLE, (IN_USE,))


def test_an_ordinary_claim_may_be_shared():
    plugin, table = world(["c"], objects=[claim("c")])
    assert verdict(plugin, pod_with("c"), table).code is Code.SKIP


def test_a_taken_disk_is_told_before_a_taken_claim():
    plugin, table = world(["c", gce()], objects=[exclusive("c")])
    pod = pod_with("c", gce())
    assert verdict(plugin, pod, table, "n").reasons == (DISK,)
    assert verdict(plugin, pod, table, "m").reasons == (IN_USE,)


def what_if(plugin, table, pod, removed):
    """The verdict on node n once these pods have left it."""
    built, nodes, state = pod.build(), NodeColumns(table), CycleState()
    assert plugin.pre_filter(state, built, nodes) is None
    clone = state.clone()
    row = table.row_of["n"]
    view = NodeColumns(table, np.array([row]))
    gone = [pod for pod in table.pods[row].values() if pod.name in removed]
    for other in gone:
        assert plugin.remove_pod(clone, built, other, view) is None
        view = view.what_if(0, remove=[other])
    answers = []
    for seen in (clone, state):
        answer = plugin.filter_nodes(seen, built, view)
        answers.append(
            None
            if answer is None
            else answer.describe(int(answer.codes[0]))
            if answer.codes[0]
            else None
        )
    return answers


def test_removing_the_holder_frees_the_claim_in_that_thought_only():
    plugin, table = world(["c"], objects=[exclusive("c")])
    thought, reality = what_if(plugin, table, pod_with("c"), {"holder0"})
    assert thought is None
    assert reality.reasons == (IN_USE,)


def test_two_claims_in_use_need_both_holders_removed():
    plugin, table = world(["c"], ["d"], objects=[exclusive("c"), exclusive("d")])
    pod = pod_with("c", "d")
    assert what_if(plugin, table, pod, {"holder0"})[0].reasons == (IN_USE,)
    assert what_if(plugin, table, pod, {"holder0", "holder1"})[0] is None


def test_adding_a_holder_takes_the_claim_again():
    plugin, table = world(["c"], objects=[exclusive("c")])
    built, nodes, state = pod_with("c").build(), NodeColumns(table), CycleState()
    plugin.pre_filter(state, built, nodes)
    (holder,) = table.pods[0].values()
    plugin.remove_pod(state, built, holder, nodes)
    assert plugin.filter_nodes(state, built, nodes) is None
    plugin.add_pod(state, built, holder, nodes)
    assert plugin.filter_nodes(state, built, nodes) is not None


def test_disks_of_pods_removed_or_added_in_thought_count_accordingly():
    plugin, table = world([gce()])
    assert what_if(plugin, table, pod_with(gce()), {"holder0"})[0] is None
    built, state = pod_with(gce("new")).build(), CycleState()
    nodes = NodeColumns(table)
    plugin.pre_filter(state, built, nodes)
    added = PodInfo(pod_with(gce("new"), name="nominated").build())
    view = nodes.what_if(table.row_of["m"], add=[added])
    assert plugin.filter_nodes(state, built, view).codes.tolist() == [True]


def test_missing_state_is_an_error():
    plugin, table = world()
    nodes = NodeColumns(table)
    answer = plugin.filter_nodes(CycleState(), pod_with(gce()).build(), nodes)
    assert answer.code is Code.ERROR
    assert answer.message == 'cannot read "PreFilterVolumeRestrictions" from cycleState'
    other = PodInfo(make_pod("x").build())
    assert plugin.add_pod(CycleState(), make_pod("p").build(), other, nodes).code is Code.ERROR


@pytest.mark.parametrize(
    ("pod", "deleted", "expected"),
    [
        pytest.param(pod_with(gce()), pod_with(gce()), Hint.QUEUE, id="it had the disk"),
        pytest.param(pod_with(gce()), pod_with(gce("e")), Hint.SKIP, id="it had another disk"),
        pytest.param(
            pod_with(gce()),
            pod_with(gce(), namespace="else"),
            Hint.SKIP,
            id="it had the disk in another namespace",
        ),
        pytest.param(pod_with("c"), pod_with("x", "c"), Hint.QUEUE, id="it used the claim"),
        pytest.param(pod_with("c"), pod_with("d"), Hint.SKIP, id="it used another claim"),
        pytest.param(
            pod_with("c"),
            pod_with("c", namespace="else"),
            Hint.SKIP,
            id="a claim of that name elsewhere",
        ),
    ],
)
def test_deleted_pods_bring_back_those_they_were_in_the_way_of(pod, deleted, expected):
    plugin = make(VolumeRestrictions)
    assert hint(plugin, Resource.ASSIGNED_POD, Action.DELETE, pod, deleted) is expected


def test_other_hints():
    plugin = make(VolumeRestrictions)
    pod = pod_with("c", EPHEMERAL)
    assert hint(plugin, Resource.NODE, Action.ADD, pod) == "always"
    added = [Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, pod, None]
    assert hint(plugin, *added, Built(claim("c"))) is Hint.QUEUE
    assert hint(plugin, *added, Built(claim("p-v1"))) is Hint.SKIP
    assert hint(plugin, *added, Built(claim("c", "else"))) is Hint.SKIP
    assert hint(plugin, Resource.PERSISTENT_VOLUME_CLAIM, Action.UPDATE, pod) is None
