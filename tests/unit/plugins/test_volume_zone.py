"""VolumeZone: the specification's checklist, PreFilter's refusals, and hints."""

import pytest
from judging import cluster, hint, make, passes, verdict
from storage_objects import (
    BETA_REGION,
    BETA_ZONE,
    EPHEMERAL,
    REGION,
    ZONE,
    Built,
    MemoryListers,
    claim,
    pod_with,
    storage_class,
    volume,
)

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import Action, Hint, Resource
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Code
from kubesched.plugins.volume_zone import VolumeZone
from kubesched.testing import make_node, make_pod

REASON = ("node(s) had no available volume zone",)


def node(**labels):
    builder = make_node("n")
    for key, value in labels.items():
        builder.label(key, value)
    return builder


def world(*objects, nodes=()):
    table = cluster(*(nodes or [node()]))
    return make(VolumeZone, table, listers=MemoryListers(*objects)), table


def bound_to(labels, name="c"):
    return [claim(name, volume=f"v-{name}"), volume(f"v-{name}", labels=labels)]


@pytest.mark.parametrize(
    ("volume_labels", "node_labels", "fits"),
    [
        pytest.param({ZONE: "a"}, {ZONE: "a"}, True, id="same zone"),
        pytest.param({ZONE: "a"}, {ZONE: "b"}, False, id="other zone"),
        pytest.param({ZONE: "a__b"}, {ZONE: "b"}, True, id="one of several zones"),
        pytest.param({ZONE: " a __ b "}, {ZONE: "a"}, True, id="blanks around zones do not count"),
        pytest.param({ZONE: "a__"}, {ZONE: "b"}, True, id="an empty part makes a label void"),
        pytest.param(
            {ZONE: "a", REGION: "r"}, {ZONE: "a"}, False, id="zone and region, node has zone only"
        ),
        pytest.param(
            {ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "r"}, True, id="zone and region agree"
        ),
        pytest.param({ZONE: "a"}, {REGION: "r"}, False, id="zone asked for, node has region only"),
        pytest.param({ZONE: "a"}, {}, True, id="a node without labels is everywhere"),
        pytest.param({ZONE: "a"}, {BETA_ZONE: "a"}, False, id="beta on the node does not serve"),
        pytest.param({BETA_ZONE: "a"}, {ZONE: "a"}, True, id="general on the node serves beta"),
        pytest.param({BETA_ZONE: "a"}, {ZONE: "b"}, False, id="but only with the same value"),
        pytest.param(
            {BETA_ZONE: "a"}, {BETA_ZONE: "b", ZONE: "a"}, False, id="the key itself comes first"
        ),
        pytest.param({BETA_REGION: "r"}, {REGION: "r"}, True, id="the region likewise"),
        pytest.param({}, {ZONE: "a"}, True, id="a volume without labels"),
    ],
)
def test_labels_of_volume_and_node(volume_labels, node_labels, fits):
    plugin, table = world(*bound_to(volume_labels), nodes=[node(**node_labels)])
    answer = verdict(plugin, pod_with("c"), table)
    if fits:
        assert answer is None or answer.code is Code.SKIP
    else:
        assert (answer.code, answer.reasons) == (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, REASON)


def test_every_volume_must_be_in_the_nodes_zone():
    objects = [*bound_to({ZONE: "a"}, "c"), *bound_to({ZONE: "b"}, "d")]
    plugin, table = world(*objects, nodes=[node(**{ZONE: "a"})])
    assert passes(plugin, pod_with("c"), table)
    assert not passes(plugin, pod_with("c", "d"), table)


@pytest.mark.parametrize(
    ("pod", "objects", "text"),
    [
        pytest.param(pod_with(""), [], "PersistentVolumeClaim had no name", id="no name"),
        pytest.param(pod_with("c"), [], 'persistentvolumeclaim "c" not found', id="no claim"),
        pytest.param(
            pod_with("c"),
            [claim("c", volume="v")],
            'persistentvolume "v" not found',
            id="no volume",
        ),
        pytest.param(
            pod_with("c"),
            [claim("c", storage_class=None)],
            "PersistentVolumeClaim had no pv name and storageClass name",
            id="neither volume nor class",
        ),
        pytest.param(
            pod_with("c"),
            [claim("c", storage_class="x")],
            'storageclass.storage.k8s.io "x" not found',
            id="no class",
        ),
        pytest.param(
            pod_with("c"),
            [claim("c"), storage_class(mode=None)],
            'VolumeBindingMode not set for StorageClass "wait"',
            id="a class without a mode",
        ),
        pytest.param(
            pod_with("c"),
            [claim("c"), storage_class(mode="Immediate")],
            "PersistentVolume had no name",
            id="immediate binding has not happened",
        ),
    ],
)
def test_claims_that_cannot_be_judged_turn_the_pod_away(pod, objects, text):
    plugin, table = world(*objects)
    answer = verdict(plugin, pod, table)
    assert (answer.code, answer.reasons) == (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (text,))


@pytest.mark.parametrize(
    ("pod", "objects"),
    [
        pytest.param(make_pod("p"), [], id="no volumes"),
        pytest.param(pod_with({"emptyDir": {}}), [], id="no claims"),
        pytest.param(pod_with(EPHEMERAL), [], id="ephemeral volumes are not looked at"),
        pytest.param(pod_with("c"), [claim("c"), storage_class()], id="waits for its consumer"),
        pytest.param(pod_with("c"), bound_to({}), id="bound to a volume without labels"),
    ],
)
def test_pods_with_nothing_to_compare_are_skipped(pod, objects):
    plugin, table = world(*objects)
    assert verdict(plugin, pod, table).code is Code.SKIP


def test_the_filter_answers_alike_without_stored_state():
    plugin, table = world(*bound_to({ZONE: "a"}), nodes=[node(**{ZONE: "b"})])
    answer = plugin.filter_nodes(CycleState(), pod_with("c").build(), NodeColumns(table))
    assert answer.describe(int(answer.codes[0])).reasons == REASON
    assert plugin.filter_nodes(CycleState(), make_pod("p").build(), NodeColumns(table)) is None
    lost, _ = world()
    refusal = lost.filter_nodes(CycleState(), pod_with("c").build(), NodeColumns(table))
    assert refusal.reasons == ('persistentvolumeclaim "c" not found',)


def test_answers_follow_nodes_that_move():
    plugin, table = world(*bound_to({ZONE: "a"}), nodes=[node(**{ZONE: "b"})])
    pod = pod_with("c")
    for _ in range(3):
        assert not passes(plugin, pod, table)
    table.set_node(node(**{ZONE: "a"}).build())
    assert passes(plugin, pod, table)


@pytest.mark.parametrize(
    ("resource", "action", "old", "new", "expected"),
    [
        pytest.param(
            Resource.STORAGE_CLASS,
            Action.ADD,
            None,
            storage_class(),
            Hint.QUEUE,
            id="a class that waits",
        ),
        pytest.param(
            Resource.STORAGE_CLASS,
            Action.ADD,
            None,
            storage_class(mode="Immediate"),
            Hint.SKIP,
            id="a class that does not",
        ),
        pytest.param(
            Resource.STORAGE_CLASS,
            Action.ADD,
            None,
            storage_class(mode=None),
            Hint.SKIP,
            id="nor one without a mode",
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
            id="a claim of another namespace",
        ),
        pytest.param(
            Resource.PERSISTENT_VOLUME_CLAIM,
            Action.ADD,
            None,
            claim("p-v1"),
            Hint.SKIP,
            id="the claim of an ephemeral volume",
        ),
        pytest.param(
            Resource.PERSISTENT_VOLUME, Action.ADD, None, volume("v"), Hint.QUEUE, id="a volume"
        ),
        pytest.param(
            Resource.PERSISTENT_VOLUME,
            Action.UPDATE,
            volume("v"),
            volume("v", labels={ZONE: "a"}),
            Hint.QUEUE,
            id="a volume moved",
        ),
        pytest.param(
            Resource.PERSISTENT_VOLUME,
            Action.UPDATE,
            volume("v", labels={ZONE: "a__b"}),
            volume("v", labels={ZONE: "b__a"}),
            Hint.SKIP,
            id="the same zones in another order",
        ),
        pytest.param(
            Resource.PERSISTENT_VOLUME,
            Action.UPDATE,
            volume("v"),
            volume("v", labels={"x": "y"}),
            Hint.SKIP,
            id="a volume changed otherwise",
        ),
    ],
)
def test_hints(resource, action, old, new, expected):
    pod = pod_with("c", EPHEMERAL)
    old = None if old is None else Built(old)
    assert hint(make(VolumeZone), resource, action, pod, old, Built(new)) is expected


def test_nodes_that_come_or_change_labels_always_bring_pods_back():
    plugin = make(VolumeZone)
    for action in (Action.ADD, Action.UPDATE_NODE_LABEL):
        assert hint(plugin, Resource.NODE, action, pod_with("c")) == "always"
    assert hint(plugin, Resource.STORAGE_CLASS, Action.UPDATE, pod_with("c")) is None
