"""VolumeBinding from Reserve to PreBind: what is assumed, written, waited for, and what becomes of failures."""

import asyncio

import msgspec
import pytest
from judging import cluster
from storage_objects import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    EPHEMERAL,
    HOSTNAME,
    SELECTED_NODE,
    MemoryListers,
    capacity,
    claim,
    csi_driver,
    csi_node,
    in_zone,
    on_node,
    pod_with,
    storage_class,
    volume,
)

from kubesched.api.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.clock import ManualClock
from kubesched.config.plugin_args import VolumeBindingArgs
from kubesched.errors import Conflict
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.runtime.bind import run_pre_bind
from kubesched.framework.status import Code
from kubesched.metrics.registry import Registry
from kubesched.metrics.scheduler import SchedulerMetrics
from kubesched.plugins.volume_binding.binding import bound_volume, is_newer
from kubesched.snapshot.views import NodeColumns
from kubesched.testing import make_node, make_pod
from kubesched.testing.frameworks import framework_of

NO_PROVISIONER = "kubernetes.io/no-provisioner"


class Api:
    """Takes writes, gives out revisions, and fails when told to. The watch shows what was written when asked to."""

    def __init__(self, listers):
        self.listers = listers
        self.written = []
        self.fail_at = None
        self.is_lagging = False
        self.revision = 100

    async def update(self, obj):
        if self.fail_at is not None and len(self.written) == self.fail_at:
            raise Conflict(f'Operation cannot be fulfilled on "{obj.metadata.name}"')
        self.revision += 1
        meta = msgspec.structs.replace(obj.metadata, resource_version=str(self.revision))
        obj = msgspec.structs.replace(obj, metadata=meta)
        self.written.append(obj)
        if not self.is_lagging:
            self.listers.put(obj)
        return obj

    def show(self):
        for obj in self.written:
            self.listers.put(obj)


class World:
    """Nodes n1 (zone a) and n2 (zone b), storage, an API, and the plugin."""

    def __init__(self, *objects, timeout_s=600):
        self.nodes = [make_node("n1").zone("a"), make_node("n2").zone("b")]
        self.table = cluster(*self.nodes)
        self.listers = MemoryListers(*objects, *(node.build() for node in self.nodes))
        self.api = Api(self.listers)
        self.clock = ManualClock()
        self.registry = Registry()
        self.handle = Handle(
            self.table,
            clock=self.clock,
            listers=self.listers,
            client=self.api,
            metrics=SchedulerMetrics(self.registry),
        )
        args = VolumeBindingArgs(bind_timeout_seconds=timeout_s)
        self.framework = framework_of(
            self.table, "VolumeBinding", args={"VolumeBinding": args}, handle=self.handle
        )
        (self.plugin,) = self.framework.reserve

    def failures(self, stage):
        return self.handle.metrics.volume_scheduling_stage_error_total.labels(stage).value

    def filter(self, pod):
        """Run the filter for all nodes; returns the state and the pod."""
        built, state = pod.build(), CycleState()
        self.listers.put(built)
        nodes = NodeColumns(self.table)
        assert self.plugin.pre_filter(state, built, nodes) is None
        self.plugin.filter_nodes(state, built, nodes)
        return state, built

    def reserve(self, pod, node="n1"):
        state, built = self.filter(pod)
        assert self.plugin.reserve(state, built, node) is None
        return state, built

    def pre_bind(self, state, pod, node="n1"):
        return run_pre_bind(self.framework, state, pod, node)

    def volume(self, name):
        return self.listers.of(PersistentVolume).get("", name)

    def claim(self, name):
        return self.listers.of(PersistentVolumeClaim).get("default", name)

    def complete(self, claim_name, volume_name):
        """What the volume controller does."""
        found = self.claim(claim_name)
        annotations = {**(found.metadata.annotations or {}), BIND_COMPLETED: "yes"}
        self.change(found, annotations=annotations, volume_name=volume_name)

    def change(self, obj, annotations=None, **spec):
        """Somebody else writes an object: its metadata's annotations and parts of its spec."""
        self.api.revision += 1
        meta = msgspec.structs.replace(
            obj.metadata, resource_version=str(self.api.revision), annotations=annotations
        )
        replace = msgspec.structs.replace
        self.listers.put(replace(obj, metadata=meta, spec=replace(obj.spec, **spec)))


def static(*objects, **fields):
    """One claim and one volume for it."""
    return World(
        claim("c"),
        volume("v"),
        storage_class(provisioner=NO_PROVISIONER),
        *objects,
        **fields,
    )


def dynamic(*objects, **fields):
    return World(claim("c"), storage_class(), *objects, **fields)


async def settled(condition, *, steps=1000):
    """Let other tasks run until a condition holds."""
    for _ in range(steps):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition never held")


# -- reserve -----------------------------------------------------------------------------------------------------------


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
    nodes = NodeColumns(world.table).subset(NodeColumns(world.table).row_indices()[:1])
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


# -- writing -----------------------------------------------------------------------------------------------------------


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
    # What was written is still assumed, until the watch shows it: another pod must not take it meanwhile.
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


# -- waiting -----------------------------------------------------------------------------------------------------------


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


async def test_a_wait_that_is_called_off_leaves_nobody_listening():
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
    assert is_newer(volume("v", version=mine), volume("v", version=theirs)) is expected
