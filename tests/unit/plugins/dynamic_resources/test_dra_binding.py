"""PreBind's writes under trouble: conflicts, claims that changed meanwhile, cancellation, time
running out.
"""

import asyncio

import pytest
from dra_objects import allocation, claim
from msgspec import convert, structs

from kubesched.api.node_selectors import ParsedNodeSelector
from kubesched.api.resource_v1 import (
    FINALIZER,
    AllocationResult,
    ResourceClaimConsumerReference,
)
from kubesched.base.clock import ManualClock
from kubesched.base.errors import Conflict, NotFound, ServerError
from kubesched.base.metrics import MetricsRegistry
from kubesched.base.metrics.scheduler import SchedulerMetrics
from kubesched.framework.handle import Handle
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.insight.state.memory import MemoryLister
from kubesched.insight.state.stored_objects import StoredObjects
from kubesched.plugins.dynamic_resources import binding
from kubesched.plugins.dynamic_resources.binding import ClaimBinder, ClaimBindingError
from kubesched.plugins.dynamic_resources.claim_lookup import pod_consumer
from kubesched.plugins.dynamic_resources.claim_tracker import ClaimTracker
from kubesched.plugins.dynamic_resources.state import ClaimInfo, DRAState, NodeAllocation
from kubesched.testing.builders import make_pod

POD = make_pod("p").uid("uid-p").build()
DEVICE = convert(allocation(("r", "s", "a")), AllocationResult)
SLOW = convert(allocation(("r", "s", "a", {"bindingConditions": ["up"]})), AllocationResult)


class Client(StoredObjects):
    """Claims in a lister; `trouble` is asked before every call."""

    def __init__(self, lister):
        self.lister = lister
        self.calls = []
        self.trouble = lambda call: None
        self.revision = 100

    def find(self, kind, namespace, name):
        return self.lister.get(namespace, name)

    def store(self, obj):
        self.revision += 1
        meta = structs.replace(obj.metadata, resource_version=str(self.revision))
        stored = structs.replace(obj, metadata=meta)
        self.lister.put(stored)
        return stored

    def discard(self, obj):
        self.lister.remove(obj.metadata.namespace, obj.metadata.name)

    def new_suffix(self):
        return "1"

    async def _called(self, name):
        self.calls.append(name)
        answer = self.trouble(name)
        if answer is not None:
            await answer

    async def get(self, kind, namespace, name):
        await self._called("get")
        return await super().get(kind, namespace, name)

    async def create(self, obj):
        await self._called("create")
        return await super().create(obj)

    async def update(self, obj):
        await self._called("update")
        return await super().update(obj)

    async def update_status(self, obj):
        await self._called("status")
        return await super().update_status(obj)

    async def patch_status(self, kind, namespace, name, patch):
        await self._called("patch")
        return await super().patch_status(kind, namespace, name, patch)

    async def delete(self, obj):
        await self._called("delete")
        await super().delete(obj)

    async def patch_pod_status(self, pod, patch):
        await self._called("pod")


class World:
    """A binder, its claims and what it spawned."""

    def __init__(self, *claims, metrics=None, **rules):
        self.lister = MemoryLister()
        for each in claims:
            self.lister.put(each)
        self.claims = ClaimTracker(self.lister)
        self.client = Client(self.lister)
        self.clock = ManualClock()
        self.spawned = []
        self.activated = []
        handle = Handle(
            NodeTable(),
            clock=self.clock,
            spawn=lambda work, what: self.spawned.append(work),
            activate=self.activated.extend,
            metrics=metrics,
        )
        self.binder = ClaimBinder(
            handle,
            self.client,
            self.claims,
            binding_timeout_s=600,
            has_binding_conditions=True,
            **rules,
        )

    async def work_off(self):
        while self.spawned:
            await self.spawned.pop(0)

    def reserved(self, *names, result=DEVICE, pod=POD):
        infos = [ClaimInfo(self.stored(name), pod_consumer(pod)) for name in names]
        for info in infos:
            if not info.is_allocated:
                info.allocation = result
                self.claims.add_in_flight(info.claim.metadata.uid, result, pod.metadata.uid)
            elif (selector := info.claim.status.allocation.node_selector) is not None:
                info.available_on = ParsedNodeSelector(selector)
        return DRAState(infos)

    def stored(self, name):
        return self.lister.get("default", name)

    async def bind(self, state):
        await self.binder.bind(state, POD, "n1")

    async def unreserve(self, state):
        self.binder.unreserve(state, POD)
        await self.finish()

    async def finish(self):
        while self.spawned:
            await self.spawned.pop(0)


def allocated_on(node_name, device):
    """The status of a claim to a device that one node has."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [node_name]}]
    selector = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {"allocation": allocation(("r", "s", device), nodeSelector=selector)}


async def turns():
    """Let everything happen that waits for nothing outside."""
    for _ in range(20):
        await asyncio.sleep(0)


def once(call, error):
    """Trouble that happens the first time something is called."""
    return nth(1, call, error)


def nth(number, call, error):
    """Trouble that happens the nth time something is called."""
    calls = []

    def trouble(name):
        calls.append(name)
        if name == call and calls.count(call) == number:
            raise error

    return trouble


async def test_finalizer_and_status_are_written_and_nothing_stays_in_flight():
    world = World(claim("c"))
    await world.bind(world.reserved("c"))
    assert world.client.calls == ["update", "status"]
    assert world.stored("c").metadata.finalizers == [FINALIZER]
    assert not world.claims.is_in_flight("uid-c")
    assert len(world.claims.allocated.exclusive) == 1


async def test_a_finalizer_that_is_there_is_not_written_again():
    world = World(claim("c", meta={"finalizers": [FINALIZER]}))
    await world.bind(world.reserved("c"))
    assert world.client.calls == ["status"]


async def test_an_allocated_claim_gets_only_the_reservation():
    stamped = {**allocation(("r", "s", "a")), "allocationTimestamp": "2026-01-01T00:00:00Z"}
    world = World(claim("c", status={"allocation": stamped}))
    await world.bind(world.reserved("c"))
    assert world.client.calls == ["status"]
    assert [each.uid for each in world.stored("c").status.reserved_for] == ["uid-p"]


async def test_a_claim_reserved_for_the_pod_is_left_alone():
    users = [{"resource": "pods", "name": "p", "uid": "uid-p"}]
    world = World(claim("c", status={"allocation": allocation(), "reservedFor": users}))
    await world.bind(world.reserved("c"))
    assert world.client.calls == []


async def test_a_conflict_is_retried_on_the_newest_version():
    world = World(claim("c"))
    world.client.trouble = once("status", Conflict("modified"))
    await world.bind(world.reserved("c"))
    assert world.client.calls == ["update", "status", "get", "status"]


async def test_pods_that_share_a_claim_reserve_it_one_after_another():
    """Each writes upon what the one before it wrote, so that there is no conflict to retry."""
    world = World(claim("c", status={"allocation": allocation(("r", "s", "a"))}))
    world.client.trouble = lambda call: turns()
    pods = [make_pod(f"p{at}").uid(f"uid-p{at}").build() for at in range(5)]
    states = [world.reserved("c", pod=pod) for pod in pods]
    bindings = [
        asyncio.create_task(world.binder.bind(state, pod, "n1"))
        for state, pod in zip(states, pods, strict=True)
    ]
    await turns()
    bindings[3].cancel()
    outcomes = await asyncio.gather(*bindings, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes].count(asyncio.CancelledError) == 1
    assert world.client.calls == ["status"] * 4, (
        "a pod that is called off while it waits writes nothing"
    )
    users = [user.name for user in world.stored("c").status.reserved_for]
    assert users == ["p0", "p1", "p2", "p4"]


async def test_conflicts_end_after_five_tries(monkeypatch):
    monkeypatch.setattr(binding, "CONFLICT_PAUSE_S", 0)
    world = World(claim("c"))

    def trouble(name):
        if name == "status":
            raise Conflict("modified")

    world.client.trouble = trouble
    with pytest.raises(ClaimBindingError) as caught:
        await world.bind(world.reserved("c"))
    assert str(caught.value) == "add allocation and reservation to claim default/c: modified"
    assert world.client.calls.count("status") == 5
    await world.work_off()
    assert not world.claims.is_in_flight("uid-c")
    assert world.claims.allocated.exclusive == {}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param(
            {"meta": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
            "claim default/c got deleted in the meantime",
            id="deleted",
        ),
        pytest.param(
            {"status": {"allocation": allocation(("r", "s", "b"))}},
            "claim default/c got allocated elsewhere in the meantime",
            id="allocated",
        ),
    ],
)
async def test_claims_that_changed_meanwhile_fail_the_binding(changes, problem):
    world = World(claim("c"))
    state = world.reserved("c")
    changed = claim("c", **changes)
    world.client.store(changed)
    with pytest.raises(ClaimBindingError) as caught:
        await world.bind(state)
    assert str(caught.value) == problem
    await world.unreserve(state)
    held = {each.device for each in world.claims.allocated.exclusive}
    assert held == ({"b"} if changed.status.allocation else set())


async def test_a_claim_that_lost_its_allocation_fails_the_binding():
    world = World(claim("c", status={"allocation": allocation(("r", "s", "a"))}))
    state = world.reserved("c")
    world.client.store(claim("c"))
    with pytest.raises(ClaimBindingError, match="got deallocated elsewhere in the meantime"):
        await world.bind(state)


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "found by a conflict"])
async def test_a_claim_that_was_allocated_anew_for_another_node_fails_the_binding(is_known):
    """Another pod had the claim deallocated, which nobody had reserved, and allocated it where it
    goes itself.
    """
    world = World(claim("c", status=allocated_on("n1", "a")))
    state = world.reserved("c")
    user = {"resource": "pods", "name": "other", "uid": "uid-other"}
    changed = claim("c", status={**allocated_on("n2", "b"), "reservedFor": [user]})
    if is_known:
        world.client.store(changed)
    else:  # the watch is late
        world.client.find = lambda *_key: changed
        world.client.trouble = once("status", Conflict("modified"))
    with pytest.raises(ClaimBindingError) as caught:
        await world.bind(state)
    assert str(caught.value) == "claim default/c got allocated elsewhere in the meantime"
    world.binder.unreserve(state, POD)
    await world.finish()
    assert world.client.calls == ([] if is_known else ["status", "get"]), "nothing was written"


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(allocated_on("n1", "b"), id="same node"),
        pytest.param({"allocation": allocation(("r", "s", "b"))}, id="all nodes"),
    ],
)
async def test_a_claim_that_was_allocated_anew_within_reach_is_reserved(status):
    world = World(claim("c", status=allocated_on("n1", "a")))
    state = world.reserved("c")
    world.client.store(claim("c", status=status))
    await world.bind(state)
    assert [each.uid for each in world.stored("c").status.reserved_for] == ["uid-p"]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("update", "add finalizer to claim default/c: down"),
        ("status", "add allocation and reservation to claim default/c: down"),
    ],
)
async def test_failed_writes_say_what_was_attempted_and_free_the_devices(call, text):
    world = World(claim("c"))
    world.client.trouble = once(call, ServerError("down"))
    state = world.reserved("c")
    with pytest.raises(ClaimBindingError) as caught:
        await world.bind(state)
    assert str(caught.value) == text
    await world.work_off()
    await world.unreserve(state)
    assert world.claims.allocated.exclusive == {}


@pytest.mark.parametrize("keeps_pending", [True, False], ids=["1.37", "1.36"])
async def test_when_devices_stop_to_be_in_flight(keeps_pending):
    """In 1.36 with the outcome for each claim; since then with that of PreBind, or with
    Unreserve.
    """
    world = World(claim("a"), claim("b"), keeps_pending=keeps_pending)
    state = world.reserved("a", "b")
    world.client.trouble = nth(2, "update", ServerError("down"))
    with pytest.raises(ClaimBindingError, match="add finalizer to claim default/b: down"):
        await world.bind(state)
    flying = [world.claims.is_in_flight(uid) for uid in ("uid-a", "uid-b")]
    assert flying == [keeps_pending, keeps_pending]
    await world.unreserve(state)
    assert world.stored("a").status.allocation is not None
    assert world.stored("a").status.reserved_for is None
    assert not world.claims.is_in_flight("uid-a")
    await world.bind(DRAState([*world.reserved("a").claims, *world.reserved("b").claims]))
    assert not world.claims.is_in_flight("uid-b")


async def test_devices_stay_taken_until_it_is_known_whether_the_allocation_was_stored(monkeypatch):
    """The write took effect, its answer was lost, and neither the watch nor a read shows it for a
    while.
    """
    monkeypatch.setattr(binding, "FIRST_PAUSE_S", 0)
    world = World(claim("c"))
    state, shown = world.reserved("c"), world.lister.put
    world.lister.put = lambda _obj: None  # the watch is silent
    hidden = {}

    async def lost(obj):
        world.client.calls.append("status")
        hidden["c"] = structs.replace(
            obj, metadata=structs.replace(obj.metadata, resource_version="500")
        )
        raise ServerError("lost")

    reads = [ServerError("down"), ServerError("down"), None]

    async def read(kind, namespace, name):
        if (trouble := reads.pop(0)) is not None:
            raise trouble
        return hidden["c"]

    world.client.update_status, world.client.get = lost, read
    with pytest.raises(ClaimBindingError, match="lost"):
        await world.bind(state)
    world.binder.unreserve(state, POD)
    assert list(world.claims.allocated.exclusive.values()) == [1]
    await world.work_off()
    assert reads == []
    assert not world.claims.is_in_flight("uid-c")
    assert list(world.claims.allocated.exclusive.values()) == [1], "now by the claim itself"
    assert world.activated == ["default/p"]
    world.lister.put = shown
    shown(hidden["c"])
    assert list(world.claims.allocated.exclusive.values()) == [1]


async def test_another_claim_of_the_same_name_does_not_get_the_devices():
    """The old one was deleted and made anew while its allocation was written; conflicts and lost
    answers in between.
    """
    world = World(claim("c", meta={"finalizers": [FINALIZER]}))
    state = world.reserved("c")
    world.client.store(claim("c", uid="uid-new"))
    world.client.trouble = once("status", Conflict("the UID in the precondition differs"))
    with pytest.raises(ClaimBindingError) as caught:
        await world.bind(state)
    assert str(caught.value) == "claim default/c got deleted in the meantime"
    world.binder.unreserve(state, POD)
    await world.work_off()
    assert world.client.calls == ["status", "get"]
    assert world.stored("c").status.allocation is None
    assert world.claims.allocated.exclusive == {}


def loses_the_answer(world, then):
    """The first write of a status is stored and shown, then something happens, and the writer meets
    a conflict.
    """
    update_status, left = world.client.update_status, [then]

    async def write(obj):
        written = await update_status(obj)
        if left:
            left.pop()(written)
            raise Conflict("modified")
        return written

    world.client.update_status = write


async def test_devices_stay_taken_while_a_conflict_may_have_them_written_again():
    """The allocation was stored, shown and removed by the claim controller before its writer heard
    of it.
    """
    world = World(claim("c", meta={"finalizers": [FINALIZER]}))
    seen = []

    def deallocate(written):
        world.client.store(structs.replace(written, status=type(written.status)()))
        seen.append(list(world.claims.allocated.exclusive.values()))

    loses_the_answer(world, deallocate)
    await world.bind(world.reserved("c"))
    assert seen == [[1]]
    assert world.client.calls == ["status", "get", "status"]
    assert not world.claims.is_in_flight("uid-c")
    assert list(world.claims.allocated.exclusive.values()) == [1]


async def test_a_pod_that_shares_a_claim_gives_back_its_own_reservation_only():
    """The watch shows the allocation, its writer waits for the answer, and another pod that
    reserved it is not bound.
    """
    world = World(claim("c", meta={"finalizers": [FINALIZER]}))
    other, seen = make_pod("q").uid("uid-q").build(), []

    def share(written):
        status = structs.replace(
            written.status,
            reserved_for=[ResourceClaimConsumerReference(resource="pods", name="q", uid="uid-q")],
        )
        world.client.store(structs.replace(written, status=status))
        world.binder.unreserve(world.reserved("c"), other)
        seen.append(world.claims.is_in_flight("uid-c"))

    loses_the_answer(world, share)
    with pytest.raises(ClaimBindingError, match="got allocated elsewhere in the meantime"):
        await world.bind(world.reserved("c"))
    assert seen == [True]
    await world.finish()
    assert "patch" in world.client.calls
    assert not world.stored("c").status.reserved_for


async def test_a_claim_that_a_late_write_allocated_for_the_pod_fails_the_binding():
    """A process that has ended sent it; its devices may be those of another node."""
    world = World(claim("c"))
    state, consumer = world.reserved("c"), {"resource": "pods", "name": "p", "uid": "uid-p"}
    status = {**allocated_on("n2", "b"), "reservedFor": [consumer]}
    world.client.store(claim("c", status=status))
    with pytest.raises(ClaimBindingError, match="got allocated elsewhere in the meantime"):
        await world.bind(state)
    await world.unreserve(state)
    assert [each.device for each in world.claims.allocated.exclusive] == ["b"]


async def test_a_claim_named_twice_fails_at_the_second_write():
    world = World(claim("c"))
    with pytest.raises(ClaimBindingError, match="got allocated elsewhere in the meantime"):
        await world.bind(world.reserved("c", "c"))


async def test_a_write_under_way_is_finished_when_prebind_is_called_off():
    world = World(claim("c"))
    go_on = asyncio.Event()
    world.client.trouble = lambda name: go_on.wait() if name == "status" else None
    state = world.reserved("c")
    task = asyncio.ensure_future(world.bind(state))
    await turns()
    assert "status" in world.client.calls
    task.cancel()
    await asyncio.sleep(0)
    assert world.claims.is_in_flight("uid-c"), "whether the devices are taken is not known yet"
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(world.claims.allocated.exclusive) == 1
    world.binder.unreserve(state, POD)
    await world.finish()
    assert world.stored("c").status.reserved_for is None
    assert world.stored("c").status.allocation is not None


# -- taking back -----------------------------------------------------------------------------------


def test_unreserve_before_prebind_frees_the_devices_without_writing():
    world = World(claim("c"))
    world.binder.unreserve(world.reserved("c"), POD)
    assert world.claims.allocated.exclusive == {}
    assert world.spawned == []


async def test_the_next_attempt_waits_until_the_reservation_is_taken_back():
    world = World(claim("c"))
    state = world.reserved("c")
    await world.bind(state)
    world.binder.unreserve(state, POD)
    again = asyncio.ensure_future(world.bind(world.reserved("c")))
    await asyncio.sleep(0)
    assert not again.done()
    await world.finish()
    await again
    assert [each.uid for each in world.stored("c").status.reserved_for] == ["uid-p"]


async def test_a_reservation_taken_back_during_the_attempt_is_made_again():
    world = World(claim("c"))
    state = world.reserved("c")
    await world.bind(state)
    again = world.reserved("c")
    world.binder.unreserve(state, POD)
    await world.finish()
    assert not world.stored("c").status.reserved_for
    await world.bind(again)
    assert [each.uid for each in world.stored("c").status.reserved_for] == ["uid-p"]


async def test_a_reservation_that_cannot_be_taken_back_is_only_logged(caplog):
    world = World(claim("c"))
    state = world.reserved("c")
    await world.bind(state)
    world.client.trouble = once("patch", ServerError("down"))
    world.binder.unreserve(state, POD)
    await world.finish()
    assert world.stored("c").status.reserved_for


async def test_a_reservation_whose_removal_got_no_answer_is_looked_up():
    """The write may have taken effect, and the watch may be late: the next attempt must not trust
    what it last saw.
    """
    world = World(claim("c"))
    state = world.reserved("c")
    await world.bind(state)

    def lose_answer(call):
        if call == "patch":
            stored = world.stored("c")
            status = structs.replace(stored.status, reserved_for=[])
            meta = structs.replace(stored.metadata, resource_version="1000")
            world.client.find = lambda *_key: structs.replace(stored, metadata=meta, status=status)
            raise ServerError("down")

    world.client.trouble = lose_answer
    world.binder.unreserve(state, POD)
    await world.finish()
    assert world.client.calls[-2:] == ["patch", "get"]
    assert not world.claims.get("default", "c").status.reserved_for


# -- the special claim -----------------------------------------------------------------------------


def special(world, mappings=("m",)):
    made = claim("<extended-resources>", uid="made-up", meta={"generateName": "p-extended-"})
    info = ClaimInfo(
        structs.replace(made, spec=type(made.spec)()), pod_consumer(POD), is_special=True
    )
    info.allocation = DEVICE
    world.claims.add_in_flight("made-up", DEVICE, POD.metadata.uid)
    chosen = NodeAllocation(None, None, None, made, list(mappings), [DEVICE])
    return DRAState([info], special_uid="made-up", allocations={"n1": chosen})


async def test_the_special_claim_is_created_written_and_named_in_the_pod():
    world = World()
    state = special(world, mappings=())
    with pytest.raises(ClaimBindingError) as caught:
        await world.bind(state)
    assert str(caught.value) == (
        "nil or empty request mappings, no update of pod default/p ExtendedResourceClaimStatus"
    )
    assert world.client.calls == ["create", "update", "status"]
    assert not world.claims.is_in_flight("made-up")
    world.binder.unreserve(state, POD)
    await world.finish()
    assert world.client.calls[3:5] == ["update", "delete"]
    assert world.lister.list() == []
    assert world.claims.allocated.exclusive == {}


async def test_a_claim_that_cannot_be_created_fails_the_binding():
    world = World()
    world.client.trouble = once("create", ServerError("quota"))
    state = special(world)
    with pytest.raises(ClaimBindingError) as caught:
        await world.bind(state)
    assert str(caught.value) == "create claim for extended resources default/: quota"
    await world.unreserve(state)
    assert world.claims.allocated.exclusive == {}


async def test_the_devices_stay_in_flight_until_the_watch_shows_the_special_claim():
    world = World()
    shown = []
    world.client.lister.put, put = shown.append, world.client.lister.put
    world.client.find = lambda kind, namespace, name: shown[-1] if shown else None
    state = special(world)
    task = asyncio.ensure_future(world.bind(state))
    await turns()
    assert len(shown) == 3
    assert world.claims.is_in_flight(shown[-1].metadata.uid)
    put(shown[-1])
    await task
    assert not world.claims.is_in_flight(shown[-1].metadata.uid)
    assert list(world.claims.allocated.exclusive.values()) == [1]


@pytest.mark.parametrize("ignores_missing", [True, False], ids=["1.37", "1.36"])
async def test_a_special_claim_that_is_gone_already(ignores_missing):
    """Its finalizer was removed, and another client deleted it first."""
    world = World(claim("c"), ignores_missing=ignores_missing)
    world.client.trouble = once("delete", NotFound("gone"))
    if ignores_missing:
        await world.binder.delete(world.stored("c"))
    else:
        with pytest.raises(NotFound):
            await world.binder.delete(world.stored("c"))


async def test_devices_of_a_special_claim_stay_taken_until_it_is_deleted(monkeypatch):
    """Its allocation was stored, the answer lost, the watch silent; deleting it takes several
    tries.
    """
    monkeypatch.setattr(binding, "FIRST_PAUSE_S", 0)
    world = World()
    state, stored = special(world), []
    world.lister.put = stored.append  # the watch is silent
    world.client.find = lambda kind, namespace, name: stored[-1] if stored else None
    update_status = world.client.update_status

    async def lost(obj):
        await update_status(obj)
        raise ServerError("lost")

    world.client.update_status = lost
    with pytest.raises(ClaimBindingError, match="lost"):
        await world.bind(state)
    assert stored[-1].status.allocation is not None
    failures = [ServerError("down"), ServerError("down")]

    def trouble(call):
        assert list(world.claims.allocated.exclusive.values()) == [1], call
        if call == "delete" and failures:
            raise failures.pop()

    world.client.trouble, world.client.discard = trouble, lambda _obj: stored.clear()
    world.binder.unreserve(state, POD)
    await world.finish()
    assert stored == failures == []
    assert world.claims.allocated.exclusive == {}
    assert not world.binder._unanswered


async def test_a_pod_status_left_unanswered_takes_the_special_claim_back():
    world = World()
    state = special(world)
    world.client.trouble = once("pod", ServerError("lost"))
    with pytest.raises(ClaimBindingError) as caught:
        await world.bind(state)
    assert str(caught.value) == "update pod default/p ExtendedResourceClaimStatus: lost"
    assert list(world.claims.allocated.exclusive.values()) == [1]
    world.binder.unreserve(state, POD)
    await world.finish()
    assert world.lister.list() == []
    assert world.claims.allocated.exclusive == {}


# -- binding conditions ----------------------------------------------------------------------------


async def test_binding_conditions_time_out(monkeypatch):
    monkeypatch.setattr(binding, "LOOK_AGAIN_S", 0)
    metrics = SchedulerMetrics(MetricsRegistry())
    world = World(claim("c"), metrics=metrics)
    task = asyncio.ensure_future(world.bind(world.reserved("c", result=SLOW)))
    await turns()
    assert "status" in world.client.calls
    world.clock.advance(601)
    with pytest.raises(ClaimBindingError) as caught:
        await task
    assert str(caught.value) == "device binding timeout: claim=c"
    cells = metrics.dra_bindingconditions_wait_duration_seconds.cells().items()
    assert [(driver, cell.count, cell.sum) for (_, driver, _), cell in cells] == [
        ("gpu.example.com", 1, 601)
    ]


async def test_a_claim_that_disappears_while_its_conditions_are_waited_for_fails_the_binding():
    world = World(claim("c"))
    task = asyncio.ensure_future(world.bind(world.reserved("c", result=SLOW)))
    await turns()
    assert "status" in world.client.calls
    world.lister.remove("default", "c")
    with pytest.raises(ClaimBindingError, match='could not find ResourceClaim "default/c"'):
        await task


async def test_a_reservation_that_was_removed_meanwhile_is_not_removed_again():
    world = World(claim("c"))
    state = world.reserved("c", result=SLOW)
    task = asyncio.ensure_future(world.bind(state))
    await turns()
    stored = world.stored("c")
    world.client.store(
        structs.replace(stored, status=structs.replace(stored.status, reserved_for=[]))
    )
    await turns()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    world.client.calls.clear()
    await world.unreserve(state)
    assert world.client.calls == []


# -- members of a group that share an allocation ---------------------------------------------------

MEMBERS = [
    make_pod(name).uid(f"uid-{name}").spec(schedulingGroup={"podGroupName": "g"}).build()
    for name in ("p1", "p2")
]
GROUP = ResourceClaimConsumerReference(
    api_group="scheduling.k8s.io", resource="podgroups", name="g", uid="uid-g"
)


def shared(world, consumer=None):
    """The states of two members after Reserve."""
    states = [world.reserved("c", pod=pod) for pod in MEMBERS]
    for state in states if consumer is not None else ():
        state.claims[0].consumer = consumer
    return states


async def bind_all(world, states):
    works = [
        world.binder.bind(state, pod, "n1") for state, pod in zip(states, MEMBERS, strict=True)
    ]
    return await asyncio.gather(*works, return_exceptions=True)


def users(world):
    return [user.name for user in world.stored("c").status.reserved_for or ()]


@pytest.mark.parametrize(("consumer", "expected"), [(None, ["p1", "p2"]), (GROUP, ["g"])])
async def test_members_write_a_shared_allocation_once(consumer, expected):
    world = World(claim("c"), of_groups=True)
    assert await bind_all(world, shared(world, consumer)) == [None, None]
    assert users(world) == expected
    assert world.client.calls.count("update") == 1
    assert not world.claims.is_in_flight("uid-c")
    assert len(world.claims.allocated.exclusive) == 1


@pytest.mark.parametrize("consumer", [None, GROUP])
async def test_a_member_whose_write_is_refused_leaves_the_devices_to_the_others(consumer):
    world = World(claim("c"), of_groups=True)
    states = shared(world, consumer)
    world.client.trouble = once("update", ServerError("down"))
    failed, bound = await bind_all(world, states)
    assert isinstance(failed, ClaimBindingError)
    assert bound is None
    world.binder.unreserve(states[0], MEMBERS[0])
    await world.finish()
    assert users(world) == [MEMBERS[1].metadata.name if consumer is None else "g"]
    assert not world.claims.is_in_flight("uid-c")
    assert len(world.claims.allocated.exclusive) == 1
    assert world.binder.is_idle()


async def test_devices_stay_taken_until_the_last_member_gave_up():
    world = World(claim("c"), of_groups=True)
    states = shared(world, GROUP)
    for state, pod, left in zip(states, MEMBERS, (1, 0), strict=True):
        world.binder.unreserve(state, pod)
        world.binder.unreserve(state, pod)  # once more changes nothing
        assert len(world.claims.allocated.exclusive) == left
    assert world.claims.is_idle()


async def test_a_member_whose_answer_was_lost_does_not_stop_the_others():
    world = World(claim("c"), of_groups=True)
    states = shared(world, GROUP)
    world.client.trouble = once("status", ServerError("lost"))
    failed, bound = await bind_all(world, states)
    assert isinstance(failed, ClaimBindingError)
    assert bound is None
    world.binder.unreserve(states[0], MEMBERS[0])
    await world.finish()
    assert users(world) == ["g"]
    assert not world.claims.is_in_flight("uid-c")
    assert len(world.claims.allocated.exclusive) == 1
    assert world.binder.is_idle()
