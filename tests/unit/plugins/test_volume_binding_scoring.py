"""VolumeBinding's score (gate StorageCapacityScoring) and its hints: the specification's
checklist.
"""

import numpy as np
import pytest
from judging import cluster, hint, make, scores
from storage_objects import (
    EPHEMERAL,
    HOSTNAME,
    Built,
    MemoryListers,
    capacity,
    claim,
    csi_driver,
    csi_node,
    on_node,
    pod_with,
    storage_class,
    topology,
    volume,
)

from kubesched.base.errors import ConfigError
from kubesched.config.features import FeatureGates, defaults
from kubesched.config.plugin_args import UtilizationShapePoint, VolumeBindingArgs
from kubesched.config.versions import Versions
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import Action, Hint, Resource
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Code
from kubesched.plugins.volume_binding import VolumeBinding
from kubesched.testing import make_node, make_pod

GATES = FeatureGates(StorageCapacityScoring=True)
RISING = ((0, 0), (100, 10))
NO_PROVISIONER = "kubernetes.io/no-provisioner"
NODES = ("n1", "n2", "n3")


def world(*objects, shape=None, nodes=NODES):
    table = cluster(*(make_node(name) for name in nodes))
    points = (
        None
        if shape is None
        else tuple(UtilizationShapePoint(utilization=at, score=score) for at, score in shape)
    )
    args = None if points is None else VolumeBindingArgs(shape=points)
    return make(VolumeBinding, table, args, GATES, MemoryListers(*objects)), table


def scored(plugin, table, pod):
    state, built, nodes = CycleState(), pod.build(), NodeColumns(table)
    assert plugin.pre_filter(state, built, nodes) in (None,)
    plugin.filter_nodes(state, built, nodes)
    assert plugin.pre_score(state, built, nodes) is None
    raw = np.broadcast_to(plugin.score_nodes(state, built, nodes), len(nodes)).tolist()
    return [raw[table.row_of[name]] for name in NODES if name in table.row_of]


def local_volumes(*sizes):
    return [
        volume(f"v-{name}", size=size, reach=on_node(name))
        for name, size in zip(NODES, sizes, strict=True)
    ]


def segments(*sizes, storage_class="wait"):
    return [
        capacity(f"{storage_class}-{name}", storage_class, {HOSTNAME: name}, capacity=size)
        for name, size in zip(NODES, sizes, strict=True)
    ]


def tracked(*objects, size="10Gi"):
    return [claim("c", size=size), storage_class(), csi_driver(storageCapacity=True), *objects]


@pytest.mark.parametrize(
    ("shape", "sizes", "expected"),
    [
        pytest.param(RISING, ("100Gi", "50Gi", "10Gi"), [10, 20, 100], id="fuller is better"),
        pytest.param(
            None, ("100Gi", "20Gi", "10Gi"), [90, 50, 0], id="by default emptier is better"
        ),
    ],
)
def test_volumes_that_exist_are_scored_by_how_full_the_claim_makes_them(shape, sizes, expected):
    objects = [claim("c", size="10Gi"), storage_class(provisioner=NO_PROVISIONER)]
    plugin, table = world(*objects, *local_volumes(*sizes), shape=shape)
    assert scored(plugin, table, pod_with("c")) == expected


@pytest.mark.parametrize(
    ("shape", "sizes", "expected"),
    [
        pytest.param(RISING, ("100Gi", "50Gi", "10Gi"), [10, 20, 100], id="fuller is better"),
        pytest.param(
            None, ("100Gi", "20Gi", "10Gi"), [90, 50, 0], id="by default emptier is better"
        ),
    ],
)
def test_claims_to_be_provisioned_are_scored_by_the_capacity_they_take(shape, sizes, expected):
    plugin, table = world(*tracked(*segments(*sizes)), shape=shape)
    assert scored(plugin, table, pod_with("c")) == expected


def test_of_two_capacities_in_reach_the_first_by_name_counts_whichever_came_first():
    both = [capacity(name, segment={HOSTNAME: "n1"}, capacity="100Gi") for name in ("a", "b")]
    both[1] = capacity("b", segment={HOSTNAME: "n1"}, capacity="10Gi")
    for objects in (both, both[::-1]):
        plugin, table = world(*tracked(*objects), shape=RISING, nodes=("n1", "n2"))
        assert scored(plugin, table, pod_with("c"))[0] == 10


def test_two_claims_of_a_class_share_one_capacity():
    objects = tracked(claim("d", size="50Gi"), *segments("100Gi", "200Gi", "100Gi"), size="50Gi")
    plugin, table = world(*objects, shape=RISING)
    assert scored(plugin, table, pod_with("c", "d")) == [100, 50, 100]


def test_classes_are_averaged_and_rounded_half_up():
    objects = tracked(
        claim("d", size="25Gi", storage_class="other"),
        storage_class("other"),
        *segments("100Gi", "100Gi", "100Gi"),
        *segments("100Gi", "50Gi", "25Gi", storage_class="other"),
    )
    plugin, table = world(*objects, shape=RISING)
    assert scored(plugin, table, pod_with("c", "d")) == [18, 30, 55]


def test_volumes_of_a_class_add_up():
    volumes = [
        volume(f"{name}-{size}", size=size, reach=on_node(name))
        for name in NODES
        for size in ("20Gi", "30Gi")
    ]
    objects = [claim("c", size="10Gi"), claim("d", size="15Gi"), storage_class()]
    plugin, table = world(*objects, *volumes, shape=RISING)
    assert scored(plugin, table, pod_with("c", "d")) == [50, 50, 50]


def test_beside_a_volume_that_exists_provisioned_ones_do_not_count():
    objects = tracked(
        claim("d", size="1Gi"),
        *segments("10Gi", "10Gi", "10Gi"),
        *local_volumes("2Gi", "4Gi", "1Gi"),
    )
    plugin, table = world(*objects, shape=RISING)
    assert scored(plugin, table, pod_with("c", "d")) == [50, 25, 100]


def test_what_has_no_capacity_object_scores_nothing():
    plugin, table = world(claim("c"), storage_class(), shape=RISING)
    assert scored(plugin, table, pod_with("c")) == [0, 0, 0]


def test_bound_claims_score_nothing():
    plugin, table = world(claim("c", volume="v"), volume("v"), shape=RISING)
    assert scored(plugin, table, pod_with("c")) == [0, 0, 0]


def test_asking_for_more_than_there_is_counts_as_full():
    huge = [
        capacity(f"k-{name}", segment={HOSTNAME: name}, capacity=size, maximumVolumeSize="1Ti")
        for name, size in zip(NODES, ("1Gi", "0", "100Gi"), strict=True)
    ]
    plugin, table = world(*tracked(*huge), shape=RISING)
    assert scored(plugin, table, pod_with("c")) == [100, 100, 10]


@pytest.mark.parametrize(
    "gates",
    [
        pytest.param(FeatureGates(StorageCapacityScoring=False), id="off"),
        pytest.param(FeatureGates(versions=Versions(emulated="1.36")), id="emulating 1.36 (X1)"),
        pytest.param(defaults("1.36"), id="1.36"),
    ],
)
def test_without_the_gate_nothing_is_scored(gates):
    table = cluster(make_node("n1"))
    plugin = make(VolumeBinding, table, listers=MemoryListers(), gates=gates)
    assert scores(plugin, make_pod("p"), table).code is Code.SKIP
    state, pod = CycleState(), make_pod("p").build()
    plugin.pre_filter(state, pod, NodeColumns(table))
    assert plugin.score_nodes(state, pod, NodeColumns(table)) == 0


def test_with_the_gate_state_is_needed():
    plugin, table = world(shape=RISING)
    nodes = NodeColumns(table)
    answer = plugin.pre_score(CycleState(), make_pod("p").build(), nodes)
    assert (answer.code, answer.message) == (Code.ERROR, "not found")
    assert plugin.score_nodes(CycleState(), make_pod("p").build(), nodes).code is Code.ERROR


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(((50, 1), (50, 2)), id="utilisation does not increase"),
        pytest.param(((0, 11),), id="a score beyond ten"),
        pytest.param(((101, 1),), id="utilisation beyond a hundred"),
    ],
)
def test_shapes_that_make_no_sense_are_refused(shape):
    with pytest.raises(ConfigError, match="shape"):
        world(shape=shape)


# -- hints -----------------------------------------------------------------------------------------

INLINE = {"csi": {"driver": "csi.example.com"}}


@pytest.mark.parametrize(
    ("resource", "action", "old", "new", "expected"),
    [
        pytest.param(
            Resource.STORAGE_CLASS, Action.ADD, None, storage_class(), Hint.QUEUE, id="a class came"
        ),
        pytest.param(
            Resource.STORAGE_CLASS,
            Action.UPDATE,
            storage_class(),
            storage_class(allowedTopologies=[topology(zone=["a"])]),
            Hint.QUEUE,
            id="a class is allowed elsewhere",
        ),
        pytest.param(
            Resource.STORAGE_CLASS,
            Action.UPDATE,
            storage_class(),
            storage_class(allowedTopologies=[], reclaimPolicy="Retain"),
            Hint.SKIP,
            id="a class changed otherwise",
        ),
        pytest.param(
            Resource.PERSISTENT_VOLUME_CLAIM,
            Action.ADD,
            None,
            claim("c"),
            Hint.QUEUE,
            id="its claim",
        ),
        pytest.param(
            Resource.PERSISTENT_VOLUME_CLAIM,
            Action.UPDATE,
            claim("c"),
            claim("c"),
            Hint.QUEUE,
            id="its claim changed",
        ),
        pytest.param(
            Resource.PERSISTENT_VOLUME_CLAIM,
            Action.ADD,
            None,
            claim("p-v1"),
            Hint.QUEUE,
            id="its ephemeral claim",
        ),
        pytest.param(
            Resource.PERSISTENT_VOLUME_CLAIM,
            Action.ADD,
            None,
            claim("d"),
            Hint.SKIP,
            id="another claim",
        ),
        pytest.param(
            Resource.PERSISTENT_VOLUME_CLAIM,
            Action.ADD,
            None,
            claim("c", "else"),
            Hint.SKIP,
            id="in another namespace",
        ),
        pytest.param(
            Resource.CSI_NODE, Action.ADD, None, csi_node("n"), Hint.QUEUE, id="a CSINode came"
        ),
        pytest.param(
            Resource.CSI_NODE,
            Action.UPDATE,
            csi_node("n"),
            csi_node("n", migrated=["x"]),
            Hint.QUEUE,
            id="a plugin was handed over",
        ),
        pytest.param(
            Resource.CSI_NODE,
            Action.UPDATE,
            csi_node("n"),
            csi_node("n", limits={"d": 1}),
            Hint.SKIP,
            id="a CSINode changed otherwise",
        ),
        pytest.param(
            Resource.CSI_DRIVER,
            Action.UPDATE,
            csi_driver(storageCapacity=True),
            csi_driver(storageCapacity=False),
            Hint.QUEUE,
            id="a driver stopped tracking capacity",
        ),
        pytest.param(
            Resource.CSI_DRIVER,
            Action.UPDATE,
            csi_driver(storageCapacity=True),
            csi_driver(),
            Hint.QUEUE,
            id="or does not say any more",
        ),
        pytest.param(
            Resource.CSI_DRIVER,
            Action.UPDATE,
            csi_driver(),
            csi_driver(storageCapacity=True),
            Hint.SKIP,
            id="a driver began tracking capacity",
        ),
        pytest.param(
            Resource.CSI_DRIVER,
            Action.UPDATE,
            csi_driver("other", storageCapacity=True),
            csi_driver("other"),
            Hint.SKIP,
            id="a driver the pod does not use inline",
        ),
        pytest.param(
            Resource.CSI_STORAGE_CAPACITY,
            Action.ADD,
            None,
            capacity("k"),
            Hint.QUEUE,
            id="capacity came",
        ),
        pytest.param(
            Resource.CSI_STORAGE_CAPACITY,
            Action.UPDATE,
            capacity("k", capacity="1Gi"),
            capacity("k", capacity="2Gi"),
            Hint.QUEUE,
            id="capacity grew",
        ),
        pytest.param(
            Resource.CSI_STORAGE_CAPACITY,
            Action.UPDATE,
            capacity("k"),
            capacity("k", capacity="0"),
            Hint.QUEUE,
            id="capacity became known",
        ),
        pytest.param(
            Resource.CSI_STORAGE_CAPACITY,
            Action.UPDATE,
            capacity("k", capacity="1Gi", maximumVolumeSize="1Gi"),
            capacity("k", capacity="9Gi", maximumVolumeSize="1Gi"),
            Hint.SKIP,
            id="capacity grew but not the largest volume",
        ),
        pytest.param(
            Resource.CSI_STORAGE_CAPACITY,
            Action.UPDATE,
            capacity("k", capacity="2Gi"),
            capacity("k", capacity="1Gi"),
            Hint.SKIP,
            id="capacity shrank",
        ),
    ],
)
def test_hints(resource, action, old, new, expected):
    pod = pod_with("c", EPHEMERAL, INLINE)
    old = None if old is None else Built(old)
    assert hint(make(VolumeBinding), resource, action, pod, old, Built(new)) is expected


def test_volumes_and_nodes_always_bring_pods_back():
    plugin, pod = make(VolumeBinding), pod_with("c")
    for action in (Action.ADD, Action.UPDATE):
        assert hint(plugin, Resource.PERSISTENT_VOLUME, action, pod) == "always"
    for action in (Action.ADD, Action.UPDATE_NODE_LABEL):
        assert hint(plugin, Resource.NODE, action, pod) == "always"
    assert hint(plugin, Resource.CSI_DRIVER, Action.ADD, pod) is None
    assert hint(plugin, Resource.PERSISTENT_VOLUME, Action.DELETE, pod) is None
