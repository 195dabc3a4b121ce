"""Pod groups at their edges: other schedulers, deletions, budgets, plugins; numbers as in the
spec.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, ClassVar

import dra_objects
import pytest
from group_scenarios import NV, PUS, Groups
from msgspec import structs

from kubesched.api import codec
from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.api.scheduling_v1alpha3 import CompositePodGroup
from kubesched.api.scheduling_v1beta1 import PodGroup, PodGroupStatus
from kubesched.base.errors import Conflict, KubeschedError
from kubesched.client.informers.informer import DeletedFinalStateUnknown, EventHandler
from kubesched.framework.groups.states import GroupKey, GroupStates, PodGroupState
from kubesched.framework.groups.tree import Placement
from kubesched.framework.interfaces import (
    PlacementFeasiblePlugin,
    PlacementGeneratePlugin,
    PlacementScorePlugin,
    PodGroupPostFilterPlugin,
    PreBindPlugin,
    ReservePlugin,
)
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.status import Code, Status
from kubesched.insight.state.watching import connect
from kubesched.testing import make_pod

NO_PRE_FILTER = 'error in "DynamicResources" PodGroupPostFilter plugins: not found'
NO_CPU = "0/1 nodes are available: 1 Insufficient cpu."
TERMINATING = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/wait"]}


class SlowEvictions(Groups):
    """Evicted pods stay until they are deleted."""

    def evicted(self, pod: Pod) -> None:
        self.change_pod(pod.metadata.name, "metadata", **TERMINATING)


def test_pods_of_a_deleted_group_wait_for_the_next_one():  # 26
    with Groups(1) as world:
        world.group("g", 2)
        world.pods("g", "a", "b")
        world.settle()
        world.delete(world.find(PodGroup, "default", "g"))
        world.node("n2", 4)
        world.run(10)
        assert world.nodes_of("a", "b") == ["", ""]
        assert world.place_in_queue("a") == world.place_in_queue("b") == "incomplete"
        world.group("g", 2)
        world.settle()
        assert "" not in world.nodes_of("a", "b")


def test_a_nominated_member_takes_its_room_as_soon_as_its_group_is_there():
    with Groups(1) as world:
        nominator = world.assembly.scheduler.queue.nominator
        world.pods("g", "a", priority=7)
        nominator.add_nominated_pod(PodInfo(world.pod("a")), NominatingInfo(True, "n1"))
        (stub,) = nominator.nominated_pods_for_node("n1")
        assert stub.priority == 0, "it is in no queue, as in kube-scheduler"
        world.group("g", 1)
        assert world.place_in_queue("a") == "active"
        (member,) = nominator.nominated_pods_for_node("n1")
        assert member.priority == 7


class Handlers:
    """Informers that keep the handlers attached to them, by kind."""

    def __init__(self) -> None:
        self.attached: dict[Any, list[EventHandler[Any]]] = {}
        self.kinds = tuple

    def informer(self, kind: Any) -> Any:
        attached = self.attached.setdefault(getattr(kind, "record", kind), [])
        return SimpleNamespace(add_event_handler=attached.append)


@pytest.mark.parametrize("kind", [PodGroup, CompositePodGroup])
def test_a_group_whose_deletion_was_missed_is_gone(kind: type[Any]) -> None:
    with Groups(1, gates="CompositePodGroup TopologyAwareWorkloadScheduling") as world:
        world.composite("g", 1)
        world.group("g", 2)
        handlers = Handlers()
        connect(handlers, world.assembly)
        gone = DeletedFinalStateUnknown("default/g", world.find(kind, "default", "g"))
        for handler in handlers.attached[kind]:
            handler.on_delete(gone)
        states = world.assembly.scheduler.groups.states
        assert states.find(GroupKey("default", "g", kind is CompositePodGroup)) is None


def test_members_of_an_unknown_scheduler_count_once_they_are_bound():  # 27, 28
    with Groups(4) as world:
        world.group("g", 2)
        world.pods("g", "a")
        world.pods("g", "b", schedulerName="other")
        world.settle()
        assert world.condition("a") is None
        assert world.place_in_queue("a") == "gated"
        world.pods("g", "c", schedulerName="other", nodeName="n1")
        world.settle()
        text = (
            "all pods in a single pod group should have the same .spec.schedulerName set, "
            'got: "other" and "default-scheduler"'
        )
        assert world.condition("a") == ("SchedulerError", text)
        assert world.group_says("g") == ("False", "SchedulerError", text)


def test_members_of_two_profiles():  # 29
    profiles = "profiles: [{schedulerName: default-scheduler}, {schedulerName: second}]"
    with Groups(4, config=profiles) as world:
        world.group("g", 2)
        world.pods("g", "a")
        world.pods("g", "b", schedulerName="second")
        world.settle()
        text = (
            "all pods in a single pod group should have the same .spec.schedulerName set, "
            'got: "second" and "default-scheduler"'
        )
        assert world.condition("a") == world.condition("b") == ("SchedulerError", text)
        assert world.group_says("g") == ("False", "SchedulerError", text)


def test_a_member_that_has_a_node_counts():  # 30
    with Groups(4) as world:
        world.group("g", 2)
        world.pods("g", "a")
        world.settle()
        assert world.place_in_queue("a") == "gated"
        world.pods("g", "b", nodeName="n1")
        world.settle()
        assert world.node_of("a") == "n1"


def test_a_member_bound_by_hand_leaves_its_group():  # 61
    with Groups(1) as world:
        world.group("g", 2)
        world.pods("g", "a", "b")
        world.settle()
        world.bound(world.pod("a"), "n1")
        world.run(3)
        assert world.message("b") == NO_CPU
        text = "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
        assert world.group_says("g") == ("False", "Unschedulable", text + NV)
        world.node("n2", 1)
        world.run(10)
        assert world.node_of("b") == "n2"


def test_victims_without_a_budget_go_first():  # 33
    with Groups(3) as world:
        world.budget("pdb", 0, app="kept")
        world.pods("", "x", "y", priority=-10, labels={"app": "kept"})
        world.pods("", "free", priority=-10)
        world.settle()
        world.group("g", 2, priority=100)
        world.pods("g", "a", "b", cpu=0.5, priority=100)
        world.settle()
        assert [world.is_gone(name) for name in ("x", "y", "free")] == [False, False, True]


def test_a_member_beyond_the_quorum_evicts_later():  # 34
    with Groups(4) as world:
        world.pods("", "low", cpu=2, priority=-10)
        world.settle()
        world.group("g", 2, priority=100)
        world.pods("g", "a", "b", "c", priority=100)
        world.settle()
        assert world.nodes_of("a", "b", "c") == ["n1", "n1", ""]
        assert world.is_gone("low")
        assert world.nominated("c") == "n1"
        world.run(3)
        assert world.node_of("c") == "n1"


def test_a_group_waits_for_victims_that_terminate():  # 35, 36
    with SlowEvictions(2, 1) as world:
        world.pods("", "small", priority=-10, nodeSelector={"kubernetes.io/hostname": "n2"})
        world.pods("", "x", "y", priority=-10)
        world.settle()
        assert world.nodes_of("small", "x", "y") == ["n2", "n1", "n1"]
        world.group("g", 2, priority=100)
        only = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
        world.pods("g", "a", "b", priority=100, **only)
        world.settle()
        target = world.pod("x").status.conditions[-1]
        assert (target.type, target.status) == ("DisruptionTarget", "True")
        who = "default-scheduler: preempting to accommodate a higher priority podgroup"
        assert target.message == who
        world.delete(world.pod("small"))
        world.run(5)
        assert world.nodes_of("a", "b") == ["", ""]
        assert [world.nominated(name) for name in "ab"] == ["n1", "n1"]
        found = "pod group preemption: ongoing preemption on nominated nodes"
        assert world.group_says("g")[2].endswith(found)
        preempted = [event for event in world.events if event.reason == "Preempted"]
        assert len(preempted) == 2, "no pod is evicted twice"
        for name in "xy":
            world.delete(world.pod(name))
        world.run(20)
        assert world.nodes_of("a", "b") == ["n1", "n1"]


def test_a_group_is_tried_again_if_its_victims_went_by_themselves():
    """Their deletions came while the group was held back, and no other event follows."""
    with Groups(2) as world:
        world.pods("", "x", "y", priority=-10)
        world.settle()
        delete_pod = world.client.delete_pod

        async def slowly(pod: Pod) -> None:
            await asyncio.sleep(10)
            await delete_pod(pod)

        world.client.delete_pod = slowly
        world.group("g", 2, priority=100)
        world.pods("g", "a", "b", priority=100)
        world.run(5)
        for name in "xy":
            world.delete(world.pod(name))
        world.run(60)
        assert world.nodes_of("a", "b") == ["n1", "n1"]


def test_nominated_members_without_their_group_reserve_nothing():
    """As for kube-scheduler: to the nominator they are in no queue, so they ask for nothing."""
    with SlowEvictions(2, 2) as world:
        world.pods("", "x", cpu=2, priority=-10, nodeSelector={"kubernetes.io/hostname": "n1"})
        world.settle()
        world.group("g", 2, priority=100)
        only = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
        world.pods("g", "a", "b", priority=100, **only)
        world.settle()
        assert [world.nominated(name) for name in "ab"] == ["n1", "n1"]
        world.delete(world.pod("x"))
        world.pods("", "p", **only)
        world.settle()
        assert world.node_of("p") == "", "the members' room is kept"
        world.delete(world.find(PodGroup, "default", "g"))
        world.settle()
        world.pods("", "q", **only)
        world.settle()
        assert world.node_of("q") == "n1"


def test_the_group_with_the_higher_priority_is_first():  # 38
    with Groups() as world:
        for name, priority in (("low", -10), ("high", 100)):
            world.group(name, 2, priority=priority)
            world.pods(name, f"{name}0", f"{name}1", priority=priority)
            world.settle()
        world.node("n1", 2)
        world.run(5)
        assert world.nodes_of("high0", "high1") == ["n1", "n1"]
        assert world.nodes_of("low0", "low1") == ["", ""]


def test_a_large_member_does_not_hold_up_the_others():  # 39
    with Groups(4) as world:
        world.group("g", 2)
        world.pods("g", "big", cpu=9)
        world.pods("g", "a", "b")
        world.settle()
        assert world.nodes_of("big", "a", "b") == ["", "n1", "n1"]
        assert world.message("big") == NO_CPU
        assert world.group_says("g")[0] == "True"


def test_a_member_too_many_fails_alone():  # 40
    with Groups(3) as world:
        world.group("g", 3)
        world.pods("g", "a", "b", "c")
        world.settle()
        world.pods("g", "d")
        world.run(10)
        assert world.condition("d") == ("Unschedulable", NO_CPU)
        assert world.group_says("g") == ("True", "Scheduled", "")


def test_a_terminating_member_is_left_out():  # 42
    with Groups(4) as world:
        world.group("g", 2)
        world.pods("g", "a")
        world.change_pod("a", "metadata", **TERMINATING)
        world.pods("g", "b")
        world.settle()
        assert ("default/a", "skip schedule deleting pod: default/a") in [
            (event.pod, event.note) for event in world.events
        ]
        assert world.condition("b") == ("SchedulerError", NO_PRE_FILTER)
        world.pods("g", "c")
        world.run(10)
        assert world.nodes_of("a", "b", "c") == ["", "n1", "n1"]


def claim(name: str, mode: str) -> list[Any]:
    spec = {
        "accessModes": [mode],
        "volumeName": name,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    bound = {"pv.kubernetes.io/bind-completed": "yes"}
    meta = {"name": name, "namespace": "default", "annotations": bound}
    volume = {
        "accessModes": [mode],
        "capacity": {"storage": "1Gi"},
        "claimRef": {"name": name, "namespace": "default", "uid": ""},
    }
    return [
        codec.convert(
            {"metadata": meta, "spec": spec, "status": {"phase": "Bound"}}, PersistentVolumeClaim
        ),
        codec.convert({"metadata": {"name": name}, "spec": volume}, PersistentVolume),
    ]


def test_a_claim_for_one_pod_keeps_the_second_member_out():  # 43
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    with Groups(4) as world:
        world.add(*claim("data", "ReadWriteOncePod"))
        world.group("g", 2)
        world.pods("g", "a", "b", volumes=volumes)
        world.settle()
        first = f"{PUS}, minCount (2) cannot be satisfied: 1 scheduled, 0 remaining{NV}"
        assert world.message("a") == first
        assert world.message("b") == (
            "0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with "
            "ReadWriteOncePod access mode already in-use by another pod."
        )


def test_a_missing_claim_is_an_error_of_the_group():  # 45
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}]
    with Groups(4) as world:
        world.group("g", 2)
        world.pods("g", "a", "b", volumes=volumes)
        world.settle()
        assert [world.condition(name) for name in "ab"] == [("SchedulerError", NO_PRE_FILTER)] * 2


def test_a_gang_without_devices_for_all_starts_no_pod():  # 89
    with Groups(4) as world:
        world.add(dra_objects.device_class(), dra_objects.resource_slice("s"))
        world.add(dra_objects.claim("c1"), dra_objects.claim("c2"))
        world.group("g", 2)
        for number in ("1", "2"):
            entry = {"name": "e", "resourceClaimName": f"c{number}"}
            world.pods("g", f"p{number}", resourceClaims=[entry])
        world.settle()
        assert world.message("p1") == "0/1 nodes are available: 1 cannot allocate all claims."
        untried = "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining"
        assert world.message("p2") == untried
        assert world.group_says("g")[2].startswith(untried)


def test_without_gang_scheduling_there_is_no_quorum():  # 46
    off = "profiles: [{plugins: {multiPoint: {disabled: [{name: GangScheduling}]}}}]"
    with Groups(2, config=off) as world:
        world.group("g", 3)
        world.pods("g", "a", "b")
        world.settle()
        assert world.nodes_of("a", "b") == ["n1", "n1"]
        assert world.group_says("g") == ("True", "Scheduled", "")


def test_a_restarted_scheduler_goes_on():  # 47
    with Groups(1) as world:
        world.group("g", 2)
        world.pods("g", "a", "b")
        world.settle()
        kept = [*world.objects(Pod), *world.objects(PodGroup)]
    with Groups(1, objects=kept) as world:
        world.settle()
        world.node("n2", 1)
        world.run(3)
        assert sorted(world.nodes_of("a", "b")) == ["n1", "n2"]


def test_pods_without_a_group_are_told_what_they_were():  # 48
    tail = " preemption: 0/1 nodes are available: 1 "
    with Groups(1) as world:
        world.pods("", "big", cpu=2)
        world.settle()
        assert world.message("big") == f"{NO_CPU}{tail}Preemption is not helpful for scheduling."
    with Groups(1) as world:
        world.pods("", "x")
        world.settle()
        world.pods("", "y")
        world.settle()
        no_victims = "No preemption victims found for incoming pod."
        assert world.message("y") == f"{NO_CPU}{tail}{no_victims}"


class FailsOnce(PreBindPlugin):
    """PreBind refuses each pod named here once."""

    name = "FailsOnce"
    refused: ClassVar[list[str]] = []

    def pre_bind(self, state: Any, pod: Pod, node_name: str) -> Status | None:
        if pod.metadata.name in self.refused:
            self.refused.remove(pod.metadata.name)
            return Status(Code.ERROR, ("not yet",))
        return None


@pytest.fixture
def fails_once(monkeypatch):
    monkeypatch.setattr(FailsOnce, "refused", ["b"])
    return "profiles: [{plugins: {multiPoint: {enabled: [{name: FailsOnce}]}}}]"


def test_a_member_that_fails_to_bind_is_tried_again_at_once(fails_once):  # 49
    with Groups(4, config=fails_once, plugins=[FailsOnce]) as world:
        world.group("g", 2)
        world.pods("g", "a", "b")
        world.settle()
        assert FailsOnce.refused == []
        assert world.nodes_of("a", "b") == ["n1", "n1"], "without a backoff"


class Hook(ReservePlugin):
    """Reserve does what a test says; it is called once while placing and once for good."""

    name = "Hook"
    act: Any = None

    def reserve(self, state: Any, pod: Pod, node_name: str) -> Status | None:
        answer: Status | None = type(self).act(pod.metadata.name)
        return answer

    def unreserve(self, state: Any, pod: Pod, node_name: str) -> None: ...


HOOKED = "profiles: [{plugins: {reserve: {enabled: [{name: Hook}]}}}]"


def test_a_member_that_waits_on_permit_counts(monkeypatch):  # 50
    calls: list[str] = []

    def refuse_b_for_good(name: str) -> Status | None:
        calls.append(name)
        is_second = name == "b" and calls.count("b") == 2
        return Status(Code.UNSCHEDULABLE, ("not now",)) if is_second else None

    monkeypatch.setattr(Hook, "act", refuse_b_for_good)
    with Groups(4, config=HOOKED, plugins=[Hook]) as world:
        world.group("g", 2)
        world.pods("g", "a", "b")
        world.settle()
        assert calls == ["a", "b", "a", "b", "b", "b"], "the second attempt is for b alone"
        assert world.nodes_of("a", "b") == ["n1", "n1"]


def test_a_member_that_comes_during_the_cycle_follows_at_once(monkeypatch):  # 51
    with Groups(4, config=HOOKED, plugins=[Hook]) as world:
        places: list[str] = []

        def add_c(name: str) -> None:
            if name == "b" and not places:
                world.pods("g", "c")
                places.append(world.place_in_queue("c"))

        monkeypatch.setattr(Hook, "act", add_c)
        world.group("g", 2)
        world.pods("g", "a", "b")
        world.settle()
        assert places == ["pending"]
        assert world.nodes_of("a", "b", "c") == ["n1"] * 3


def test_a_gated_member_takes_an_active_group_out():  # 52
    with Groups(4) as world:
        world.group("g", 2)
        world.pods("g", "a", "b")
        assert world.place_in_queue("a") == "active"
        world.pods("g", "c", schedulingGates=[{"name": "x"}])
        assert [world.place_in_queue(name) for name in "abc"] == ["gated"] * 3


def test_all_members_of_a_small_gang_are_tried():  # 53
    names = [f"p{number:03}" for number in range(100)]
    with Groups(10) as world:
        world.group("g", 1)
        world.pods("g", *names)
        world.settle()
        assert world.nodes_of(*names) == ["n1"] * 10 + [""] * 90
        assert {world.message(name) for name in names[10:]} == {NO_CPU}


def test_a_basic_group_evicts_for_all_its_members():  # 54
    with Groups(4) as world:
        world.pods("", *"wxyz", priority=-10)
        world.settle()
        world.group("g", 0, priority=100)
        world.pods("g", *"abcd", priority=100)
        world.settle()
        assert all(map(world.is_gone, "wxyz"))
        world.run(3)
        assert world.nodes_of(*"abcd") == ["n1"] * 4


def test_the_most_important_victim_stays():  # 55
    with Groups(3) as world:
        for name, priority in (("x", 50), ("y", 10), ("z", 10)):
            world.pods("", name, priority=priority)
        world.settle()
        world.group("g", 2, priority=100)
        world.pods("g", "a", "b", priority=100)
        world.settle()
        assert [world.is_gone(name) for name in "xyz"] == [False, True, True]


class First(PodGroupPostFilterPlugin):
    """PodGroupPostFilter that answers what a test says."""

    name = "First"
    asked = 0
    answer: Any = None

    def pod_group_post_filter(self, cycle: Any, group: Any, place: Any) -> Any:
        type(self).asked += 1
        return type(self).answer


class Second(First):
    name = "Second"


CUSTOM = """
profiles:
- plugins:
    podGroupPostFilter:
      disabled: [{name: "*"}]
      enabled: [{name: First}, {name: Second}, {name: DefaultPreemption}]
"""


def test_post_filters_of_groups_are_asked_in_order(monkeypatch):  # 59
    for plugin, text in ((First, "one"), (Second, "two")):
        monkeypatch.setattr(plugin, "answer", (None, Status(Code.UNSCHEDULABLE, (text,))))
        monkeypatch.setattr(plugin, "asked", 0)
    only = CUSTOM.replace(", {name: DefaultPreemption}", "")
    with Groups(1, config=only, plugins=[First, Second]) as world:
        world.group("g", 2)
        world.pods("g", "a", "b")
        world.settle()
        text = "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining, one, two"
        assert world.group_says("g") == ("False", "Unschedulable", text)
        assert (First.asked, Second.asked) == (1, 1)


def test_a_post_filter_that_succeeds_is_the_last(monkeypatch):  # 60
    with Groups(1, config=CUSTOM, plugins=[First, Second]) as world:
        monkeypatch.setattr(Second, "asked", 0)
        world.pods("", "x", priority=-10)
        world.settle()
        world.group("g", 1, priority=100)
        world.pods("g", "a", priority=100)
        nominations = {world.pod("a").metadata.uid: NominatingInfo(True, "n1")}
        monkeypatch.setattr(First, "answer", (nominations, Status(Code.SUCCESS)))
        world.settle()
        assert world.nominated("a") == "n1"
        assert not world.is_gone("x"), "DefaultPreemption is not asked"
        assert Second.asked == 0


class Careless(PlacementGeneratePlugin, PlacementScorePlugin, PlacementFeasiblePlugin, First):
    """Does at one extension point what a test says."""

    name = "Careless"
    at = ""
    does: Any = None

    def _answer(self, point: str, usual: Any) -> Any:
        return usual if point != type(self).at else type(self).does()

    def pod_group_post_filter(self, cycle: Any, group: Any, place: Any) -> Any:
        return self._answer("postFilter", (None, Status(Code.UNSCHEDULABLE)))

    def generate_placements(self, group: Any, parent: Placement) -> Any:
        halves = [Placement(str(row), parent.rows[row : row + 1]) for row in (0, 1)]
        return self._answer("generate", halves)

    def score_placement(self, group: Any, placement: Any, placed: Any) -> Any:
        return self._answer("score", 1)

    def normalize_placement_scores(self, scores: list[int]) -> Any:
        return self._answer("normalize", scores)

    def placement_feasible(self, group: Any, remaining: int, scheduled: int) -> Any:
        return self._answer("feasible", None)


CARELESS = """
profiles:
- plugins:
    multiPoint: {enabled: [{name: Careless}]}
    placementGenerate: {disabled: [{name: "*"}], enabled: [{name: Careless}]}
    podGroupPostFilter: {disabled: [{name: "*"}], enabled: [{name: Careless}]}
"""


def fails() -> Any:
    raise ZeroDivisionError("oh")


@pytest.mark.parametrize("does", [fails, lambda: "no", lambda: [0.5, None], lambda: (1, 2, 3)])
@pytest.mark.parametrize("at", ["generate", "feasible", "score", "normalize", "postFilter"])
def test_a_plugin_that_fails_fails_the_cycle_of_one_group(monkeypatch, at, does):
    monkeypatch.setattr(Careless, "at", at)
    monkeypatch.setattr(Careless, "does", does)
    gates = "TopologyAwareWorkloadScheduling"
    with Groups(4, 4, gates=gates, config=CARELESS, plugins=[Careless]) as world:
        world.group("g", 2)
        world.pods("g", *"abcde" if at == "postFilter" else "ab")
        if at == "postFilter":
            world.min_count("g", 5)
        world.pods("", "x")
        world.settle()
        assert world.node_of("x"), "others are scheduled"
        assert world.group_says("g")[1] in ("SchedulerError", "Unschedulable")
        text = world.group_says("g")[2]
        assert ("oh" if does is fails else "Careless") in text


def test_a_post_filter_of_a_group_may_await(monkeypatch):
    async def waits() -> Any:
        await asyncio.sleep(0)
        return None, Status(Code.UNSCHEDULABLE, ("after a while",))

    monkeypatch.setattr(Careless, "at", "postFilter")
    monkeypatch.setattr(Careless, "does", waits)
    with Groups(1, 1, config=CARELESS, plugins=[Careless]) as world:
        world.group("g", 3)
        world.pods("g", *"abc")
        world.settle()
        assert world.group_says("g")[2].endswith("after a while")


def _failing(world, errors):
    """Writes of conditions that fail with these errors first; returns all tries."""
    write, tries = world.client.patch_status, []

    async def patch_status(*arguments):
        tries.append(arguments)
        if len(tries) <= len(errors):
            raise errors[len(tries) - 1]
        return await write(*arguments)

    world.client.patch_status = patch_status
    return tries


def test_a_condition_whose_write_failed_is_written_by_the_next_attempt():
    with Groups(1) as world:
        tries = _failing(world, [KubeschedError("refused")])
        world.group("g", 2)
        world.pods("g", "a", "b")
        world.settle()
        assert (len(tries), world.group_says("g")) == (1, None)
        world.advance(5)
        assert world.group_says("g")[:2] == ("False", "Unschedulable")


def test_a_condition_is_sent_again_after_a_conflict():
    with Groups(2) as world:
        tries = _failing(world, [Conflict("not now")])
        world.group("g", 2)
        world.pods("g", "a", "b")
        world.settle()
        world.advance(0.5)
        assert (len(tries), world.group_says("g")[0]) == (2, "True")


def test_a_condition_that_got_lost_is_written_again():
    with Groups(1) as world:
        world.group("g", 2)
        world.pods("g", "a", "b")
        world.settle()
        said = world.group_says("g")
        group = world.find(PodGroup, "default", "g")
        world.update(structs.replace(group, status=PodGroupStatus()))  # restored from a backup
        assert world.group_says("g") is None
        world.advance(5)
        assert world.group_says("g") == said


def test_members_lose_their_scheduling_gates_in_any_order():
    with Groups(3) as world:
        world.group("g", 3)
        world.pods("g", "a", "b", "c", schedulingGates=[{"name": "example.com/wait"}])
        for name in ("a", "c", "b"):
            world.settle()
            assert world.node_of(name) == ""
            world.change_pod(name, "spec", schedulingGates=[])
        world.settle()
        assert world.nodes_of("a", "b", "c") == ["n1"] * 3


def _assumed() -> tuple[GroupStates, PodGroupState, Pod]:
    states, key = GroupStates(), GroupKey("default", "g")
    pod = make_pod("a").spec(schedulingGroup={"podGroupName": "g"}).build()
    states.pod_waits(pod)
    states.pod_assumed(PodInfo(pod).assumed_on("n1").pod)
    state = states.state(key)
    assert state is not None
    return states, state, pod


def test_a_member_that_is_deleted_while_it_is_assumed_counts_until_that_ends():
    states, state, pod = _assumed()
    states.pod_deleted(pod)
    assert state.scheduled_count == 1
    states.pod_forgotten(pod)
    assert states.state(GroupKey("default", "g")) is None


def test_an_assumed_member_keeps_its_node_when_it_is_changed():
    states, state, pod = _assumed()
    states.pod_waits(pod)
    assert [each.spec.node_name for each in state.scheduled_pods()] == ["n1"]


@pytest.mark.parametrize("answer_first", [True, False], ids=["answer first", "event first"])
def test_a_member_without_reasons_of_its_own_is_tried_when_its_victim_went(answer_first):
    """Whichever comes first, the answer or the event: the group is gated while its victims are
    evicted, and no plugin that could be helped has rejected a member.
    """
    with Groups(gates="TopologyAwareWorkloadScheduling CompositePodGroup") as world:
        world.node("n1", 3)
        world.composite("c", 1, priority=100)
        in_tree = {"parentCompositePodGroupName": "c", "priority": 100}
        world.group("g", 2, **in_tree)
        world.pods("g", "a", "b", priority=100)
        world.pods("", "low", priority=-10)
        world.settle()
        delete, gone = world.client.delete_pod, asyncio.Event()

        async def delete_later(pod):
            if answer_first:
                world.client.deleted.append("default/low")
            else:
                await delete(pod)
                await gone.wait()

        world.client.delete_pod = delete_later
        world.pods("g", "late", priority=100)
        world.settle()
        assert world.message("late") == PUS
        if answer_first:
            world.delete(world.pod("low"))
        gone.set()
        world.run(3)
        assert world.is_gone("low")
        assert world.node_of("late") == "n1"
