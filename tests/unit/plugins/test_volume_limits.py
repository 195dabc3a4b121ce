"""NodeVolumeLimits: the specification's checklist, how volumes are named and counted, hints."""

import pytest
from judging import cluster, hint, make, passes, verdict
from self_checks import check_attached
from storage_objects import (
    EPHEMERAL,
    Built,
    MemoryListers,
    attachment,
    claim,
    csi,
    csi_driver,
    csi_node,
    pod_with,
    storage_class,
    volume,
)

from kubesched.api.storage_v1 import CSINode
from kubesched.config.features import FeatureGates, defaults
from kubesched.config.versions import Versions
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import Action, Hint, Resource
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Code
from kubesched.plugins.helper.volumes.csi_migration import TranslationError
from kubesched.plugins.node_volume_limits import NodeVolumeLimits
from kubesched.testing import make_node, make_pod

DRIVER, EBS_DRIVER = "csi.example.com", "ebs.csi.aws.com"
REASON = ("node(s) exceed max volume count",)
EBS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}


class World:
    """Node n with a CSINode, pods on it, and the plugin."""

    def __init__(self, *objects, limits=None, pods=(), gates=None, node=True):
        self.listers = MemoryListers(*objects)
        if node:
            limits = {DRIVER: 2} if limits is None else limits
            self.listers.put(csi_node("n", limits=limits))
        self.table = cluster(make_node("n"), pods=[pod.on("n") for pod in pods])
        self.plugin = make(NodeVolumeLimits, self.table, listers=self.listers, gates=gates)

    def verdict(self, pod):
        answer = verdict(self.plugin, pod, self.table)
        if "_storage" in vars(self.plugin):
            check_attached(self.plugin._storage.attached)
        return answer

    def fits(self, pod):
        answer = self.verdict(pod)
        if answer is None or answer.code is Code.SKIP:
            return True
        assert (answer.code, answer.reasons) == (Code.UNSCHEDULABLE, REASON)
        return False


def bound(*numbers, driver=DRIVER):
    """Claims c<n> bound to CSI volumes v<n>."""
    return [
        obj
        for n in numbers
        for obj in (claim(f"c{n}", volume=f"v{n}"), volume(f"v{n}", csi=csi(driver, f"h{n}")))
    ]


def user(*claims, name="old"):
    return pod_with(*claims, name=name)


def test_a_node_takes_as_many_volumes_as_its_limit():
    world = World(*bound(1, 2, 3), pods=[user("c1")])
    assert world.fits(pod_with("c2"))
    assert not world.fits(pod_with("c2", "c3"))


def test_a_volume_in_use_on_the_node_needs_no_more_room():
    world = World(*bound(1, 2, 3), limits={DRIVER: 1}, pods=[user("c1"), user("c2", name="old2")])
    assert world.fits(pod_with("c1"))
    assert world.fits(pod_with("c1", "c2"))
    assert not world.fits(pod_with("c1", "c3"))


def test_one_claim_in_two_volumes_counts_once():
    world = World(*bound(1), limits={DRIVER: 1})
    assert world.fits(pod_with("c1", "c1"))


@pytest.mark.parametrize(
    ("attached", "fits"),
    [
        pytest.param(["v1"], True, id="one attachment of two"),
        pytest.param(["v1", "v2"], False, id="two attachments of two"),
        pytest.param(["v1", "v1"], True, id="the same volume twice"),
        pytest.param(["v1", "gone"], True, id="a volume that does not exist"),
        pytest.param(["v1", None], True, id="an inline attachment"),
        pytest.param(["v1", "disk"], True, id="an in-tree volume is never counted"),
    ],
)
def test_attachments_without_pods_count(attached, fits):
    world = World(
        *bound(1, 2, 3),
        volume("disk", **EBS),
        *(attachment(f"a{at}", "n", name) for at, name in enumerate(attached)),
    )
    assert world.fits(pod_with("c3")) is fits


def test_a_volume_attached_and_used_counts_once():
    world = World(*bound(1, 2), attachment("a", "n", "v1"), pods=[user("c1")])
    assert world.fits(pod_with("c2"))


def test_a_new_volume_that_is_attached_but_unused_counts_twice():
    world = World(*bound(1), attachment("a", "n", "v1"), limits={DRIVER: 1})
    assert not world.fits(pod_with("c1"))


def test_attachments_of_other_nodes_and_other_attachers_do_not_count():
    world = World(
        *bound(1, 2, 3),
        attachment("a", "m", "v1"),
        attachment("b", "n", "v2", attacher="other.example.com"),
        attachment("c", "n", "v2", attacher=""),
        limits={DRIVER: 1},
    )
    assert world.fits(pod_with("c3"))


def test_a_driver_without_a_count_is_unlimited():
    world = World(*bound(1, 2, 3), limits={DRIVER: None, "other": 1}, pods=[user("c1", "c2")])
    assert world.fits(pod_with("c3"))


def test_drivers_are_counted_apart():
    world = World(
        *bound(1, 2), *bound(3, driver="other"), limits={DRIVER: 1, "other": 1}, pods=[user("c1")]
    )
    assert not world.fits(pod_with("c2"))
    assert world.fits(pod_with("c3"))
    assert not world.fits(pod_with("c2", "c3"))


def test_unbound_claims_count_through_their_class():
    world = World(claim("c1"), claim("c2"), claim("c3"), storage_class(), pods=[user("c1")])
    assert world.fits(pod_with("c2"))
    assert not world.fits(pod_with("c2", "c3"))


def test_a_pending_claim_of_two_pods_counts_once():
    world = World(claim("c1"), storage_class(), limits={DRIVER: 1}, pods=[user("c1")])
    assert world.fits(pod_with("c1"))


def test_claims_of_one_name_in_two_namespaces_are_two():
    world = World(
        claim("c1"),
        claim("c1", "else"),
        storage_class(),
        limits={DRIVER: 1},
        pods=[pod_with("c1", namespace="else")],
    )
    assert not world.fits(pod_with("c1"))


def test_a_claim_that_names_a_missing_volume_counts_through_its_class():
    world = World(
        claim("c1", volume="gone"),
        *bound(2),
        storage_class(),
        limits={DRIVER: 1},
        pods=[user("c1")],
    )
    assert not world.fits(pod_with("c2"))


@pytest.mark.parametrize(
    "unknown",
    [
        pytest.param(claim("c1", storage_class="gone"), id="its class is missing"),
        pytest.param(claim("c1", storage_class=None), id="it has no class"),
    ],
)
def test_claims_without_volume_and_class_do_not_count(unknown):
    world = World(unknown, *bound(2), limits={DRIVER: 1}, pods=[user("c1")])
    assert world.fits(pod_with("c2"))
    assert World(unknown, limits={DRIVER: 0}).fits(pod_with("c1"))


def test_volumes_without_csi_source_do_not_count():
    world = World(claim("c1", volume="v1"), volume("v1", nfs={"server": "s"}), limits={DRIVER: 0})
    assert world.fits(pod_with("c1"))


def ebs_world(**fields):
    return World(
        claim("tree", volume="tree"),
        volume("tree", **EBS),
        claim("csi", volume="csi"),
        volume("csi", csi=csi(EBS_DRIVER, "vol-1")),
        claim("other", volume="other"),
        volume("other", csi=csi(EBS_DRIVER, "vol-2")),
        claim("pending", storage_class="ebs"),
        storage_class("ebs", provisioner="kubernetes.io/aws-ebs"),
        limits={EBS_DRIVER: 1},
        **fields,
    )


@pytest.mark.parametrize(
    "held", ["tree", EBS, "csi"], ids=["in-tree volume", "inline", "CSI volume"]
)
@pytest.mark.parametrize(
    "wanted", ["tree", EBS, "csi"], ids=["in-tree volume", "inline", "CSI volume"]
)
def test_one_disk_in_all_its_forms_counts_once(held, wanted):
    world = ebs_world(pods=[user(held)])
    assert world.fits(pod_with(wanted))
    assert not world.fits(pod_with("other"))
    assert not world.fits(pod_with("pending"))


def test_migrated_volumes_do_not_need_the_nodes_annotation():
    world = ebs_world(pods=[user("tree")])
    assert not world.listers.of(CSINode).get("", "n").metadata.annotations
    assert not world.fits(pod_with("other"))


@pytest.mark.parametrize(
    "source",
    [
        pytest.param({"azureFile": {"shareName": "s"}}, id="Azure file"),
        pytest.param({"vsphereVolume": {"volumePath": "p"}}, id="vSphere"),
    ],
)
def test_plugins_outside_the_schedulers_list_do_not_count(source):
    drivers = {"file.csi.azure.com": 0, "csi.vsphere.vmware.com": 0}
    assert World(limits=drivers).fits(pod_with(source))


def test_a_node_without_csi_node_takes_anything():
    assert World(*bound(1, 2, 3), node=False).fits(pod_with("c1", "c2", "c3"))
    assert World(node=False).fits(pod_with({"azureDisk": {"diskURI": "d", "kind": "Dedicated"}}))


def test_a_node_without_limits_takes_anything():
    assert World(*bound(1), limits={}).fits(pod_with("c1"))


def test_pods_without_attachable_volumes_are_skipped():
    world = World()
    sources = (
        {"secret": {"secretName": "s"}},
        {"configMap": {"name": "c"}},
        {"csi": {"driver": DRIVER}},
    )
    for pod in (make_pod("p"), pod_with(*sources)):
        assert world.verdict(pod).code is Code.SKIP
    state, nodes = CycleState(), NodeColumns(world.table)
    assert world.plugin.filter_nodes(state, make_pod("p").build(), nodes) is None


# -- what cannot be counted ------------------------------------------------------------------------


def test_a_missing_claim_turns_the_pod_away():
    answer = World().verdict(pod_with("c"))
    assert answer.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert answer.message == 'looking up PVC default/c: persistentvolumeclaim "c" not found'


def test_a_missing_ephemeral_claim_turns_the_pod_away():
    answer = World().verdict(pod_with(EPHEMERAL))
    assert answer.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert answer.message == 'looking up PVC default/p-v0: persistentvolumeclaim "p-v0" not found'


@pytest.mark.parametrize(
    ("pod", "objects", "text"),
    [
        pytest.param(pod_with(""), [], "PersistentVolumeClaim had no name", id="no name"),
        pytest.param(
            pod_with(EPHEMERAL),
            [claim("p-v0", owner="stranger")],
            "PVC default/p-v0 was not created for pod default/p (pod is not owner)",
            id="another pod's ephemeral claim",
        ),
        pytest.param(
            pod_with({"azureDisk": {"diskURI": "d", "kind": "Dedicated"}}),
            [],
            "converting volume(v0) from inline to csi: kind(Dedicated) is not supported in csi "
            "migration",
            id="an inline disk that cannot be translated",
        ),
    ],
)
def test_some_problems_are_errors(pod, objects, text):
    answer = World(*objects).verdict(pod)
    assert (answer.code, answer.message) == (Code.ERROR, text)


@pytest.mark.parametrize(
    ("holder", "objects", "text"),
    [
        pytest.param(
            pod_with(EPHEMERAL, name="old"),
            [claim("old-v0", owner="stranger")],
            "PVC default/old-v0 was not created for pod default/old (pod is not owner)",
            id="a pod whose ephemeral claim is not its own",
        ),
        pytest.param(
            pod_with("", name="old"),
            [],
            "PersistentVolumeClaim had no name",
            id="a claim without a name",
        ),
    ],
)
def test_trouble_with_a_pod_on_the_node_is_an_error_where_there_are_limits(holder, objects, text):
    world = World(*bound(1), *objects, pods=[holder])
    answer = world.verdict(pod_with("c1"))
    assert (answer.code, answer.message) == (Code.ERROR, text)
    assert World(*bound(1), *objects, limits={}, pods=[holder]).fits(pod_with("c1"))
    world.table.remove_pod(next(iter(world.table.pods[0].values())), "n")
    assert world.fits(pod_with("c1"))


def test_trouble_with_an_ephemeral_claim_ends_when_the_claim_does():
    world = World(
        *bound(1), claim("old-v0", owner="stranger"), pods=[pod_with(EPHEMERAL, name="old")]
    )
    assert world.verdict(pod_with("c1")).code is Code.ERROR
    world.listers.remove(claim("old-v0"))
    assert world.fits(pod_with("c1"))
    (holder,) = world.table.pods[0]
    world.listers.put(claim("old-v0", owner=holder))
    assert world.fits(pod_with("c1"))
    world.listers.put(claim("old-v0", owner="stranger"))
    assert world.verdict(pod_with("c1")).code is Code.ERROR


def test_a_missing_claim_of_a_pod_on_the_node_is_not_counted():
    world = World(*bound(1), limits={DRIVER: 1}, pods=[user("gone")])
    assert world.fits(pod_with("c1"))


# -- following changes -----------------------------------------------------------------------------


def test_counts_follow_claims_volumes_classes_and_attachments():
    world = World(*bound(9), claim("c1"), limits={DRIVER: 1}, pods=[user("c1")])
    pod = pod_with("c9")
    assert world.fits(pod)  # the class of c1 is not known yet
    world.listers.put(storage_class())
    assert not world.fits(pod)
    world.listers.put(claim("c1", volume="v1"))
    assert not world.fits(pod)  # still counted through its class
    world.listers.put(volume("v1", nfs={"server": "s"}))
    assert world.fits(pod)
    world.listers.put(volume("v1", csi=csi(handle="h1")))
    assert not world.fits(pod)
    world.listers.put(volume("v1", csi=csi(handle="h9")))
    assert world.fits(pod)  # it is the very volume
    world.listers.remove(claim("c1"))
    assert world.fits(pod)
    world.listers.put(attachment("a", "n", "v1"))
    assert not world.fits(pod)
    world.listers.remove(volume("v1"))
    assert world.fits(pod)
    world.listers.put(volume("v1", csi=csi(handle="h1")))
    assert not world.fits(pod)
    world.listers.remove(attachment("a", "n", "v1"))
    assert world.fits(pod)


def test_counts_follow_pods_and_nodes():
    world = World(*bound(1, 2, 3), limits={DRIVER: 1})
    pod = pod_with("c3")
    assert world.fits(pod)
    first, second = (PodInfo(user("c1", name=f"old{at}").on("n").build()) for at in range(2))
    for info in (first, second):
        world.table.add_pod(info, "n")
    assert not world.fits(pod)
    world.table.remove_pod(first, "n")
    assert not world.fits(pod)
    world.table.remove_pod(second, "n")
    assert world.fits(pod)
    world.table.add_pod(first, "n")
    world.listers.put(attachment("a", "n", "v2"))
    world.table.remove_node("n")
    world.table.set_node(make_node("m").build())
    world.listers.put(csi_node("m", limits={DRIVER: 1}))
    assert world.fits(pod)
    world.table.set_node(make_node("n").build())
    check_attached(world.plugin._storage.attached)
    answer = verdict(world.plugin, pod, world.table, "n")
    assert answer.reasons == REASON


def test_limits_follow_csi_nodes_and_a_growing_table():
    world = World(*bound(1), limits={DRIVER: 0})
    assert not world.fits(pod_with("c1"))
    world.listers.put(csi_node("n", limits={DRIVER: 1}))
    assert world.fits(pod_with("c1"))
    world.listers.remove(csi_node("n"))
    assert world.fits(pod_with("c1"))
    world.listers.put(csi_node("n", limits={DRIVER: 0}))
    for number in range(200):
        world.table.set_node(make_node(f"more{number}").build())
    assert not world.fits(pod_with("c1"))
    assert passes(world.plugin, pod_with("c1"), world.table, "more199")
    world.listers.put(csi_node("more199", limits={DRIVER: 0}))
    assert not passes(world.plugin, pod_with("c1"), world.table, "more199")


def test_pods_removed_and_added_in_thought_are_counted_accordingly():
    world = World(*bound(1, 2, 3), limits={DRIVER: 1}, pods=[user("c1")])
    pod = pod_with("c2").build()
    (holder,) = world.table.pods[0].values()
    nodes = NodeColumns(world.table)
    without = nodes.what_if(0, remove=[holder])
    assert world.plugin.filter_nodes(CycleState(), pod, without) is None
    added = PodInfo(user("c3", name="nominated").build())
    swapped = nodes.what_if(0, remove=[holder], add=[added])
    assert world.plugin.filter_nodes(CycleState(), pod, swapped).codes.tolist() == [1]
    same = nodes.what_if(0, remove=[holder], add=[PodInfo(user("c2", name="same").build())])
    assert world.plugin.filter_nodes(CycleState(), pod, same) is None


def test_closing_stops_listening():
    world = World(*bound(1))
    assert world.fits(pod_with("c1"))
    world.plugin.close()
    world.listers.put(csi_node("n", limits={DRIVER: 0}))
    world.plugin.close()
    assert not world.fits(pod_with("c1"))  # looked at anew


# -- drivers that insist on being installed (gate VolumeLimitScaling) ------------------------------


@pytest.mark.parametrize(
    ("objects", "node", "fits"),
    [
        pytest.param([], False, True, id="an unknown driver insists on nothing"),
        pytest.param([csi_driver()], False, True, id="a driver that does not insist"),
        pytest.param(
            [csi_driver(preventPodSchedulingIfMissing=True)], False, False, id="no CSINode at all"
        ),
        pytest.param([csi_driver(preventPodSchedulingIfMissing=True)], True, True, id="installed"),
    ],
)
def test_a_driver_may_insist_on_being_installed(objects, node, fits):
    world = World(*bound(1), *objects, limits={DRIVER: None}, node=node)
    answer = world.verdict(pod_with("c1"))
    if fits:
        assert answer is None
    else:
        assert answer.code is Code.UNSCHEDULABLE
        assert answer.reasons == (f"{DRIVER} CSI driver is not installed on the node",)
    for gates in (
        FeatureGates(VolumeLimitScaling=False),
        FeatureGates(versions=Versions(emulated="1.36")),  # X2
        defaults("1.36"),
    ):
        relaxed = World(*bound(1), *objects, limits={DRIVER: None}, node=node, gates=gates)
        assert relaxed.verdict(pod_with("c1")) is None


# -- hints -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param({DRIVER: 1}, {DRIVER: 2}, Hint.QUEUE, id="a limit grew"),
        pytest.param({DRIVER: 2}, {DRIVER: 1}, Hint.SKIP, id="a limit shrank"),
        pytest.param({}, {DRIVER: 1}, Hint.QUEUE, id="a driver came"),
        pytest.param({DRIVER: None}, {DRIVER: 1}, Hint.QUEUE, id="a limit appeared"),
        pytest.param({DRIVER: 1}, {DRIVER: None}, Hint.SKIP, id="a limit disappeared"),
        pytest.param({DRIVER: 1}, {DRIVER: 1}, Hint.SKIP, id="nothing changed"),
    ],
)
def test_csi_nodes_bring_pods_back_when_some_limit_grew(old, new, expected):
    plugin, pod = make(NodeVolumeLimits), pod_with("c")
    old, new = Built(csi_node("n", limits=old)), Built(csi_node("n", limits=new))
    assert hint(plugin, Resource.CSI_NODE, Action.UPDATE, pod, old, new) is expected
    assert hint(plugin, Resource.CSI_NODE, Action.ADD, pod) == "always"


@pytest.mark.parametrize(
    ("deleted", "expected"),
    [
        pytest.param(pod_with("x").on("n"), Hint.QUEUE, id="a pod with a claim"),
        pytest.param(pod_with(EPHEMERAL).on("n"), Hint.QUEUE, id="with an ephemeral volume"),
        pytest.param(pod_with(EBS).on("n"), Hint.QUEUE, id="with a migratable disk"),
        pytest.param(pod_with("x").nominated("n"), Hint.QUEUE, id="one that was nominated"),
        pytest.param(pod_with("x"), Hint.SKIP, id="one that was nowhere"),
        pytest.param(pod_with({"emptyDir": {}}).on("n"), Hint.SKIP, id="without such volumes"),
        pytest.param(make_pod("x").on("n"), Hint.SKIP, id="without volumes"),
    ],
)
def test_deleted_pods_bring_others_back_when_they_may_have_had_a_volume(deleted, expected):
    plugin = make(NodeVolumeLimits)
    assert hint(plugin, Resource.ASSIGNED_POD, Action.DELETE, pod_with("c"), deleted) is expected


@pytest.mark.parametrize(
    ("pod", "attacher", "expected"),
    [
        pytest.param(pod_with("c"), "any", Hint.QUEUE, id="a claim may be of any driver"),
        pytest.param(pod_with(EBS), EBS_DRIVER, Hint.QUEUE, id="an inline disk of this driver"),
        pytest.param(pod_with(EBS), "any", Hint.SKIP, id="an inline disk of another"),
        pytest.param(pod_with(EPHEMERAL), "any", Hint.SKIP, id="ephemeral volumes do not count"),
    ],
)
def test_detached_volumes_bring_back_those_who_may_profit(pod, attacher, expected):
    plugin = make(NodeVolumeLimits)
    gone = Built(attachment("a", "n", "v", attacher))
    assert hint(plugin, Resource.VOLUME_ATTACHMENT, Action.DELETE, pod, gone) is expected


def test_a_disk_that_cannot_be_translated_raises_which_counts_as_queue():
    plugin = make(NodeVolumeLimits)
    pod = pod_with({"azureDisk": {"diskURI": "d", "kind": "Dedicated"}})
    gone = Built(attachment("a", "n", "v"))
    with pytest.raises(TranslationError):
        hint(plugin, Resource.VOLUME_ATTACHMENT, Action.DELETE, pod, gone)


def test_claims_that_come_bring_back_their_own_pods():
    plugin, pod = make(NodeVolumeLimits), pod_with("c", EPHEMERAL)
    for made, expected in (
        (claim("c"), Hint.QUEUE),
        (claim("p-v1"), Hint.QUEUE),
        (claim("d"), Hint.SKIP),
        (claim("c", "else"), Hint.SKIP),
    ):
        added = (Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, pod, None, Built(made))
        assert hint(plugin, *added) is expected
