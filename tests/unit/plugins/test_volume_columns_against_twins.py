"""Storage plugins over columns == their scalar twins, on random worlds and after random changes.

The twins look at one pod and one node, in plain Python over plain JSON. Kept masks, counts and
groups must follow every change of nodes, pods, claims, volumes, classes, CSI objects and
attachments.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from plugin_strategies import pod_of
from scalar import storage as twin
from self_checks import check_attached
from storage_worlds import storage_worlds

from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.plugin_args import UtilizationShapePoint, VolumeBindingArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Status
from kubesched.framework.verdicts import Verdicts
from kubesched.plugins.node_volume_limits import NodeVolumeLimits
from kubesched.plugins.volume_binding import VolumeBinding
from kubesched.plugins.volume_restrictions import VolumeRestrictions
from kubesched.plugins.volume_zone import VolumeZone

thorough = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

SHAPE = ((0, 10), (40, 3), (70, 0), (100, 8))


def make(plugin, worlds, gates=None, args=None):
    handle = Handle(worlds.table, listers=worlds.listers, feature_gates=gates or DEFAULT_GATES)
    return plugin(args, handle)


def plugins(worlds):
    return [
        make(each, worlds)
        for each in (VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone)
    ]


TWINS = {
    "VolumeRestrictions": (twin.restrictions_pre_filter, twin.restrictions_filter),
    "NodeVolumeLimits": (
        twin.limits_pre_filter,
        lambda world, pod, node, _: twin.limits_filter(world, pod, node),
    ),
    "VolumeBinding": (twin.binding_pre_filter, twin.binding_filter),
    "VolumeZone": (twin.zone_pre_filter, twin.zone_filter),
}


def plain(status):
    return None if status is None else (status.code.upstream_name, *status.all_reasons)


def outcome(answer, index):
    """What a filter said about one node."""
    if answer is None or isinstance(answer, Status):
        return plain(answer)
    assert isinstance(answer, Verdicts)
    code = int(answer.codes[index])
    status = answer.describe(code) if code else None
    is_broken = answer.broken is not None and bool(answer.broken[index])
    assert is_broken == (status is not None and not status.is_rejected)
    return plain(status)


def same(plugin, ours, theirs):
    """Where several pods of a node cannot be counted, either of them may be named."""
    if isinstance(plugin, NodeVolumeLimits) and ours and theirs and ours[0] == twin.ERROR:
        return theirs[0] == twin.ERROR
    return ours == theirs


def judge(worlds, plugin, json):
    before, after = TWINS[plugin.name]
    expected = before(worlds.world, json)
    pod = pod_of(json)
    for nodes in worlds.views():
        state = CycleState()
        answer = plain(plugin.pre_filter(state, pod, nodes))
        if isinstance(expected, tuple):
            assert answer == expected
            continue
        assert answer is None
        verdicts = plugin.filter_nodes(state, pod, nodes)
        for index in range(len(nodes)):
            if nodes.alive[index]:
                name = nodes.name_at(index)
                theirs = after(worlds.world, json, name, expected)
                assert same(plugin, outcome(verdicts, index), theirs), name


@pytest.mark.slow
@thorough
@given(storage_worlds())
def test_every_plugin_equals_its_twin_in_any_world(worlds):
    for plugin in plugins(worlds):
        judge(worlds, plugin, worlds.pod("q"))


@pytest.mark.slow
@thorough
@given(storage_worlds())
def test_every_plugin_equals_its_twin_after_any_changes(worlds):
    made = plugins(worlds)
    jsons = [worlds.pod("q") for _ in range(2)]
    for _ in range(4):
        for json in jsons:
            for plugin in made:
                judge(worlds, plugin, json)
        for plugin in made:
            if isinstance(plugin, NodeVolumeLimits) and "_storage" in vars(plugin):
                check_attached(plugin._storage.attached)
        for _ in range(worlds.random.randint(1, 5)):
            worlds.change()


@pytest.mark.slow
@thorough
@given(storage_worlds())
def test_pods_added_and_removed_in_thought_count_as_if_they_were(worlds):
    """The filters that read pods, over a row in which pods come and go."""
    limits, restrictions = make(NodeVolumeLimits, worlds), make(VolumeRestrictions, worlds)
    for _ in range(3):
        worlds.add_pod()
    json, world = worlds.pod("q"), worlds.world
    pod, nodes = pod_of(json), worlds.views()[0]
    for name in world.nodes:
        row = worlds.table.row_of[name]
        removed = [other for other in world.pods_on(name) if worlds.chance(0.5)]
        added = [
            other
            for other in world.pods.values()
            if other["spec"]["nodeName"] != name and worlds.chance(0.3)
        ]
        view = nodes.what_if(
            row,
            add=[worlds.info_of(other) for other in added],
            remove=[worlds.info_of(other) for other in removed],
        )
        imagined = twin.World()
        imagined.__dict__.update(world.__dict__)
        imagined.pods = {uid: other for uid, other in world.pods.items() if other not in removed}
        for other in added:
            moved = {**other, "spec": {**other["spec"], "nodeName": name}}
            imagined.pods[other["metadata"]["uid"]] = moved
        if twin.limits_pre_filter(world, json) is None:
            answer = limits.filter_nodes(CycleState(), pod, view)
            assert same(limits, outcome(answer, 0), twin.limits_filter(imagined, json, name))
        expected = twin.restrictions_pre_filter(world, json)
        if not isinstance(expected, tuple):
            state = CycleState()
            assert restrictions.pre_filter(state, pod, nodes) is None
            for other in removed:
                restrictions.remove_pod(state, pod, worlds.info_of(other), view)
                expected -= named_by(other, world, json)
            for other in added:
                restrictions.add_pod(state, pod, worlds.info_of(other), view)
                expected += named_by(other, world, json)
            answer = restrictions.filter_nodes(state, pod, view)
            assert outcome(answer, 0) == twin.restrictions_filter(imagined, json, name, expected)


def named_by(other, world, json):
    """How many of a pod's volumes name an exclusive claim of the pending pod; namespaces do not
    matter.
    """
    mine = {
        name
        for volume in twin.volumes_of(json)
        if "persistentVolumeClaim" in volume
        for name in [volume["persistentVolumeClaim"].get("claimName", "")]
        if "ReadWriteOncePod"
        in (twin.find_claim(world, json, name)["spec"].get("accessModes") or [])
    }
    return sum(
        volume["persistentVolumeClaim"].get("claimName", "") in mine
        for volume in twin.volumes_of(other)
        if "persistentVolumeClaim" in volume
    )


@thorough
@given(storage_worlds())
def test_reserve_takes_what_the_twin_finds_for_the_node(worlds):
    plugin, json = make(VolumeBinding, worlds), worlds.pod("q")
    claims, pod = twin.binding_pre_filter(worlds.world, json), pod_of(json)
    if isinstance(claims, tuple):
        return
    for name in worlds.world.nodes:
        if twin.binding_filter(worlds.world, json, name, claims) is not None:
            continue
        state = CycleState()
        nodes = worlds.random.choice(worlds.views())
        assert plugin.pre_filter(state, pod, nodes) is None
        plugin.filter_nodes(state, pod, nodes)
        assert plugin.reserve(state, pod, name) is None
        data = state.read("VolumeBinding")
        if data.all_bound:
            assert not claims[1]
            continue
        _, matched, provisioned = twin.find_volumes(worlds.world, name, *claims)
        reserved = data.reserved[name]
        assert [
            (binding.claim.metadata.name, binding.volume.metadata.name)
            for binding in reserved.bindings
        ] == [(claim["metadata"]["name"], volume["metadata"]["name"]) for claim, volume in matched]
        assert [claim.metadata.name for claim in reserved.provisions] == [
            claim["metadata"]["name"] for claim, _ in provisioned
        ]
        plugin.unreserve(state, pod, name)
        assert twin.binding_filter(worlds.world, json, name, claims) is None


@thorough
@given(storage_worlds())
def test_capacity_scores_equal_their_twin(worlds):
    points = tuple(UtilizationShapePoint(utilization=at, score=score) for at, score in SHAPE)
    gates = FeatureGates(StorageCapacityScoring=True)
    plugin = make(VolumeBinding, worlds, gates, VolumeBindingArgs(shape=points))
    json = worlds.pod("q")
    claims, pod = twin.binding_pre_filter(worlds.world, json), pod_of(json)
    if isinstance(claims, tuple):
        return
    fitting = [
        name
        for name in worlds.world.nodes
        if twin.binding_filter(worlds.world, json, name, claims) is None
    ]
    if not fitting:
        return
    state, nodes = CycleState(), worlds.views()[0]
    assert plugin.pre_filter(state, pod, nodes) is None
    feasible = NodeColumns(worlds.table, np.array([worlds.table.row_of[n] for n in fitting]))
    assert plugin.pre_score(state, pod, feasible) is None
    scores = plugin.score_nodes(state, pod, feasible).tolist()
    expected = [twin.binding_score(worlds.world, name, claims, SHAPE) for name in fitting]
    assert scores == expected
    assert all(0 <= score <= 100 for score in scores)


@thorough
@given(storage_worlds())
def test_a_pod_that_is_reserved_leaves_the_rest_to_others(worlds):
    """Assumed volumes and claims are seen by the next pod exactly as if they had been written."""
    plugin, first, second = make(VolumeBinding, worlds), worlds.pod("q"), worlds.pod("r")
    pod, claims = pod_of(first), twin.binding_pre_filter(worlds.world, first)
    if isinstance(claims, tuple):
        return
    name = next(
        (
            name
            for name in worlds.world.nodes
            if twin.binding_filter(worlds.world, first, name, claims) is None
        ),
        None,
    )
    if name is None:
        return
    state, nodes = CycleState(), worlds.views()[0]
    assert plugin.pre_filter(state, pod, nodes) is None
    plugin.filter_nodes(state, pod, nodes)
    assert plugin.reserve(state, pod, name) is None
    data = state.read("VolumeBinding")
    world = worlds.world
    for binding in () if data.all_bound else data.reserved[name].bindings:
        meta = binding.claim.metadata
        reference = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
        volume = world.volumes[binding.volume.metadata.name]
        spec = {**volume["spec"], "claimRef": reference}
        world.volumes[binding.volume.metadata.name] = {**volume, "spec": spec}
    for claim in () if data.all_bound else data.reserved[name].provisions:
        key = claim.metadata.namespace, claim.metadata.name
        found = world.claims[key]
        annotations = {**twin.annotations(found), twin.SELECTED: name}
        world.claims[key] = {**found, "metadata": {**found["metadata"], "annotations": annotations}}
    judge(worlds, plugin, second)
    assert plugin.pre_bind_pre_flight(state, pod, name).skip is data.all_bound
