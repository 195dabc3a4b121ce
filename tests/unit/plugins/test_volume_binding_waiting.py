"""VolumeBinding in PreBind, after its writes: what is waited for, and what ends the wait."""

import asyncio

import msgspec
import pytest
from storage_objects import (
    BIND_COMPLETED,
    EPHEMERAL,
    HOSTNAME,
    SELECTED_NODE,
    capacity,
    claim,
    csi_driver,
    csi_node,
    in_zone,
    pod_with,
    storage_class,
    volume,
)
from volume_binding_world import NO_PROVISIONER, World, dynamic, settled, static

from kubesched.api.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Code
from kubesched.plugins.volume_binding import binding
from kubesched.testing import make_node, make_pod


@pytest.fixture(autouse=True)
def _woken(monkeypatch):
    """A binding must be woken: in time it does not look again by itself."""
    monkeypatch.setattr(binding, "LOOK_AGAIN_S", 3600)


async def waiting(world, pod=None, node="n1"):
    """A binding that has written and waits."""
    state, built = world.reserve(pod or pod_with("c"), node)
    task = asyncio.create_task(world.pre_bind(state, built, node))
    await settled(lambda: world.api.written)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    return task


async def outcome(task):
    async with asyncio.timeout(5):
        answer = await task
    prefix = 'running PreBind plugin "VolumeBinding": binding volumes: '
    assert answer.code is Code.ERROR
    assert answer.message.startswith(prefix)
    return answer.message.removeprefix(prefix)


async def test_our_own_write_must_come_back_before_anything_is_believed():
    world = static()
    world.api.is_lagging = True
    task = await waiting(world)
    found = world.claim("c")
    annotations = {**found.metadata.annotations, BIND_COMPLETED: "yes"}
    world.change(found, annotations=annotations, volume_name="v")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (
        not task.done()
    )  # the volume the watch shows does not name the claim yet, and that is no error
    world.api.show()
    assert await task is None


async def test_a_volume_that_is_deleted_before_our_write_came_back_fails_the_binding():
    world = static()
    world.api.is_lagging = True
    task = await waiting(world)
    world.listers.remove(world.volume("v"))
    assert await outcome(task) == 'failed to check binding: persistentvolumes "v" not found'


async def test_a_volume_that_lost_its_claim_fails_the_binding():
    world = static()
    task = await waiting(world)
    world.change(world.volume("v"), claim_ref=None)
    assert await outcome(task) == 'ClaimRef got reset for pv "v"'
    assert world.failures("bind") == 1


async def test_a_volume_whose_claim_lost_its_uid_fails_the_binding():
    world = static()
    task = await waiting(world)
    found = world.volume("v")
    world.change(found, claim_ref=msgspec.structs.replace(found.spec.claim_ref, uid=""))
    assert await outcome(task) == 'ClaimRef got reset for pv "v"'


async def test_a_volume_that_moved_away_fails_the_binding():
    world = static()
    task = await waiting(world)
    moved = volume("v", reach=in_zone("b"), reserved=("c", "uid-default-c"), version="500")
    world.listers.put(moved)
    assert await outcome(task) == (
        'pv "v" node affinity doesn\'t match node "n1": no matching NodeSelectorTerms'
    )


async def test_a_claim_that_got_another_volume_out_of_reach_fails_the_binding():
    """Another pod with the same claim was placed elsewhere meanwhile."""
    world = static(volume("elsewhere", reach=in_zone("b")))
    task = await waiting(world)
    found = world.claim("c")
    annotations = {**found.metadata.annotations, BIND_COMPLETED: "yes"}
    world.change(found, annotations=annotations, volume_name="elsewhere")
    assert await outcome(task) == (
        'pv "elsewhere" node affinity doesn\'t match node "n1": no matching NodeSelectorTerms'
    )


async def test_a_claim_that_was_replaced_fails_the_binding_at_once():
    world = static()
    task = await waiting(world)
    found = world.claim("c")
    replaced = msgspec.structs.replace(found.metadata, uid="another", resource_version="500")
    world.listers.put(msgspec.structs.replace(found, metadata=replaced))
    assert await outcome(task) == (
        'failed to check binding: persistentvolumeclaim "default/c" was replaced by another'
    )


async def test_a_node_that_lost_its_label_fails_the_binding():
    world = World(
        claim("c"),
        volume("v", reach=in_zone("a")),
        storage_class(provisioner=NO_PROVISIONER),
    )
    task = await waiting(world)
    world.listers.put(make_node("n1").build())
    assert "node affinity doesn't match" in await outcome(task)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        pytest.param(
            PersistentVolume,
            'failed to check binding: persistentvolumes "v" not found',
            id="the volume",
        ),
        pytest.param(
            PersistentVolumeClaim,
            'failed to check binding: persistentvolumeclaims "default/c" not found',
            id="the claim",
        ),
        pytest.param(Node, 'failed to get node "n1": node "n1" not found', id="the node"),
        pytest.param(Pod, 'pod does not exist any more: pod "p" not found', id="the pod"),
    ],
)
async def test_something_deleted_while_waiting_fails_the_binding(kind, text):
    world = static()
    task = await waiting(world)
    names = {PersistentVolume: "v", PersistentVolumeClaim: "c", Node: "n1", Pod: "p"}
    namespace = "default" if kind in (PersistentVolumeClaim, Pod) else ""
    world.listers.remove(world.listers.of(kind).get(namespace, names[kind]))
    assert await outcome(task) == text


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        pytest.param(None, 'selectedNode annotation reset for PVC "c"', id="no annotations at all"),
        pytest.param({}, 'provisioning failed for PVC "c"', id="the node's name was taken off"),
        pytest.param(
            {SELECTED_NODE: "n2"}, 'provisioning failed for PVC "c"', id="another node was named"
        ),
    ],
)
async def test_a_claim_that_lost_its_node_fails_the_binding(annotations, text):
    world = dynamic()
    task = await waiting(world)
    world.change(world.claim("c"), annotations=annotations)
    assert await outcome(task) == text


async def test_a_claim_to_be_provisioned_that_is_deleted_fails_the_binding():
    world = dynamic()
    task = await waiting(world)
    world.listers.remove(world.claim("c"))
    assert await outcome(task) == (
        'failed to check provisioning pvc: persistentvolumeclaims "default/c" not found'
    )


async def test_a_provisioned_volume_that_is_not_visible_yet_is_waited_for():
    world = dynamic()
    task = await waiting(world)
    world.complete("c", "made")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not task.done()
    world.listers.put(volume("made", reserved=("c", "uid-default-c")))
    assert await task is None


async def test_a_volume_provisioned_out_of_reach_fails_the_binding():
    world = dynamic()
    task = await waiting(world)
    world.listers.put(volume("made", reach=in_zone("b"), reserved=("c", "uid-default-c")))
    world.complete("c", "made")
    assert await outcome(task) == (
        'pv "made" node affinity doesn\'t match node "n1": no matching NodeSelectorTerms'
    )


async def test_a_provisioned_claim_that_is_not_complete_is_waited_for():
    world = dynamic()
    task = await waiting(world)
    found = world.claim("c")
    world.listers.put(volume("made"))
    world.change(found, annotations=found.metadata.annotations, volume_name="made")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not task.done()
    world.complete("c", "made")
    assert await task is None


async def test_migrated_volumes_are_checked_with_the_drivers_label():
    plugin = "kubernetes.io/aws-ebs"
    world = World(
        claim("c"),
        volume("v", reach=in_zone("a"), awsElasticBlockStore={"volumeID": "vol-1"}),
        csi_node("n1", migrated=[plugin]),
        storage_class(provisioner=NO_PROVISIONER),
    )
    state, pod = world.reserve(pod_with("c"))  # static volumes are matched untranslated
    answer = await world.pre_bind(state, pod)
    assert "node affinity doesn't match" in answer.message
    disk = {"azureDisk": {"diskURI": "d", "kind": "Dedicated"}}
    broken = World(
        claim("c"),
        volume("v", **disk),
        csi_node("n1", migrated=["kubernetes.io/azure-disk"]),
        storage_class(provisioner=NO_PROVISIONER),
    )
    state, pod = broken.reserve(pod_with("c"))
    answer = await broken.pre_bind(state, pod)
    assert answer.message.endswith(
        "binding volumes: failed to translate pv to csi: could not translate pv:"
        " kind(Dedicated) is not supported in csi migration"
    )


async def test_time_runs_out_on_the_injected_clock():
    world = static(timeout_s=600)
    task = await waiting(world)
    world.clock.advance(599)
    world.change(world.volume("v"), claim_ref=world.volume("v").spec.claim_ref)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not task.done()
    world.clock.advance(2)
    world.change(world.volume("v"), claim_ref=world.volume("v").spec.claim_ref)
    assert await outcome(task) == "context deadline exceeded"


async def test_with_no_time_at_all_the_writes_happen_and_then_it_fails():
    world = static(timeout_s=0)
    state, pod = world.reserve(pod_with("c"))
    answer = await world.pre_bind(state, pod)
    assert answer.message.endswith("binding volumes: context deadline exceeded")
    assert len(world.api.written) == 1


async def test_a_cancelled_wait_leaves_no_listener():
    world = static()
    task = await waiting(world)
    assert world.plugin._binder._signals._waiting
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not world.plugin._binder._signals._waiting
    assert not world.plugin._binder._signals._stops


async def test_many_bindings_wait_through_one_listener_per_kind():
    claims = [claim(f"c{number}") for number in range(20)]
    world = World(*claims, storage_class())
    tasks = []
    for number in range(20):
        state, pod = world.reserve(pod_with(f"c{number}", name=f"p{number}"))
        tasks.append(asyncio.create_task(world.pre_bind(state, pod)))
    await settled(lambda: len(world.api.written) == 20)
    assert len(world.plugin._binder._signals._stops) == 4
    world.listers.put(volume("made"))
    for number in range(20):
        world.complete(f"c{number}", "made")
    async with asyncio.timeout(5):
        assert await asyncio.gather(*tasks) == [None] * 20
    assert not world.plugin._binder._signals._stops


async def test_nothing_to_write_and_nothing_to_wait_for():
    world = static()
    state, pod = world.filter(pod_with("c"))
    data = state.read("VolumeBinding")
    data.all_bound = True
    assert await world.plugin.pre_bind(state, pod, "n1") is None
    no_claims, plain = CycleState(), make_pod("q").build()
    world.plugin.pre_filter(no_claims, plain, NodeColumns(world.table))
    assert await world.plugin.pre_bind(no_claims, plain, "n1") is None
    assert (await world.plugin.pre_bind(CycleState(), pod, "n1")).message == "not found"
    data.all_bound = False
    lost = await world.plugin.pre_bind(state, pod, "n1")
    assert lost.message == 'no pod volume found for node "n1"'


async def test_closing_the_plugin_stops_all_listening():
    world = dynamic(
        csi_driver(storageCapacity=True), capacity("k", segment={HOSTNAME: "n1"}, capacity="1Ti")
    )
    await_me = await waiting(world)
    world.plugin.close()
    world.listers.put(volume("late"))
    await_me.cancel()
    with pytest.raises(asyncio.CancelledError):
        await await_me


async def test_an_ephemeral_claim_is_bound_like_any_other():
    pod = pod_with(EPHEMERAL, uid="uid-p")
    world = World(claim("p-v0", owner="uid-p"), storage_class())
    task = await waiting(world, pod)
    world.listers.put(volume("made"))
    world.complete("p-v0", "made")
    assert await task is None


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [("2", "1", True), ("1", "1", False), ("1", "2", False), ("10", "9", True), ("x", "1", False)],
)
def test_revisions_are_compared_as_numbers(mine, theirs, expected):
    written, listed = volume("v", version=mine), volume("v", version=theirs)
    assert written.metadata.is_newer_than(listed.metadata) is expected
