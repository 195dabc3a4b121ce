"""Preemption with a whole scheduler around it: from the failed attempt to the preemptor running in
its victims' place.

The harness plays API server and informers. Where a test says so, pods take their time to go: a
deletion marks them, and the test lets them go later, as a kubelet would.
"""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from msgspec import structs

from kubesched.api.core_v1 import Namespace, Node, Pod
from kubesched.api.meta import LabelSelector, ObjectMeta
from kubesched.api.policy_v1 import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from kubesched.base.errors import Forbidden, KubeschedError, ServerError
from kubesched.config.features import DEFAULT_GATES, defaults
from kubesched.framework.interfaces import PermitPlugin, PreBindPlugin, Wait
from kubesched.testing import Cluster, make_node, make_pod

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
SYNCHRONOUS = dataclasses.replace(DEFAULT_GATES, SchedulerAsyncPreemption=False)
HOSTNAME = "kubernetes.io/hostname"


@pytest.fixture(autouse=True)
def no_pause_between_retries(monkeypatch) -> None:
    """Time stands still here, so no test should wait for it to pass."""
    monkeypatch.setattr("kubesched.framework.pod_status.FIRST_RETRY_S", 0.0)


def small_node(name: str, cpu: str = "1") -> Node:
    return make_node(name).capacity(cpu=cpu, memory="8Gi").build()


def pod(name: str, priority: int = 0, cpu: str = "1"):
    return make_pod(name).cpu(cpu).priority(priority)


class Graceful:
    """Deletions mark pods; they go when the test lets them."""

    def __init__(self, world: Cluster) -> None:
        self._world = world
        world.client.delete_pod = self._delete

    async def _delete(self, victim: Pod) -> None:
        current = self._world.current(victim)
        self._world.client.deleted.append(f"{victim.metadata.namespace}/{victim.metadata.name}")
        meta = structs.replace(current.metadata, deletion_timestamp="2026-01-01T00:00:30Z")
        self._world.update(structs.replace(current, metadata=meta))

    def let_go(self, name: str) -> None:
        self._world.delete(self._world.pod(name))


def full_cluster(world: Cluster, nodes: int = 1, priority: int = 0) -> None:
    """Each node full with one pod: v0 on n0 and so on."""
    for number in range(nodes):
        world.add(small_node(f"n{number}"))
        world.add(pod(f"v{number}", priority).on(f"n{number}").build())
    world.settle()


def test_a_pod_takes_the_place_of_a_less_important_one() -> None:
    with Cluster() as world:
        full_cluster(world)
        world.add(pod("high", 10).build())
        world.settle()
        assert world.client.deleted == ["default/v0"]
        assert world.client.bindings == {"default/high": "n0"}
        assert ("Normal", "Preempted") in {event[:2] for event in world.events}
        assert world.assembly.scheduler.queue.nominator.references() == {}


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (
            "1.37",
            " preemption: found a potential placement for pod on node n0, preempting 1 victims",
        ),
        ("1.36", ""),
    ],
)
def test_the_failed_attempt_reports_the_successful_preemption(version, said) -> None:
    with Cluster(gates=defaults(version)) as world:
        full_cluster(world)
        Graceful(world)
        world.add(pod("high", 10).build())
        world.settle()
        assert world.condition("high") == (
            "Unschedulable",
            f"0/1 nodes are available: 1 Insufficient cpu.{said}",
        )
        assert world.pod("high").status.nominated_node_name == "n0"


def test_a_pod_that_finds_no_victims_says_so() -> None:
    with Cluster() as world:
        full_cluster(world, priority=10)
        world.add(pod("same", 10).build())
        world.settle()
        assert world.condition("same") == (
            "Unschedulable",
            "0/1 nodes are available: 1 Insufficient cpu. preemption: "
            "0/1 nodes are available: 1 No preemption victims found for incoming pod.",
        )


def test_the_preemptor_waits_for_victims_that_take_their_time() -> None:
    with Cluster() as world:
        full_cluster(world, nodes=2)
        graceful = Graceful(world)
        world.add(pod("high", 10).build())
        world.settle()
        (deleted,) = world.client.deleted
        victim = deleted.removeprefix("default/")
        # Something else happens that might help, but does not.
        world.add(small_node("tiny", "100m"))
        world.add(small_node("other", "1"))
        world.add(pod("filler", 50).on("other").build())
        world.advance(30)
        world.advance(300)
        assert world.client.deleted == [deleted], "no other pod is evicted meanwhile"
        assert world.condition("high")[1].endswith(
            "preemption: not eligible due to a terminating pod on the nominated node."
        )
        graceful.let_go(victim)
        world.advance(20)
        assert world.client.bindings["default/high"] == f"n{victim[1:]}"


def test_a_preemptor_is_not_told_of_a_victim_whose_going_does_not_help_it() -> None:
    """Upstream: that it could look for victims of its own by then is no event; it waits for the
    five-minute flush.
    """
    with Cluster() as world:
        world.add(make_node("n0").label(HOSTNAME, "n0").capacity(cpu="4").build())
        graceful = Graceful(world)
        world.add(pod("web", 5).labels(app="web").on("n0").build())
        world.add(pod("v0").on("n0").build())
        world.add(pod("other", 10, "2500m").build())
        world.settle()
        assert world.client.deleted == ["default/v0"]
        apart = pod("apart", 20, "100m").pod_anti_affinity(HOSTNAME, app="web").nominated("n0")
        world.add(apart.build())
        world.settle()
        assert world.condition("apart")[1] == (
            "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules. "
            "preemption: not eligible due to a terminating pod on the nominated node."
        )
        graceful.let_go("v0")
        world.advance(200)
        assert world.client.bindings == {"default/other": "n0"}
        assert world.client.deleted == ["default/v0"], "not tried yet"
        world.advance(200)
        assert world.client.deleted == ["default/v0", "default/web"]


def test_no_pod_of_lower_priority_takes_the_freed_node() -> None:
    with Cluster() as world:
        full_cluster(world)
        graceful = Graceful(world)
        world.add(pod("high", 10).build())
        world.settle()
        world.add(pod("thief", 9).build())
        world.settle()
        graceful.let_go("v0")
        world.advance(20)
        assert world.client.bindings == {"default/high": "n0"}
        assert world.client.deleted == ["default/v0"]


def test_a_pod_of_higher_priority_may_take_the_node() -> None:
    with Cluster() as world:
        full_cluster(world)
        graceful = Graceful(world)
        world.add(pod("high", 10).build())
        world.settle()
        world.add(pod("higher", 20).build())
        world.settle()
        # The victim is going already, so no pod is deleted twice, and the lower nomination is left
        # to the next move.
        assert world.client.deleted == ["default/v0"]
        graceful.let_go("v0")
        world.advance(20)
        assert world.client.bindings == {"default/higher": "n0"}


def test_a_lower_nomination_is_cleared_when_the_node_is_taken_again() -> None:
    with Cluster() as world:
        world.add(small_node("n0", "2"))
        for number in range(2):
            world.add(pod(f"v{number}", number).on("n0").build())
        world.settle()
        Graceful(world)
        world.add(pod("high", 10).build())
        world.settle()
        assert world.pod("high").status.nominated_node_name == "n0"
        world.add(pod("higher", 20, "2").build())
        world.settle()
        assert sorted(world.client.deleted) == ["default/v0", "default/v1"]
        assert world.pod("high").status.nominated_node_name == ""
        assert world.pod("higher").status.nominated_node_name == "n0"


def test_several_preemptors_share_one_large_node() -> None:
    with Cluster() as world:
        world.add(small_node("n0", "4"))
        for number in range(4):
            world.add(pod(f"v{number}").on("n0").build())
        world.settle()
        graceful = Graceful(world)
        for number in range(3):
            world.add(pod(f"high{number}", 10).build())
        world.settle()
        victims = set(world.client.deleted)
        assert len(victims) == 3, "room for three, no more"
        for key in victims:
            graceful.let_go(key.removeprefix("default/"))
        world.advance(20)
        assert set(world.client.bindings.values()) == {"n0"}
        assert len(world.client.bindings) == 3


def test_the_preemptor_is_kept_back_while_victims_are_being_deleted() -> None:
    with Cluster() as world:
        world.add(small_node("n0", "2"))
        for number in range(2):
            world.add(pod(f"v{number}", number).on("n0").build())
        world.settle()
        answer = asyncio.Event()
        real = world.client.delete_pod

        async def slow_delete(victim: Pod) -> None:
            await answer.wait()
            await real(victim)

        world.client.delete_pod = slow_delete
        world.add(pod("high", 10, "2").build())
        world.settle()
        # A pod elsewhere goes: usually reason enough to try again.
        world.add(small_node("n1"))
        world.add(pod("elsewhere", 50).on("n1").build())
        world.settle()
        world.delete(world.pod("elsewhere"))
        world.advance(30)
        assert world.place_in_queue("high") == "gated"
        attempts = world.assembly.scheduler.queue.get_pod("default", "high").attempts
        answer.set()
        world.settle()
        world.advance(20)
        assert world.client.bindings["default/high"] == "n0"
        assert attempts == 1, "it was not tried too early"


def test_a_preemptor_kept_back_is_rescued_after_five_minutes() -> None:
    """The end of the work wakes no pod; if the deletion event is missed, the timer does."""
    with Cluster() as world:
        full_cluster(world)
        answer = asyncio.Event()

        async def delete_unnoticed(victim: Pod) -> None:
            await answer.wait()

        world.client.delete_pod = delete_unnoticed
        world.add(pod("high", 10).build())
        world.settle()
        world.add(small_node("n1"))
        world.add(pod("elsewhere", 50).on("n1").build())
        world.settle()
        world.delete(world.pod("elsewhere"))
        world.advance(30)
        assert world.place_in_queue("high") == "gated"
        answer.set()
        world.settle()
        assert world.place_in_queue("high") == "gated"
        world.advance(400)
        assert world.client.bindings == {"default/high": "n1"}


@pytest.mark.parametrize("failing", ["patch", "delete"])
def test_a_failed_eviction_is_tried_again_at_once(failing: str) -> None:
    with Cluster() as world:
        full_cluster(world)
        failures = [Forbidden("not now")]
        real_patch, real_delete = world.client.patch_pod_status, world.client.delete_pod

        async def patch(victim: Pod, body) -> None:
            if failing == "patch" and victim.metadata.name == "v0" and failures:
                raise failures.pop()
            await real_patch(victim, body)

        async def delete(victim: Pod) -> None:
            if failing == "delete" and failures:
                raise failures.pop()
            await real_delete(victim)

        world.client.patch_pod_status, world.client.delete_pod = patch, delete
        world.add(pod("high", 10).build())
        world.settle()
        world.advance(2)
        assert failures == []
        assert world.client.bindings == {"default/high": "n0"}


def test_a_budget_is_respected_when_another_node_will_do() -> None:
    with Cluster() as world:
        for number in range(2):
            world.add(small_node(f"n{number}"))
            world.add(pod(f"v{number}", number).on(f"n{number}").labels(app=f"a{number}").build())
        world.listers.of(PodDisruptionBudget).put(
            PodDisruptionBudget(
                metadata=ObjectMeta(name="b", namespace="default"),
                spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "a0"})),
                status=PodDisruptionBudgetStatus(disruptions_allowed=0),
            )
        )
        world.settle()
        world.add(pod("high", 10).build())
        world.settle()
        assert world.client.deleted == ["default/v1"], "although v0 is less important"
        assert world.client.bindings == {"default/high": "n1"}


def test_a_pod_may_wait_instead_of_preempting() -> None:
    with Cluster() as world:
        full_cluster(world)
        world.add(pod("polite", 10).spec(preemptionPolicy="Never").build())
        world.settle()
        assert world.client.deleted == []
        assert world.condition("polite")[1].endswith(
            "preemption: not eligible due to preemptionPolicy=Never."
        )


# -- victims whose binding is still under way ------------------------------------------------------


class Hesitant(PermitPlugin):
    """Lets unimportant pods wait."""

    name = "Hesitant"

    def permit(self, state, pod, node_name):
        return Wait(600) if not pod.spec.priority else None


class Slow(PreBindPlugin):
    """Prepares unimportant pods for ever."""

    name = "Slow"

    async def pre_bind(self, state, pod, node_name):
        if not pod.spec.priority:
            await asyncio.Event().wait()


def with_plugin(name: str, point: str) -> str:
    return (
        f"{HEADER}profiles:\n- schedulerName: default-scheduler\n"
        f"  plugins:\n    {point}: {{enabled: [{{name: {name}}}]}}\n"
    )


@pytest.mark.parametrize(
    ("plugin", "point", "reason"),
    [
        pytest.param(
            Hesitant, "permit", "waiting on permit for pod: preempted", id="waiting on Permit"
        ),
        pytest.param(Slow, "preBind", "preempted by DefaultPreemption", id="in PreBind"),
    ],
)
def test_a_victim_that_is_not_bound_yet_is_stopped_in_memory(plugin, point, reason) -> None:
    with Cluster(config=with_plugin(plugin.name, point), plugins=[plugin]) as world:
        world.add(small_node("n0"))
        world.add(pod("low").build())
        world.settle()
        assert world.assembly.scheduler.cache.assumed_count == 1
        world.add(pod("high", 10).build())
        world.settle()
        world.advance(2)
        assert world.client.deleted == []
        assert world.client.bindings == {"default/high": "n0"}
        notes = [event[3] for event in world.events if event[1] == "Preempted"]
        assert len(notes) == 1
        assert notes[0].endswith(" on node n0 (in kube-scheduler memory).")
        failures = [e[3] for e in world.events if e[1:3] == ("FailedScheduling", "default/low")]
        assert failures[0].endswith(reason)
        assert world.pod("low").metadata.deletion_timestamp is None, (
            "it lives on, and waits its turn"
        )
        waiting_pods = world.assembly.waiting_pods
        assert waiting_pods.preemptors == {}


@pytest.mark.parametrize("version", ["1.37", "1.36"])
def test_a_preemptor_is_tried_at_once_when_its_last_victim_is_stopped_in_memory(version) -> None:
    """In 1.36 the freed place is only an event, and hints do not know the labels of namespaces."""
    config = with_plugin("Hesitant", "permit")
    with Cluster(config=config, plugins=[Hesitant], gates=defaults(version)) as world:
        world.add(Namespace(metadata=ObjectMeta(name="default", labels={"team": "x"})))
        world.add(make_node("n0").label(HOSTNAME, "n0").capacity(cpu="4").build())
        world.add(pod("low").labels(app="low").build())
        world.settle()
        term = {
            "topologyKey": HOSTNAME,
            "labelSelector": {"matchLabels": {"app": "low"}},
            "namespaceSelector": {"matchLabels": {"team": "x"}},
        }
        world.add(pod("high", 10).affinity("podAntiAffinity", required=[term]).build())
        world.settle()
        world.advance(200)
        assert world.client.bindings == ({"default/high": "n0"} if version == "1.37" else {})


# -- while the attempt waits (gate off) ------------------------------------------------------------


def test_without_background_work_evictions_come_before_everything_else() -> None:
    with Cluster(gates=SYNCHRONOUS) as world:
        full_cluster(world)
        world.add(pod("high", 10).build())
        world.settle()
        world.advance(2)
        assert world.client.bindings == {"default/high": "n0"}
        assert [key for key, _ in world.client.patches][:2] == ["default/v0", "default/high"]


def test_without_background_work_a_failed_eviction_fails_the_attempt() -> None:
    with Cluster(gates=SYNCHRONOUS) as world:
        full_cluster(world)

        async def refuse(_victim: Pod) -> None:
            raise Forbidden("pods is forbidden")

        world.client.delete_pod = refuse
        world.add(pod("high", 10).build())
        world.settle()
        reason, message = world.condition("high")
        assert reason == "Unschedulable"
        assert (
            message == "0/1 nodes are available: 1 Insufficient cpu. preemption: pods is forbidden"
        )
        assert world.pod("high").status.nominated_node_name == ""


def test_other_pods_are_scheduled_after_a_slow_synchronous_eviction() -> None:
    with Cluster(gates=SYNCHRONOUS) as world:
        full_cluster(world)
        answer = asyncio.Event()
        real = world.client.delete_pod

        async def slow(victim: Pod) -> None:
            await answer.wait()
            await real(victim)

        world.client.delete_pod = slow
        world.add(pod("high", 10).build())
        world.settle()
        world.add(small_node("n1"))
        world.add(pod("other", 1).build())
        world.settle()
        assert world.client.bindings == {}, "the loop waits"
        answer.set()
        world.settle()
        world.advance(2)
        assert world.client.bindings.keys() == {"default/high", "default/other"}


# -- faults ----------------------------------------------------------------------------------------


class Crash(Exception):
    """The process ends here."""


def heavy_cluster(world: Cluster) -> None:
    """n0 is the cheapest node to clear: three victims of priority 0, against 1 on n1."""
    for number, priority in enumerate((0, 1)):
        world.add(small_node(f"n{number}", "4"))
        for each in range(4):
            world.add(pod(f"v{number}{each}", priority).on(f"n{number}").build())


def outcome_of_preemption(world: Cluster) -> dict[str, str]:
    for _ in range(6):
        world.settle()
        world.advance(15)
    return world.client.bindings


@pytest.mark.slow
@pytest.mark.parametrize(
    "error", [ServerError("busy", code=503), KubeschedError("no answer")], ids=str
)
@pytest.mark.parametrize("takes_effect", [False, True], ids=["lost", "effective"])
@pytest.mark.parametrize("at", range(9))
def test_whatever_call_fails_the_same_pods_go_and_the_preemptor_lands(
    at: int, takes_effect: bool, error: KubeschedError
) -> None:
    """Every call of a preemption with three victims, and of its status writes and binding, fails
    once.
    """
    with Cluster() as world:
        heavy_cluster(world)
        world.settle()
        fail_one_call(world, at, takes_effect, error)
        world.add(pod("high", 10, "3").build())
        bindings = outcome_of_preemption(world)
        assert bindings == {"default/high": "n0"}
        assert len(set(world.client.deleted)) == 3
        assert all(key.startswith("default/v0") for key in world.client.deleted)
        world.assembly.scheduler.check_invariants()


@pytest.mark.parametrize("at", range(9))
def test_after_a_crash_at_any_call_a_new_scheduler_finishes_the_job(at: int) -> None:
    """Nothing is kept but what the API server has: no pod is lost, none evicted that was not meant
    to go.
    """
    first = Cluster()
    crashed = asyncio.Event()

    with first:
        heavy_cluster(first)
        first.settle()
        crash_after(first, at, crashed)
        first.add(pod("high", 10, "3").build())
        first.settle()
        if at < 8:
            assert crashed.is_set()
    with Cluster(seed=2) as second:
        for node in first.listers.of(Node).list():
            second.add(node)
        for each in first.listers.of(Pod).list():
            second.add(each)
        outcome_of_preemption(second)
        assert second.pod("high").spec.node_name == "n0"
        left = sorted(p.metadata.name for p in second.listers.of(Pod).list())
        assert len(left) == 6, "eight pods, three gone, one came"
        assert [name for name in left if name.startswith("v1")] == ["v10", "v11", "v12", "v13"]


def fail_one_call(world: Cluster, at: int, takes_effect: bool, error: KubeschedError) -> None:
    """The `at`-th call from now on fails, having taken effect or not."""
    count = iter(range(10**6))

    def wrap(real):
        async def call(*args):
            fails = next(count) == at
            if not fails or takes_effect:
                await real(*args)
            if fails:
                raise error

        return call

    client = world.client
    client.patch_pod_status = wrap(client.patch_pod_status)
    client.delete_pod = wrap(client.delete_pod)


def crash_after(world: Cluster, at: int, crashed: asyncio.Event) -> None:
    """From the `at`-th call on nothing reaches the server any more, and no answer comes back."""
    count = iter(range(10**6))

    def wrap(real):
        async def call(*args):
            if crashed.is_set() or next(count) == at:
                crashed.set()
                await asyncio.Event().wait()
            await real(*args)

        return call

    client = world.client
    client.patch_pod_status = wrap(client.patch_pod_status)
    client.delete_pod = wrap(client.delete_pod)
    client.bind_pod = wrap(client.bind_pod)
