"""VolumeBinding in Reserve and its writes in PreBind: what is assumed, what is written, what is
taken back.
"""

import asyncio

import msgspec
import numpy as np
import pytest
from storage_objects import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    claim,
    in_zone,
    on_node,
    pod_with,
    storage_class,
    volume,
)
from volume_binding_world import NO_PROVISIONER, World, dynamic, settled, static

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Code
from kubesched.plugins.volume_binding.binding import bound_volume

# -- reserve ---------------------------------------------------------------------------------------


def test_a_matched_volume_is_assumed_to_name_the_claim():
    world = static()
    state, pod = world.reserve(pod_with("c"))
    assumed = world.plugin._storage.volumes.get("v")
    reference = assumed.spec.claim_ref
    assert msgspec.to_builtins(reference) == {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "name": "c",
        "namespace": "default",
        "uid": "uid-default-c",
        "resourceVersion": "1",
    }
    assert assumed.metadata.annotations == {BOUND_BY_CONTROLLER: "yes"}
    assert world.volume("v").spec.claim_ref is None
    assert world.api.written == []
    result = world.plugin.pre_bind_pre_flight(state, pod, "n1")
    assert (result.allow_parallel, result.skip) == (True, False)


def test_what_is_assumed_is_not_given_to_another_claim_until_it_is_taken_back():
    world = static(claim("d"))
    state, pod = world.reserve(pod_with("c"))
    nodes = NodeColumns(world.table)
    other_state, other = world.filter(pod_with("d", name="q"))
    assert world.plugin.filter_nodes(other_state, other, nodes).codes.all()
    world.plugin.unreserve(state, pod, "n1")
    world.plugin.unreserve(state, pod, "n1")
    assert world.plugin.filter_nodes(other_state, other, nodes) is None


def test_the_assumed_volume_is_the_answer_for_another_pod_of_the_same_claim():
    world = World(
        claim("c"),
        volume("v1", reach=on_node("n1")),
        volume("v2", reach=on_node("n2")),
        storage_class(provisioner=NO_PROVISIONER),
    )
    world.reserve(pod_with("c"))
    state, pod = world.filter(pod_with("c", name="q"))
    codes = world.plugin.filter_nodes(state, pod, NodeColumns(world.table)).codes
    assert [bool(codes[world.table.row_of[name]]) for name in ("n1", "n2")] == [False, True]


@pytest.mark.parametrize(
    ("reserved", "annotated", "changed"),
    [
        pytest.param(None, True, True, id="a free volume gets both"),
        pytest.param(("c", ""), False, True, id="one reserved by hand gets the UID but no mark"),
        pytest.param(
            ("c", "uid-default-c"), False, False, id="one that says it all stays as it is"
        ),
    ],
)
def test_how_a_volume_comes_to_name_a_claim(reserved, annotated, changed):
    given = volume("v", reserved=reserved)
    result = bound_volume(given, claim("c"))
    assert (result is not given) is changed
    assert result.spec.claim_ref.uid == "uid-default-c"
    assert (BOUND_BY_CONTROLLER in (result.metadata.annotations or {})) is annotated


def test_a_mark_that_is_there_keeps_its_value():
    given = volume("v", annotations={BOUND_BY_CONTROLLER: "indeed"})
    assert bound_volume(given, claim("c")).metadata.annotations == {BOUND_BY_CONTROLLER: "indeed"}


def test_a_claim_to_be_provisioned_is_assumed_to_name_the_node():
    world = dynamic()
    world.reserve(pod_with("c"), "n2")
    assumed = world.plugin._storage.claims.get("default/c")
    assert assumed.metadata.annotations[SELECTED_NODE] == "n2"
    assert SELECTED_NODE not in world.claim("c").metadata.annotations
    state, pod = world.filter(pod_with("c", name="q"))
    codes = world.plugin.filter_nodes(state, pod, NodeColumns(world.table)).codes
    assert codes.tolist() == [1, 0]


def test_the_node_that_was_chosen_decides_which_volume_is_taken():
    world = World(
        claim("c"),
        volume("v1", reach=on_node("n1")),
        volume("big", reach=in_zone("b"), size="9Gi"),
        volume("v2", reach=in_zone("b", "c"), size="2Gi"),
        storage_class(provisioner=NO_PROVISIONER),
    )
    for node, expected in (("n1", "v1"), ("n2", "v2")):
        state, pod = world.reserve(pod_with("c"), node)
        (reserved,) = state.read("VolumeBinding").reserved.values()
        assert [binding.volume.metadata.name for binding in reserved.bindings] == [expected]
        world.plugin.unreserve(state, pod, node)


def test_reserving_a_node_that_was_filtered_alone_comes_to_the_same():
    world = static()
    built, state = pod_with("c").build(), CycleState()
    nodes = NodeColumns(world.table, np.array([0]))
    assert world.plugin.pre_filter(state, built, nodes) is None
    assert world.plugin.filter_nodes(state, built, nodes) is None
    assert world.plugin.reserve(state, built, "n1") is None
    assert world.plugin._storage.volumes.get("v").spec.claim_ref.name == "c"


def test_large_and_small_claims_are_given_their_volumes_and_the_rest_is_provisioned():
    world = World(
        claim("large", size="10Gi"),
        claim("small", size="1Gi"),
        claim("none", size="100Gi"),
        volume("v10", size="10Gi"),
        volume("v1", size="1Gi"),
        storage_class(),
    )
    state, _ = world.reserve(pod_with("large", "none", "small"))
    (reserved,) = state.read("VolumeBinding").reserved.values()
    assert [(b.claim.metadata.name, b.volume.metadata.name) for b in reserved.bindings] == [
        ("small", "v1"),
        ("large", "v10"),
    ]
    assert [c.metadata.name for c in reserved.provisions] == ["none"]


def test_bound_claims_leave_nothing_to_do():
    world = World(claim("c", volume="v"), volume("v"))
    state, pod = world.reserve(pod_with("c"))
    assert world.plugin.pre_bind_pre_flight(state, pod, "n1").skip


def test_claims_that_were_bound_meanwhile_leave_nothing_to_do():
    world = static()
    state, pod = world.filter(pod_with("c"))
    world.complete("c", "v")
    assert world.plugin.reserve(state, pod, "n1") is None
    assert world.plugin.pre_bind_pre_flight(state, pod, "n1").skip
    assert len(world.plugin._storage.volumes) == 0


def test_a_node_that_is_gone_has_nothing_to_reserve():
    world = static()
    state, pod = world.filter(pod_with("c"))
    assert world.plugin.reserve(state, pod, "gone") is None
    assert world.plugin.pre_bind_pre_flight(state, pod, "gone").skip


def test_pre_flight_for_a_node_that_was_not_reserved_is_an_error():
    world = static()
    state, pod = world.reserve(pod_with("c"))
    answer = world.plugin.pre_bind_pre_flight(state, pod, "n2")
    assert (answer.code, answer.message) == (Code.ERROR, 'no pod volume found for node "n2"')
    lost = world.plugin.pre_bind_pre_flight(CycleState(), pod, "n1")
    assert (lost.code, lost.message) == (Code.ERROR, "not found")
    assert world.plugin.reserve(CycleState(), pod, "n1").message == "not found"


def test_a_volume_that_vanished_fails_the_reservation_and_undoes_the_rest():
    world = World(
        claim("c", size="1Gi"),
        claim("d", size="2Gi"),
        volume("v1", size="1Gi"),
        volume("v2", size="2Gi"),
        storage_class(provisioner=NO_PROVISIONER),
    )
    state, pod = world.filter(pod_with("c", "d"))
    world.listers.remove(volume("v2"))
    answer = world.plugin.reserve(state, pod, "n1")
    assert (answer.code, answer.message) == (Code.ERROR, 'persistentvolumes "v2" not found')
    assert world.plugin._storage.volumes.get("v1").spec.claim_ref is None
    assert world.failures("assume") == 1


def test_a_claim_that_changed_fails_the_reservation_and_undoes_the_rest():
    world = World(claim("s"), claim("d", size="9Gi"), volume("v"), storage_class())
    state, pod = world.filter(pod_with("s", "d"))
    world.listers.put(claim("d", size="9Gi", version="2"))
    answer = world.plugin.reserve(state, pod, "n1")
    assert answer.code is Code.ERROR
    assert answer.message == '"default/d" is out of sync (stored: 2, assume: 1)'
    assert world.plugin._storage.volumes.get("v").spec.claim_ref is None


# -- writing ---------------------------------------------------------------------------------------


async def test_volumes_are_written_before_claims_and_then_waited_for():
    world = World(claim("s"), claim("d", size="9Gi"), volume("v"), storage_class())
    state, pod = world.reserve(pod_with("d", "s"))
    task = asyncio.create_task(world.pre_bind(state, pod))
    await settled(lambda: len(world.api.written) == 2)
    first, second = world.api.written
    assert (first.metadata.name, first.spec.claim_ref.name) == ("v", "s")
    assert second.metadata.name == "d"
    assert second.metadata.annotations[SELECTED_NODE] == "n1"
    world.complete("s", "v")
    await asyncio.sleep(0)
    assert not task.done()
    world.complete("d", "made")
    world.listers.put(volume("made", reach=in_zone("a"), reserved=("d", "uid-default-d")))
    assert await task is None
    assert world.failures("bind") == 0


async def test_a_volume_reserved_completely_is_written_all_the_same():
    world = World(
        claim("c"),
        volume("v", reserved=("c", "uid-default-c")),
        storage_class(provisioner=NO_PROVISIONER),
    )
    state, pod = world.reserve(pod_with("c"))
    task = asyncio.create_task(world.pre_bind(state, pod))
    await settled(lambda: world.api.written)
    world.complete("c", "v")
    assert await task is None


@pytest.mark.parametrize("fail_at", [0, 1, 2, 3])
async def test_a_failed_write_keeps_what_was_written_and_restores_the_rest(fail_at):
    world = World(
        claim("s1", size="1Gi"),
        claim("s2", size="2Gi"),
        claim("d1", size="7Gi"),
        claim("d2", size="8Gi"),
        volume("v1", size="1Gi"),
        volume("v2", size="2Gi"),
        storage_class(),
    )
    world.api.fail_at = fail_at
    world.api.is_lagging = True
    state, pod = world.reserve(pod_with("s1", "s2", "d1", "d2"))
    answer = await world.pre_bind(state, pod)
    assert answer.code is Code.ERROR
    name = ["v1", "v2", "d1", "d2"][fail_at]
    assert answer.message == (
        f'running PreBind plugin "VolumeBinding": Operation cannot be fulfilled on "{name}"'
    )
    storage = world.plugin._storage
    assumed = [
        storage.volumes.get("v1").spec.claim_ref is not None,
        storage.volumes.get("v2").spec.claim_ref is not None,
        SELECTED_NODE in storage.claims.get("default/d1").metadata.annotations,
        SELECTED_NODE in storage.claims.get("default/d2").metadata.annotations,
    ]
    assert assumed == [at < fail_at for at in range(4)]
    assert world.failures("bind") == 1
    # What was written is still assumed, until the watch shows it: another pod must not take it
    # meanwhile.
    world.plugin.unreserve(state, pod, "n1")
    assert (storage.volumes.get("v1").spec.claim_ref is not None) is (fail_at > 0)
    world.api.show()
    assert (storage.volumes.get("v1").spec.claim_ref is not None) is (fail_at > 0)


async def test_a_write_that_is_called_off_restores_what_was_not_written():
    world = static()
    started = asyncio.Event()

    async def hang(obj):
        started.set()
        await asyncio.Event().wait()

    world.api.update = hang
    state, pod = world.reserve(pod_with("c"))
    task = asyncio.create_task(world.pre_bind(state, pod))
    await started.wait()
    assert world.plugin._storage.volumes.get("v").spec.claim_ref is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.plugin._storage.volumes.get("v").spec.claim_ref is None
