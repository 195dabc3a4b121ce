"""VolumeBinding up to Filter: the specification's checklist on PreFilter, bound claims, matching,
provisioning.
"""

import pytest
from judging import cluster, make, verdict
from storage_objects import (
    EPHEMERAL,
    HOSTNAME,
    SELECTED_NODE,
    ZONE,
    MemoryListers,
    affinity,
    capacity,
    claim,
    csi,
    csi_driver,
    csi_node,
    expression,
    in_zone,
    on_node,
    pod_with,
    storage_class,
    topology,
    volume,
)

from kubesched.base.errors import ConfigError
from kubesched.config.features import FeatureGates
from kubesched.config.plugin_args import VolumeBindingArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Code
from kubesched.plugins.volume_binding import VolumeBinding
from kubesched.testing import make_node, make_pod

UU = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE = "node(s) did not have enough free storage"
MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
NO_PROVISIONER = "kubernetes.io/no-provisioner"


class World:
    """Nodes n1 (zone a) and n2 (zone b), storage, and the plugin."""

    def __init__(self, *objects, nodes=None):
        self.listers = MemoryListers(*objects)
        nodes = nodes or [make_node("n1").zone("a"), make_node("n2").zone("b")]
        self.table = cluster(*nodes)
        self.plugin = make(VolumeBinding, self.table, listers=self.listers)

    def verdict(self, pod, node="n1"):
        return verdict(self.plugin, pod, self.table, node)

    def reasons(self, pod, node="n1"):
        """The reasons against a node; empty when it fits."""
        answer = self.verdict(pod, node)
        if answer is None or answer.code is Code.SKIP:
            return ()
        assert answer.code is UU, answer
        return answer.reasons

    def fitting(self, pod):
        return {name for name in self.table.row_of if not self.reasons(pod, name)}


def static_class():
    return storage_class(provisioner=NO_PROVISIONER)


# -- PreFilter -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(make_pod("p"), id="no volumes"),
        pytest.param(pod_with({"emptyDir": {}}, {"csi": {"driver": "d"}}), id="no claims"),
    ],
)
def test_pods_without_claims_are_skipped_and_still_have_state_for_later_points(pod):
    world, state, built = World(), CycleState(), pod.build()
    nodes = NodeColumns(world.table)
    assert world.plugin.pre_filter(state, built, nodes).code is Code.SKIP
    assert world.plugin.pre_score(state, built, nodes) is None
    assert world.plugin.score_nodes(state, built, nodes) == 0
    assert world.plugin.reserve(state, built, "n1") is None
    assert world.plugin.pre_bind_pre_flight(state, built, "n1").skip
    world.plugin.unreserve(state, built, "n1")


@pytest.mark.parametrize(
    ("pod", "objects", "text"),
    [
        pytest.param(
            pod_with("c"), [], 'persistentvolumeclaim "c" not found', id="a claim that is missing"
        ),
        pytest.param(
            pod_with(EPHEMERAL),
            [],
            'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v0"',
            id="an ephemeral claim that is missing",
        ),
        pytest.param(
            pod_with("c"),
            [claim("c", volume="v", phase="Lost")],
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"',
            id="a lost claim",
        ),
        pytest.param(
            pod_with("c"),
            [claim("c", deleting=True)],
            'persistentvolumeclaim "c" is being deleted',
            id="a claim on its way out",
        ),
        pytest.param(
            pod_with(EPHEMERAL),
            [claim("p-v0", owner="stranger")],
            "PVC default/p-v0 was not created for pod default/p (pod is not owner)",
            id="another pod's ephemeral claim",
        ),
        pytest.param(
            pod_with("c", "d"),
            [claim("d", deleting=True)],
            'persistentvolumeclaim "c" not found',
            id="the first problem in the pod's order wins",
        ),
        pytest.param(
            pod_with("c"),
            [claim("c"), storage_class(mode="Immediate")],
            "pod has unbound immediate PersistentVolumeClaims",
            id="immediate binding has not happened",
        ),
        pytest.param(
            pod_with("c"),
            [claim("c", storage_class=None)],
            "pod has unbound immediate PersistentVolumeClaims",
            id="no class",
        ),
        pytest.param(
            pod_with("c"),
            [claim("c", storage_class="gone")],
            "pod has unbound immediate PersistentVolumeClaims",
            id="a class that does not exist",
        ),
        pytest.param(
            pod_with("c"),
            [claim("c", volume="v", bound=False), storage_class(), volume("v")],
            "pod has unbound immediate PersistentVolumeClaims",
            id="a volume named by the user is not the scheduler's to bind",
        ),
    ],
)
def test_claims_that_keep_a_pod_waiting(pod, objects, text):
    answer = World(*objects).verdict(pod)
    assert (answer.code, answer.reasons) == (UU, (text,))


def test_a_class_without_binding_mode_is_an_error():
    answer = World(claim("c"), storage_class(mode=None)).verdict(pod_with("c"))
    assert answer.code is Code.ERROR
    assert answer.message == 'VolumeBindingMode not set for StorageClass "wait"'


def test_filter_without_state_is_an_error():
    world = World()
    answer = world.plugin.filter_nodes(
        CycleState(), make_pod("p").build(), NodeColumns(world.table)
    )
    assert (answer.code, answer.message) == (Code.ERROR, "not found")


# -- bound claims ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reach", "fitting"),
    [
        pytest.param(None, {"n1", "n2"}, id="no affinity"),
        pytest.param({}, {"n1", "n2"}, id="affinity without requirement"),
        pytest.param(in_zone("a"), {"n1"}, id="one zone"),
        pytest.param(in_zone("a", "b"), {"n1", "n2"}, id="two zones"),
        pytest.param(on_node("n2"), {"n2"}, id="one node"),
        pytest.param(
            affinity([expression(ZONE, "a")], [expression(HOSTNAME, "n2")]),
            {"n1", "n2"},
            id="one term is enough",
        ),
        pytest.param(
            affinity([expression(ZONE, "a"), expression(HOSTNAME, "n2")]),
            set(),
            id="all of a term's conditions must hold",
        ),
        pytest.param(affinity(), set(), id="no terms match nothing"),
        pytest.param(affinity([]), set(), id="an empty term matches nothing"),
        pytest.param(
            affinity([expression(ZONE, "a", operator="NotIn")]), {"n2"}, id="not in a zone"
        ),
        pytest.param(affinity([expression(ZONE, operator="In")]), set(), id="a malformed term"),
        pytest.param(
            {
                "required": {
                    "nodeSelectorTerms": [{"matchFields": [expression("metadata.name", "n2")]}]
                }
            },
            {"n1", "n2"},
            id="conditions on fields are not looked at",
        ),
    ],
)
def test_bound_volumes_are_reached_by_the_labels_of_nodes(reach, fitting):
    world = World(claim("c", volume="v"), volume("v", reach=reach))
    pod = pod_with("c")
    for _ in range(3):  # the third answer comes from a kept mask
        assert world.fitting(pod) == fitting
    for name in {"n1", "n2"} - fitting:
        assert world.reasons(pod, name) == (NODE_CONFLICT,)


def test_answers_follow_labels_of_nodes_and_new_nodes():
    world = World(claim("c", volume="v"), volume("v", reach=in_zone("a")))
    pod = pod_with("c")
    for _ in range(3):
        assert world.fitting(pod) == {"n1"}
    world.table.set_node(make_node("n2").zone("a").build())
    world.table.set_node(make_node("n1").zone("b").build())
    assert world.fitting(pod) == {"n2"}
    for number in range(100):
        world.table.set_node(make_node(f"m{number}").zone("a" if number % 2 else "b").build())
    assert world.fitting(pod) == {"n2", *(f"m{number}" for number in range(1, 100, 2))}


def test_a_claim_whose_volume_is_gone_fits_nowhere():
    world = World(claim("c", volume="gone"))
    assert world.reasons(pod_with("c")) == (MISSING,)


def test_of_bound_claims_the_first_problem_is_told():
    world = World(
        claim("here", volume="v"), volume("v", reach=in_zone("a")), claim("lost", volume="gone")
    )
    assert world.reasons(pod_with("here", "lost"), "n1") == (MISSING,)
    assert world.reasons(pod_with("here", "lost"), "n2") == (NODE_CONFLICT,)
    assert world.reasons(pod_with("lost", "here"), "n2") == (MISSING,)


EBS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
EBS_ZONE = "topology.ebs.csi.aws.com/zone"


def migrating(*plugins, labels=()):
    node = make_node("n1").zone("a")
    for key, value in dict(labels).items():
        node.label(key, value)
    return World(
        claim("c", volume="v"),
        volume("v", reach=in_zone("a"), **EBS),
        csi_node("n1", migrated=plugins),
        nodes=[node],
    )


@pytest.mark.parametrize(
    ("plugins", "labels", "fits"),
    [
        pytest.param((), {}, True, id="not migrated: the zone label counts"),
        pytest.param(
            ("kubernetes.io/aws-ebs",), {}, False, id="migrated: the driver's label is missing"
        ),
        pytest.param(("kubernetes.io/aws-ebs",), {EBS_ZONE: "a"}, True, id="migrated and labelled"),
        pytest.param(
            ("kubernetes.io/aws-ebs",), {EBS_ZONE: "b"}, False, id="labelled with another zone"
        ),
        pytest.param(("kubernetes.io/gce-pd",), {}, True, id="another plugin is migrated"),
    ],
)
def test_migrated_volumes_use_the_drivers_label_where_the_node_has_handed_over(
    plugins, labels, fits
):
    world = migrating(*plugins, labels=labels)
    assert world.reasons(pod_with("c")) == (() if fits else (NODE_CONFLICT,))


def test_migration_follows_the_csi_node():
    world = migrating()
    pod = pod_with("c")
    assert world.fitting(pod) == {"n1"}
    world.listers.put(csi_node("n1", migrated=["kubernetes.io/aws-ebs"]))
    assert world.fitting(pod) == set()
    world.listers.remove(csi_node("n1"))
    assert world.fitting(pod) == {"n1"}


def test_a_volume_that_cannot_be_translated_is_an_error_where_it_would_have_to_be():
    disk = {"azureDisk": {"diskURI": "d", "kind": "Dedicated"}}
    world = World(
        claim("c", volume="v"),
        volume("v", **disk),
        csi_node("n2", migrated=["kubernetes.io/azure-disk"]),
    )
    assert world.verdict(pod_with("c"), "n1") is None
    answer = world.verdict(pod_with("c"), "n2")
    assert answer.code is Code.ERROR
    assert answer.message == (
        "could not translate pv: kind(Dedicated) is not supported in csi migration"
    )


# -- static matching -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "offered", "fits"),
    [
        pytest.param({}, {}, True, id="as asked"),
        pytest.param({"size": "2Gi"}, {"size": "1Gi"}, False, id="too small"),
        pytest.param({"size": "1Gi"}, {"size": "2Gi"}, True, id="larger will do"),
        pytest.param({"size": "1024Mi"}, {"size": "1Gi"}, True, id="sizes are compared exactly"),
        pytest.param({"size": None}, {"size": None}, True, id="no sizes at all"),
        pytest.param({"volumeMode": "Block"}, {}, False, id="a block device was asked for"),
        pytest.param({}, {"volumeMode": "Filesystem"}, True, id="a file system is the default"),
        pytest.param(
            {"volumeAttributesClassName": "gold"}, {}, False, id="attributes of another class"
        ),
        pytest.param(
            {"volumeAttributesClassName": ""}, {}, True, id="no attributes, said in two ways"
        ),
        pytest.param({}, {"deleting": True}, False, id="on its way out"),
        pytest.param({}, {"phase": "Pending"}, False, id="not available yet"),
        pytest.param({}, {"phase": "Released"}, False, id="not available any more"),
        pytest.param({}, {"storage_class": "other"}, False, id="another class"),
        pytest.param(
            {"modes": ("ReadWriteOnce", "ReadOnlyMany")}, {}, False, id="an access mode is lacking"
        ),
        pytest.param(
            {},
            {"modes": ("ReadWriteOnce", "ReadOnlyMany")},
            True,
            id="more access modes than asked",
        ),
        pytest.param(
            {"selector": {"matchLabels": {"disk": "ssd"}}}, {}, False, id="labels do not match"
        ),
        pytest.param(
            {"selector": {"matchLabels": {"disk": "ssd"}}},
            {"labels": {"disk": "ssd"}},
            True,
            id="labels match",
        ),
        pytest.param({}, {"reserved": ("d", "")}, False, id="reserved for another claim"),
        pytest.param({}, {"reserved": ("c", "other")}, False, id="reserved for an earlier claim"),
        pytest.param({}, {"reserved": ("c", "uid-default-c")}, True, id="reserved for it"),
        pytest.param({}, {"reserved": ("c", "")}, True, id="reserved for it by hand"),
        pytest.param(
            {"selector": {"matchLabels": {"disk": "ssd"}}, "modes": ("ReadOnlyMany",)},
            {"reserved": ("c", ""), "phase": "Bound"},
            True,
            id="a reserved one needs neither labels nor modes nor phase",
        ),
        pytest.param(
            {"size": "2Gi"}, {"reserved": ("c", "")}, False, id="but it must be large enough"
        ),
        pytest.param({}, {"reach": on_node("n2")}, False, id="on another node"),
    ],
)
def test_a_volume_serves_a_claim(wanted, offered, fits):
    world = World(claim("c", **wanted), volume("v", **offered), static_class())
    assert world.reasons(pod_with("c")) == (() if fits else (BIND_CONFLICT,))


def test_a_malformed_selector_of_a_claim_is_an_error():
    world = World(
        claim("c", selector={"matchExpressions": [expression("k", operator="Maybe")]}),
        static_class(),
    )
    answer = world.verdict(pod_with("c"))
    assert answer.code is Code.ERROR
    assert answer.message == (
        "error creating internal label selector for claim: default/c:"
        ' "Maybe" is not a valid label selector operator'
    )


def test_where_a_reserved_volume_cannot_be_reached_no_other_is_tried():
    world = World(
        claim("c"),
        volume("mine", reserved=("c", ""), reach=on_node("n2")),
        volume("free"),
        static_class(),
    )
    assert world.fitting(pod_with("c")) == {"n2"}


def test_each_node_offers_its_own_volumes():
    world = World(
        claim("c"),
        volume("v1", reach=on_node("n1")),
        volume("small", reach=on_node("n2"), size="1Mi"),
        static_class(),
    )
    assert world.fitting(pod_with("c")) == {"n1"}
    world.listers.put(volume("v2", reach=in_zone("b", "c")))
    assert world.fitting(pod_with("c")) == {"n1", "n2"}


def test_two_claims_need_two_volumes():
    world = World(
        claim("c"), claim("d"), volume("v1", reach=on_node("n1")), volume("v2"), static_class()
    )
    assert world.fitting(pod_with("c", "d")) == {"n1"}
    assert world.fitting(pod_with("c")) == {"n1", "n2"}


def test_small_claims_choose_first_so_that_large_ones_still_fit():
    world = World(
        claim("large", size="10Gi"),
        claim("small", size="1Gi"),
        volume("v10", size="10Gi"),
        volume("v1", size="1Gi"),
        static_class(),
    )
    assert world.fitting(pod_with("large", "small")) == {"n1", "n2"}


def test_a_partial_match_is_no_match_when_the_rest_cannot_be_provisioned():
    world = World(claim("c"), claim("d"), volume("v1"), static_class())
    assert world.reasons(pod_with("c", "d")) == (BIND_CONFLICT,)


def test_one_claim_mounted_twice_asks_for_two_volumes_as_upstream_does():
    world = World(claim("c"), volume("v1"), static_class())
    assert world.reasons(pod_with("c", "c")) == (BIND_CONFLICT,)
    world.listers.put(volume("v2"))
    assert world.reasons(pod_with("c", "c")) == ()


def test_bound_and_unbound_claims_that_fail_are_both_told():
    world = World(
        claim("b", volume="v"),
        volume("v", reach=in_zone("b"), reserved=("b", "uid-default-b")),
        claim("c"),
        static_class(),
    )
    assert world.reasons(pod_with("b", "c"), "n1") == (NODE_CONFLICT, BIND_CONFLICT)
    assert world.reasons(pod_with("b", "c"), "n2") == (BIND_CONFLICT,)


def test_all_four_reasons_come_in_their_order():
    world = World(
        claim("b", volume="v"),
        volume("v", reach=in_zone("b")),
        claim("gone", volume="gone"),
        claim("c", storage_class="dynamic"),
        storage_class("dynamic"),
        csi_driver(storageCapacity=True),
    )
    assert world.reasons(pod_with("b", "c"), "n1") == (NODE_CONFLICT, NOT_ENOUGH_SPACE)
    assert world.reasons(pod_with("gone", "c"), "n1") == (NOT_ENOUGH_SPACE, MISSING)


# -- provisioning ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "fitting"),
    [
        pytest.param({}, {"n1", "n2"}, id="anywhere"),
        pytest.param({"provisioner": NO_PROVISIONER}, set(), id="no provisioner"),
        pytest.param({"provisioner": ""}, set(), id="no provisioner named"),
        pytest.param({"allowedTopologies": []}, {"n1", "n2"}, id="an empty list allows all"),
        pytest.param({"allowedTopologies": [topology(zone=["a"])]}, {"n1"}, id="one zone"),
        pytest.param(
            {"allowedTopologies": [topology(zone=["a"]), topology(zone=["b"])]},
            {"n1", "n2"},
            id="one of the terms is enough",
        ),
        pytest.param(
            {"allowedTopologies": [topology(zone=["a"], region=["r"])]},
            set(),
            id="all of a term's labels must match",
        ),
        pytest.param({"allowedTopologies": [{}]}, set(), id="an empty term allows nothing"),
        pytest.param(
            {"allowedTopologies": [topology(zone=[])]}, set(), id="a term without values likewise"
        ),
    ],
)
def test_classes_provision_within_their_topology(fields, fitting):
    world = World(claim("c"), storage_class(**fields))
    pod = pod_with("c")
    for _ in range(3):
        assert world.fitting(pod) == fitting
    for name in {"n1", "n2"} - fitting:
        assert world.reasons(pod, name) == (BIND_CONFLICT,)


def test_static_and_dynamic_claims_of_one_pod():
    world = World(
        claim("s", storage_class="static"),
        claim("d"),
        volume("v", storage_class="static", reach=on_node("n1")),
        storage_class("static", provisioner=NO_PROVISIONER),
        storage_class(allowedTopologies=[topology(zone=["a"])]),
    )
    assert world.fitting(pod_with("s", "d")) == {"n1"}


def test_a_claim_with_a_selected_node_stays_there_and_is_not_matched():
    annotations = {SELECTED_NODE: "n2"}
    world = World(claim("c", annotations=annotations), volume("v"), storage_class())
    assert world.reasons(pod_with("c"), "n1") == (BIND_CONFLICT,)
    assert world.reasons(pod_with("c"), "n2") == ()
    static = World(claim("c", annotations=annotations), volume("v"), static_class())
    assert static.fitting(pod_with("c")) == set()


def test_two_claims_selected_for_two_nodes_fit_nowhere():
    world = World(
        claim("c", annotations={SELECTED_NODE: "n1"}),
        claim("d", annotations={SELECTED_NODE: "n2"}),
        storage_class(),
    )
    assert world.fitting(pod_with("c", "d")) == set()


HERE = {ZONE: "a"}


@pytest.mark.parametrize(
    ("capacities", "fits"),
    [
        pytest.param([], False, id="no capacity known"),
        pytest.param([capacity("k", segment=HERE, capacity="1Gi")], True, id="just enough"),
        pytest.param([capacity("k", segment=HERE, capacity="1023Mi")], False, id="too small"),
        pytest.param([capacity("k", segment=HERE, capacity="0")], False, id="zero"),
        pytest.param([capacity("k", segment=HERE)], False, id="unset"),
        pytest.param([capacity("k", segment={ZONE: "b"}, capacity="1Gi")], False, id="elsewhere"),
        pytest.param([capacity("k", "other", HERE, capacity="1Gi")], False, id="another class"),
        pytest.param([capacity("k", capacity="1Gi")], False, id="without topology: unreachable"),
        pytest.param(
            [capacity("k", segment={"matchLabels": {}}, capacity="1Gi")],
            True,
            id="reachable by all",
        ),
        pytest.param(
            [
                capacity(
                    "k", segment={"matchExpressions": [expression(ZONE, "a", "b")]}, capacity="1Gi"
                )
            ],
            True,
            id="a segment of two zones",
        ),
        pytest.param(
            [
                capacity(
                    "k",
                    segment={"matchExpressions": [expression("k", operator="Maybe")]},
                    capacity="1Gi",
                )
            ],
            False,
            id="a malformed segment is unreachable",
        ),
        pytest.param(
            [capacity("k", segment=HERE, capacity="9Gi", maximumVolumeSize="1Mi")],
            False,
            id="the largest volume is too small",
        ),
        pytest.param(
            [capacity("k", segment=HERE, capacity="1Mi", maximumVolumeSize="1Gi")],
            True,
            id="the largest volume is what counts",
        ),
        pytest.param(
            [
                capacity("k", segment=HERE, capacity="1Mi"),
                capacity("l", segment=HERE, capacity="2Gi"),
            ],
            True,
            id="one of two is enough",
        ),
    ],
)
def test_storage_capacity(capacities, fits):
    world = World(claim("c"), storage_class(), csi_driver(storageCapacity=True), *capacities)
    assert world.reasons(pod_with("c")) == (() if fits else (NOT_ENOUGH_SPACE,))
    indifferent = World(claim("c"), storage_class(), csi_driver(), *capacities)
    assert indifferent.reasons(pod_with("c")) == ()
    unknown = World(claim("c"), storage_class(), *capacities)
    assert unknown.reasons(pod_with("c")) == ()


def test_a_claim_that_does_not_say_how_much_needs_no_capacity():
    world = World(claim("c", size=None), storage_class(), csi_driver(storageCapacity=True))
    assert world.reasons(pod_with("c")) == ()


def test_capacity_is_looked_up_for_each_claim_alone():
    world = World(
        claim("c"),
        claim("d"),
        storage_class(),
        csi_driver(storageCapacity=True),
        capacity("k", segment=HERE, capacity="1Gi"),
    )
    assert world.reasons(pod_with("c", "d")) == ()


def test_capacity_follows_its_objects_and_the_nodes():
    world = World(claim("c"), storage_class(), csi_driver(storageCapacity=True))
    pod = pod_with("c")
    assert world.fitting(pod) == set()
    world.listers.put(capacity("k", segment=HERE, capacity="1Gi"))
    assert world.fitting(pod) == {"n1"}
    world.table.set_node(make_node("n2").zone("a").build())
    assert world.fitting(pod) == {"n1", "n2"}
    world.listers.put(capacity("k", capacity="1Gi"))
    assert world.fitting(pod) == set(), "no node reaches it any more"
    world.listers.put(capacity("k", segment=HERE, capacity="1Gi"))
    assert world.fitting(pod) == {"n1", "n2"}
    world.listers.put(capacity("k", segment=HERE, capacity="1Mi"))
    assert world.fitting(pod) == set()
    world.listers.put(capacity("k", "other", HERE, capacity="1Gi"))
    assert world.fitting(pod) == set()
    world.listers.remove(capacity("k"))
    assert world.fitting(pod) == set()


def test_topology_is_checked_before_capacity():
    world = World(
        claim("c"),
        storage_class(allowedTopologies=[topology(zone=["b"])]),
        csi_driver(storageCapacity=True),
    )
    assert world.reasons(pod_with("c"), "n1") == (BIND_CONFLICT,)
    assert world.reasons(pod_with("c"), "n2") == (NOT_ENOUGH_SPACE,)


def test_the_first_claim_that_cannot_be_provisioned_decides_the_reason():
    world = World(
        claim("small", size="1Mi", storage_class="tracked"),
        claim("large", size="1Gi", storage_class="none"),
        storage_class("tracked"),
        storage_class("none", provisioner=NO_PROVISIONER),
        csi_driver(storageCapacity=True),
    )
    assert world.reasons(pod_with("large", "small")) == (NOT_ENOUGH_SPACE,)
    world.listers.put(claim("small", size="1Ti", storage_class="tracked"))
    assert world.reasons(pod_with("large", "small")) == (BIND_CONFLICT,)


def test_volumes_follow_the_watch():
    world = World(claim("c"), static_class())
    pod = pod_with("c")
    assert world.fitting(pod) == set()
    world.listers.put(volume("v", reach=on_node("n1")))
    assert world.fitting(pod) == {"n1"}
    world.listers.put(volume("v", reach=on_node("n1"), reserved=("d", "x"), version="2"))
    assert world.fitting(pod) == set()
    world.listers.put(volume("v", reach=on_node("n1"), reserved=("c", ""), version="3"))
    assert world.fitting(pod) == {"n1"}
    world.listers.put(volume("v", reach=on_node("n1"), storage_class="other", version="4"))
    assert world.fitting(pod) == set()
    world.listers.put(volume("v", size="nonsense", version="5"))
    assert world.fitting(pod) == set()
    world.listers.put(volume("v", version="6"))
    assert world.fitting(pod) == {"n1", "n2"}
    world.listers.remove(volume("v"))
    assert world.fitting(pod) == set()


# -- arguments -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "text"),
    [
        pytest.param(
            VolumeBindingArgs(bind_timeout_seconds=-1),
            "bindTimeoutSeconds",
            id="a negative timeout",
        ),
        pytest.param(VolumeBindingArgs(shape=()), "shape", id="a shape without its gate"),
    ],
)
def test_bad_arguments_are_refused(args, text):
    with pytest.raises(ConfigError, match=text):
        make(VolumeBinding, args=args, gates=FeatureGates(StorageCapacityScoring=False))


def test_csi_volumes_are_reached_like_any_other():
    world = World(claim("c", volume="v"), volume("v", reach=in_zone("a"), csi=csi()))
    assert world.fitting(pod_with("c")) == {"n1"}
