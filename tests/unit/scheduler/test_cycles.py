"""What becomes of a pod at every turn of the two cycles: bound, rejected, broken, waiting,
cancelled.

The scheduler is whole; its dependencies are a harness that plays API server and informers under a
manual clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

import pytest
from msgspec import structs

from kubesched.base.errors import Conflict, ServerError
from kubesched.framework.interfaces import (
    BindPlugin,
    FilterPlugin,
    PermitPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreBindPreFlightResult,
    PreFilterPlugin,
    ReservePlugin,
    ScorePlugin,
    Wait,
)
from kubesched.framework.status import SKIP, Code, Status, error_status, unschedulable
from kubesched.framework.waiting_pods import WaitingPod
from kubesched.testing import Cluster, make_node, make_pod

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def with_plugin(name: str, *points: str) -> str:
    enabled = "".join(f"    {point}: {{enabled: [{{name: {name}}}]}}\n" for point in points)
    return f"{HEADER}profiles:\n- schedulerName: default-scheduler\n  plugins:\n{enabled}"


class Trouble(
    PreFilterPlugin,
    FilterPlugin,
    ScorePlugin,
    ReservePlugin,
    PermitPlugin,
    PreBindPlugin,
    BindPlugin,
    PostBindPlugin,
):
    """Does what the test tells it to, at the point the test names; otherwise nothing."""

    name = "Trouble"
    at: ClassVar[str] = ""
    answer: ClassVar[object] = None
    calls: ClassVar[list[str]] = []

    def _act(self, point: str):
        Trouble.calls.append(point)
        if Trouble.at != point:
            return None
        if isinstance(Trouble.answer, Exception):
            raise Trouble.answer
        return Trouble.answer

    def pre_filter(self, state, pod, nodes):
        return self._act("preFilter")

    def filter(self, state, pod, node_info):
        return self._act("filter")

    def score(self, state, pod, node_info):
        answer = self._act("score")
        return 0 if answer is None else answer

    def reserve(self, state, pod, node_name):
        return self._act("reserve")

    def unreserve(self, state, pod, node_name):
        Trouble.calls.append("unreserve")

    def permit(self, state, pod, node_name):
        return self._act("permit")

    def pre_bind_pre_flight(self, state, pod, node_name):
        return self._act("preFlight") or PreBindPreFlightResult()

    async def pre_bind(self, state, pod, node_name):
        return self._act("preBind")

    async def bind(self, state, pod, node_name):
        answer = self._act("bind")
        return SKIP if answer is None else answer

    def post_bind(self, state, pod, node_name):
        self._act("postBind")


ALL_POINTS = ["preFilter", "filter", "score", "reserve", "permit", "preBind", "postBind"]


@pytest.fixture(autouse=True)
def _calm():
    Trouble.at, Trouble.answer, Trouble.calls = "", None, []


def harness(*points: str) -> Cluster:
    return Cluster(config=with_plugin("Trouble", *(points or ALL_POINTS)), plugins=[Trouble])


def attempt(world: Cluster, nodes: int = 2) -> None:
    for number in range(nodes):
        world.add(make_node(f"n{number}").build())
    world.add(make_pod("p").cpu("1").build())
    world.settle()


def test_a_pod_that_fits_is_bound_and_the_event_says_where() -> None:
    with harness() as world:
        attempt(world, nodes=1)
        assert world.client.bindings == {"default/p": "n0"}
        assert world.events == [
            ("Normal", "Scheduled", "default/p", "Successfully assigned default/p to n0")
        ]
        cache = world.assembly.scheduler.cache
        assert (cache.pod_count, cache.assumed_count) == (1, 0), (
            "the watch confirmed the assumption"
        )
        assert Trouble.calls[-1] == "postBind"


class RefusesAll(FilterPlugin, PostFilterPlugin):
    """Rejects every node; its PostFilter fails with what the test sets."""

    name = "RefusesAll"
    failure: ClassVar[Exception]

    def filter(self, state, pod, node_info):
        return unschedulable("not today")

    def post_filter(self, state, pod, statuses):
        raise RefusesAll.failure


@pytest.mark.parametrize(
    ("failure", "place"),
    [(ServerError("out of order"), "backoff"), (ValueError("out of order"), "unschedulable")],
)
def test_a_pod_is_tried_again_if_a_request_of_post_filter_failed(failure, place) -> None:
    RefusesAll.failure = failure
    config = with_plugin("RefusesAll", "filter", "postFilter")
    with Cluster(config=config, plugins=[RefusesAll]) as world:
        attempt(world, nodes=1)
        reason, message = world.condition("p")
        assert reason == "Unschedulable"
        assert message.startswith("0/1 nodes are available: 1 not today. ")
        assert message.endswith("out of order")
        assert world.place_in_queue("p") == place


REJECTED = unschedulable("not today")
BROKEN = error_status("out of order")


@pytest.mark.parametrize(
    ("point", "answer", "place", "reason", "message"),
    [
        pytest.param(
            "preFilter",
            REJECTED,
            "unschedulable",
            "Unschedulable",
            "0/2 nodes are available: not today.",
            id="PreFilter rejects: the pod waits for an event",
        ),
        pytest.param(
            "filter",
            REJECTED,
            "unschedulable",
            "Unschedulable",
            "0/2 nodes are available: 2 not today.",
            id="Filter rejects everywhere: one reason, counted",
        ),
        pytest.param(
            "reserve",
            REJECTED,
            "unschedulable",
            "Unschedulable",
            "0/1 nodes are available: 1 not today.",
            id="Reserve rejects: reads like a fit error over one node",
        ),
        pytest.param(
            "permit",
            REJECTED,
            "unschedulable",
            "Unschedulable",
            "0/1 nodes are available: 1 not today.",
            id="Permit rejects: likewise",
        ),
        pytest.param(
            "preBind",
            REJECTED,
            "backoff",
            "Unschedulable",
            "not today",
            id="PreBind rejects: backoff, though the reason says unschedulable",
        ),
        pytest.param(
            "preFilter",
            BROKEN,
            "backoff",
            "SchedulerError",
            'running PreFilter plugin "Trouble": out of order',
            id="PreFilter breaks",
        ),
        pytest.param(
            "filter",
            BROKEN,
            "backoff",
            "SchedulerError",
            'running "Trouble" filter plugin: out of order',
            id="Filter breaks",
        ),
        pytest.param(
            "score",
            BROKEN,
            "backoff",
            "SchedulerError",
            'running Score plugins: plugin "Trouble" failed with: out of order',
            id="Score breaks",
        ),
        pytest.param(
            "reserve",
            BROKEN,
            "backoff",
            "SchedulerError",
            'running Reserve plugin "Trouble": out of order',
            id="Reserve breaks",
        ),
        pytest.param(
            "permit",
            BROKEN,
            "backoff",
            "SchedulerError",
            'running Permit plugin "Trouble": out of order',
            id="Permit breaks",
        ),
        pytest.param(
            "preFlight",
            BROKEN,
            "backoff",
            "SchedulerError",
            'running PreBindPreFlight "Trouble": out of order',
            id="PreBindPreFlight breaks",
        ),
        pytest.param(
            "preFlight",
            REJECTED,
            "backoff",
            "SchedulerError",
            'PreBindPreFlight Trouble returned "Unschedulable", which is unsupported. It is '
            "supposed to return Success, Skip, or Error status",
            id="PreBindPreFlight must not reject",
        ),
        pytest.param(
            "preBind",
            BROKEN,
            "backoff",
            "SchedulerError",
            'running PreBind plugin "Trouble": out of order',
            id="PreBind breaks",
        ),
        pytest.param(
            "filter",
            RuntimeError("boom"),
            "backoff",
            "SchedulerError",
            'running "Trouble" filter plugin: RuntimeError: boom',
            id="Filter raises",
        ),
        pytest.param(
            "filter",
            "a word",
            "backoff",
            "SchedulerError",
            'running "Trouble" filter plugin: Trouble returned str where a Status or None was '
            "expected",
            id="Filter returns garbage",
        ),
        pytest.param(
            "score",
            101,
            "backoff",
            "SchedulerError",
            'applying score defaultWeights on Score plugins: plugin "Trouble" returns an invalid '
            "score 101, it should in the range of [0, 100] after normalizing",
            id="a score above 100",
        ),
        pytest.param(
            "score",
            -1,
            "backoff",
            "SchedulerError",
            'applying score defaultWeights on Score plugins: plugin "Trouble" returns an invalid '
            "score -1, it should in the range of [0, 100] after normalizing",
            id="a negative score",
        ),
        pytest.param(
            "score",
            float("nan"),
            "backoff",
            "SchedulerError",
            'running Score plugins: plugin "Trouble" failed with: Trouble returned float where an '
            "integer score was expected",
            id="a score that is no integer",
        ),
        pytest.param(
            "reserve",
            Status(Code.WAIT),
            "backoff",
            "SchedulerError",
            'running Reserve plugin "Trouble": unexpected status "Wait"',
            id="Wait where it means nothing",
        ),
    ],
)
def test_a_failure_undoes_everything_and_requeues(point, answer, place, reason, message) -> None:
    Trouble.at, Trouble.answer = point, answer
    with harness() as world:
        attempt(world)
        assert world.client.bindings == {}
        assert world.assembly.scheduler.cache.pod_count == 0
        assert world.condition("p") == (
            reason,
            _without_post_filter(world.condition("p")[1], message),
        )
        assert world.place_in_queue("p") == place
        assert world.events[0][:3] == ("Warning", "FailedScheduling", "default/p")
        if point in ("reserve", "permit", "preFlight", "preBind"):
            assert "unreserve" in Trouble.calls


def _without_post_filter(actual: str, expected: str) -> str:
    """Fit errors carry what preemption had to say behind the sentence under test."""
    assert actual == expected or actual.startswith(expected + " "), actual
    return actual


def test_the_scheduler_goes_on_after_a_plugin_broke() -> None:
    Trouble.at, Trouble.answer = "filter", RuntimeError("boom")
    with harness() as world:
        attempt(world)
        Trouble.at = ""
        world.add(make_pod("q").build())
        world.settle()
        assert list(world.client.bindings) == ["default/q"]
        world.advance(3)
        assert "default/p" in world.client.bindings, (
            "and the broken attempt is retried after its rest"
        )


def test_no_nodes_means_backoff_although_the_condition_says_unschedulable() -> None:
    with Cluster() as world:
        world.add(make_pod("p").build())
        world.settle()
        assert world.condition("p") == ("Unschedulable", "no nodes available to schedule pods")
        assert world.place_in_queue("p") == "backoff"


def test_a_binding_that_fails_leaves_nothing_behind() -> None:
    with Cluster() as world:

        def refuse(_pod, _node):
            raise ServerError("etcd is away")

        world.client.before["bind_pod"] = refuse
        attempt(world, nodes=1)
        assert world.assembly.scheduler.cache.pod_count == 0
        assert world.condition("p") == (
            "SchedulerError",
            'running Bind plugin "DefaultBinder": etcd is away',
        )
        world.client.before.clear()
        world.advance(3)
        assert world.client.bindings == {"default/p": "n0"}


def test_losing_the_race_to_another_scheduler_is_not_retried() -> None:
    with Cluster() as world:
        world.add(make_node("n0").build())
        pod = make_pod("p").build()

        def another_scheduler(_pod, _node):
            current = world.pod("p")
            world.update(
                structs.replace(current, spec=structs.replace(current.spec, node_name="n0"))
            )
            raise Conflict("pod default/p is already assigned to node n0")

        world.client.before["bind_pod"] = another_scheduler
        world.add(pod)
        world.settle()
        assert world.place_in_queue("p") is None
        assert world.assembly.scheduler.cache.pod_count == 1


def test_a_pod_recreated_meanwhile_hears_nothing_of_the_old_attempt() -> None:
    with Cluster() as world:
        world.add(make_node("n0").build())

        def recreate(pod, _node):
            world.client.before.clear()
            world.delete(world.pod("p"))
            world.add(make_pod("p").uid("another").build())
            raise Conflict("uid mismatch")

        world.client.before["bind_pod"] = recreate
        world.add(make_pod("p").build())
        world.settle()
        assert world.pod("p").metadata.uid == "another"
        assert world.client.bindings == {"default/p": "n0"}, (
            "the new pod was placed in its own attempt"
        )
        assert not [event for event in world.events if event[1] == "FailedScheduling"]


def test_a_deleting_pod_is_skipped_with_a_word() -> None:
    with Cluster() as world:
        world.add(make_node("n0").build())
        world.add(make_pod("p").terminating().build())
        world.settle()
        assert world.events == [
            ("Warning", "FailedScheduling", "default/p", "skip schedule deleting pod: default/p")
        ]
        assert world.client.bindings == {}


def test_pods_of_other_schedulers_are_left_alone_but_take_their_room() -> None:
    with Cluster() as world:
        world.add(make_node("n0").capacity(cpu="1", memory="1Gi").build())
        world.add(make_pod("foreign").scheduler("other").cpu("1").build())
        world.add(make_pod("taken").scheduler("other").cpu("1").on("n0").build())
        world.add(make_pod("p").cpu("1").build())
        world.settle()
        assert world.client.bindings == {}
        assert world.condition("p")[1].startswith("0/1 nodes are available: 1 Insufficient cpu.")


def test_a_waiting_pod_is_bound_when_allowed() -> None:
    Trouble.at, Trouble.answer = "permit", Wait(10, "gathering")
    with harness() as world:
        attempt(world, nodes=1)
        waiting = list(world.assembly.waiting_pods)
        assert [each.pending_plugins() for each in waiting] == [["Trouble"]]
        assert world.pod("p").status.nominated_node_name == "n0", "others are told where it will go"
        assert world.assembly.scheduler.cache.assumed_count == 1
        waiting[0].allow("Trouble")
        world.settle()
        assert world.client.bindings == {"default/p": "n0"}


def test_a_waiting_pod_is_rejected_when_time_is_up() -> None:
    Trouble.at, Trouble.answer = "permit", Wait(10)
    with harness() as world:
        attempt(world, nodes=1)
        Trouble.answer = (
            REJECTED  # its own nomination was an event, so the pod is tried again at once
        )
        world.advance(10)
        failures = [event[3] for event in world.events]
        assert failures[0] == (
            "0/1 nodes are available: 1 rejected due to timeout after waiting 10s at plugin "
            "Trouble."
        )
        assert world.condition("p")[0] == "Unschedulable"
        assert world.assembly.scheduler.cache.pod_count == 0
        assert not list(world.assembly.waiting_pods)


def test_a_waiting_pod_that_is_deleted_gives_its_room_back() -> None:
    Trouble.at, Trouble.answer = "permit", Wait(10)
    with harness() as world:
        attempt(world, nodes=1)
        world.delete(world.pod("p"))
        world.settle()
        assert world.assembly.scheduler.cache.pod_count == 0
        assert not list(world.assembly.waiting_pods)
        assert world.place_in_queue("p") is None


@pytest.mark.parametrize(
    "decide",
    [lambda pod: pod.allow("Trouble"), lambda pod: pod.reject("Trouble", "no")],
    ids=["allowed", "rejected"],
)
def test_a_pod_that_is_deleted_right_after_its_wait_gives_its_room_back_at_once(
    decide: Callable[[WaitingPod], object],
) -> None:
    """Its binding cycle has not gone on yet."""
    Trouble.at, Trouble.answer = "permit", Wait(10)
    with harness() as world:
        attempt(world, nodes=1)
        scheduler = world.assembly.scheduler
        (waiting,) = world.assembly.waiting_pods
        decide(waiting)
        world.delete(world.pod("p"))
        assert scheduler.cache.pod_count == 0
        world.settle()
        assert world.client.bindings == {}
        assert not list(world.assembly.waiting_pods)
        assert world.place_in_queue("p") is None
        scheduler.check_invariants()


def test_a_waiting_pod_of_a_restored_cluster_is_not_bound_without_its_room() -> None:
    Trouble.at, Trouble.answer = "permit", Wait(10)
    with harness() as world:
        attempt(world, nodes=1)
        pod, scheduler = world.pod("p"), world.assembly.scheduler
        waiting = list(world.assembly.waiting_pods)
        world.assembly.handlers.pod_deleted(pod, final_state_unknown=True)
        world.assembly.handlers.pod_added(pod)
        world.settle()
        assert world.place_in_queue("p") is None, "the second entry is dropped"
        Trouble.at = ""
        waiting[0].allow("Trouble")
        world.settle()
        assert world.client.bindings == {}
        assert world.place_in_queue("p") == "backoff"
        assert world.events[-1][:2] == ("Warning", "FailedScheduling")
        world.advance(3)
        assert world.client.bindings == {"default/p": "n0"}
        assert (scheduler.cache.pod_count, scheduler.cache.assumed_count) == (1, 0)
        scheduler.check_invariants()


def test_freed_room_brings_back_a_pod_that_did_not_fit() -> None:
    with Cluster() as world:
        world.add(make_node("n0").capacity(cpu="1", memory="1Gi").build())
        world.add(make_pod("first").cpu("1").build())
        world.settle()
        world.add(make_pod("second").cpu("1").build())
        world.settle()
        assert world.place_in_queue("second") == "unschedulable"
        world.delete(world.pod("first"))
        world.advance(3)
        assert world.client.bindings["default/second"] == "n0"


def test_a_gated_pod_waits_without_event_or_condition_until_its_gates_are_gone() -> None:
    with Cluster() as world:
        world.add(make_node("n0").build())
        world.add(make_pod("p").gate("quota").build())
        world.settle()
        assert world.place_in_queue("p") == "gated"
        assert (world.events, world.client.patches) == ([], [])
        pod = world.pod("p")
        world.update(structs.replace(pod, spec=structs.replace(pod.spec, scheduling_gates=None)))
        world.settle()
        assert world.client.bindings == {"default/p": "n0"}


def test_the_highest_priority_goes_first() -> None:
    with Cluster() as world:
        for name, priority in (("low", 1), ("high", 10), ("middle", 5)):
            world.add(make_pod(name).priority(priority).cpu("1").build())
        world.add(make_node("n0").capacity(cpu="1", memory="1Gi").build())
        world.advance(3)
        assert list(world.client.bindings) == ["default/high"]


def test_an_unchanged_condition_is_not_written_again() -> None:
    with Cluster() as world:
        world.add(make_node("n0").capacity(cpu="1", memory="1Gi").build())
        world.add(make_pod("p").cpu("2").build())
        world.settle()
        assert len(world.client.patches) == 1
        world.advance(400)
        attempts = [event for event in world.events if event[1] == "FailedScheduling"]
        assert len(attempts) == 2, "the pod was tried again after five minutes"
        assert len(world.client.patches) == 1


def test_two_profiles_share_one_queue_and_one_cache() -> None:
    config = f"{HEADER}profiles:\n- schedulerName: default-scheduler\n- schedulerName: packer\n"
    with Cluster(config=config) as world:
        world.add(make_node("n0").capacity(cpu="2", memory="1Gi").build())
        world.add(make_pod("a").cpu("1").build())
        world.add(make_pod("b").scheduler("packer").cpu("1").build())
        world.add(make_pod("c").scheduler("packer").cpu("1").build())
        world.settle()
        assert set(world.client.bindings) == {"default/a", "default/b"}
        assert world.place_in_queue("c") == "unschedulable"


def test_pods_waiting_on_permit_do_not_keep_others_from_being_tried(monkeypatch) -> None:
    """A gang larger than the number of bindings under way must still be gathered."""
    monkeypatch.setattr("kubesched.scheduler.scheduler.MAX_BINDINGS", 2)
    Trouble.at, Trouble.answer = "permit", Wait(10)
    with harness() as world:
        world.add(make_node("n0").build())
        for number in range(8):
            world.add(make_pod(f"p{number}").build())
        world.settle()
        waiting = list(world.assembly.waiting_pods)
        assert len(waiting) == 8
        for each in waiting:
            each.allow("Trouble")
        world.settle()
        assert len(world.client.bindings) == 8


def test_pods_waiting_in_pre_bind_do_not_keep_others_from_being_tried(monkeypatch) -> None:
    monkeypatch.setattr("kubesched.scheduler.scheduler.MAX_BINDINGS", 2)
    started: list[str] = []

    class Slow(PreBindPlugin):
        name = "Slow"

        def pre_bind_pre_flight(self, state, pod, node_name):
            return PreBindPreFlightResult()

        async def pre_bind(self, state, pod, node_name):
            started.append(pod.metadata.name)
            await asyncio.Event().wait()

    with Cluster(config=with_plugin("Slow", "preBind"), plugins=[Slow]) as world:
        world.add(make_node("n0").build(), *(make_pod(f"p{at}").build() for at in range(8)))
        world.settle()
        assert len(started) == 8


def test_a_pod_that_is_bound_while_it_waits_on_permit_and_is_then_rejected_frees_nothing() -> None:
    Trouble.at, Trouble.answer = "permit", Wait(10)
    with harness() as world:
        world.add(make_node("n0").capacity(cpu="1", memory="1Gi").build())
        world.add(make_pod("p").cpu("1").build())
        world.settle()
        world.add(make_pod("q").cpu("1").build())
        world.settle()
        world.bound(world.pod("p"), "n0")
        world.settle()
        (waiting,) = world.assembly.waiting_pods
        waiting.reject("Trouble", "no")
        world.settle()
        assert [event[2] for event in world.events] == ["default/q", "default/p"], "q is not tried"
