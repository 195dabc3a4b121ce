"""Carrying out a preemption: every API call and its body, what is left alone, and what a failure
leads to.

The sweep at the end fails the first call of a preemption, then the second, and so on: whatever
fails, the preemptor is tried again, nothing stays locked, and trying again finishes the job.
"""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from msgspec import structs

from kubesched.api.core_v1 import Pod
from kubesched.base.errors import (
    Conflict,
    ConnectFailed,
    DeadlineExceeded,
    Forbidden,
    NotFound,
    ServerError,
)
from kubesched.config.features import DEFAULT_GATES, defaults
from kubesched.framework.extenders import Victims
from kubesched.framework.preemption.candidates import Candidate
from kubesched.framework.preemption.executor import Executor
from kubesched.testing import make_pod

SYNCHRONOUS = dataclasses.replace(DEFAULT_GATES, SchedulerAsyncPreemption=False)
MESSAGE = "default-scheduler: preempting to accommodate a higher priority pod"
NOW = "2026-01-01T12:00:00Z"
TARGET = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "PreemptionByScheduler",
    "message": MESSAGE,
}


@pytest.fixture
def scene(make_world):
    return Scene(make_world())


@pytest.fixture
def synchronous_scene(make_world):
    return Scene(make_world(gates=SYNCHRONOUS))


class Scene:
    """A preemptor `p` of priority 100 and a node `n` with victims, least important last."""

    def __init__(self, world) -> None:
        self.world = world
        self.executor: Executor = world.plugin.evaluator.executor
        world.node("n", "8")
        self.preemptor = world.pending("p").build()
        world.listers.of(Pod).put(self.preemptor)
        self.client = world.client

    def victims(self, *names, **fields):
        pods = [self.world.add(self.victim(name, **fields)) for name in names]
        return Candidate("n", Victims(tuple(pods)))

    @staticmethod
    def victim(name, conditions=None, terminating=False, generation=0):
        pod = make_pod(name).on("n").cpu("1")
        if conditions:
            pod.status(conditions=conditions)
        if generation:
            pod.json["metadata"]["generation"] = generation
        return pod.terminating() if terminating else pod

    async def evict(self, candidate):
        self.executor.start(candidate, self.preemptor)
        await self.world.run_spawned()

    @property
    def is_settled(self) -> bool:
        return not self.executor.is_running(self.preemptor) and not self.executor._last_victims

    @property
    def events(self):
        return [(name, note) for name, *_, note in self.world.recorder.events]


# -- one victim ------------------------------------------------------------------------------------


async def test_a_victim_is_told_then_deleted_then_reported(scene) -> None:
    await scene.evict(scene.victims("a", generation=3))
    assert scene.client.calls == ["patch a", "delete a"]
    assert scene.client.patches["a"] == {
        "status": {
            "conditions": [
                TARGET | {"lastProbeTime": None, "lastTransitionTime": NOW, "observedGeneration": 3}
            ]
        }
    }
    note = f"Preempted by pod {scene.preemptor.metadata.uid} on node n"
    assert scene.world.recorder.events == [("a", None, "Normal", "Preempted", "Preempting", note)]
    assert scene.world.activations.activated == []


async def test_other_conditions_are_kept_in_order(scene) -> None:
    await scene.evict(scene.victims("a", conditions=[{"type": "Ready", "status": "True"}]))
    patch = scene.client.patches["a"]["status"]
    assert patch["$setElementOrder/conditions"] == [
        {"type": "Ready"},
        {"type": "DisruptionTarget"},
    ]
    assert [each["type"] for each in patch["conditions"]] == ["DisruptionTarget"]


async def test_an_identical_condition_is_not_written_again(scene) -> None:
    await scene.evict(scene.victims("a", conditions=[TARGET], generation=7))
    assert scene.client.calls == ["delete a"]


async def test_the_reason_of_a_disruption_is_corrected(scene) -> None:
    earlier = TARGET | {"reason": "Other", "lastTransitionTime": "2026-01-01T01:00:00Z"}
    await scene.evict(scene.victims("a", conditions=[earlier]))
    (change,) = scene.client.patches["a"]["status"]["conditions"]
    assert change == {"type": "DisruptionTarget", "reason": "PreemptionByScheduler"}


async def test_a_victim_already_going_is_left_alone(scene) -> None:
    going = scene.world.add(scene.victim("a", terminating=True))
    staying = scene.world.add(scene.victim("b"))
    await scene.evict(Candidate("n", Victims((going, staying))))
    assert scene.client.calls == ["patch b", "delete b"]
    assert scene.world.metrics.preemption_victims.sum == 2, "all chosen victims count"


@pytest.mark.parametrize(("version", "counted"), [("1.37", 1), ("1.36", 0)])
async def test_with_all_victims_going_nothing_is_started(make_world, version, counted) -> None:
    scene = Scene(make_world(gates=defaults(version)))
    scene.executor.start(scene.victims("a", terminating=True), scene.preemptor)
    assert scene.world.spawned == []
    assert scene.is_settled
    assert scene.world.metrics.preemption_victims.count == counted


@pytest.mark.parametrize("call", ["patch a", "delete a"])
async def test_a_victim_that_is_gone_already_is_fine_but_not_reported(scene, call) -> None:
    candidate = scene.victims("a")
    scene.client.fail[call] = NotFound('pods "a" not found')
    await scene.evict(candidate)
    assert scene.client.calls[-1] == call
    assert scene.events == []
    assert scene.world.activations.activated == []


async def test_a_victim_waiting_on_permit_is_stopped_in_memory(scene) -> None:
    candidate = scene.victims("a")
    waiting = scene.world.waiting_pods.add(candidate.victims.pods[0], {"Gang": 10.0})
    await scene.evict(candidate)
    assert scene.client.calls == []
    assert waiting.outcome.message == "preempted"
    assert scene.events[0][1].endswith(" on node n (in kube-scheduler memory).")


@pytest.mark.parametrize("version", ["1.37", "1.36"])
@pytest.mark.parametrize("in_memory", [0, 1])
async def test_the_last_victim_in_memory_activates_the_preemptor(
    make_world, version, in_memory
) -> None:
    """No deletion will wake it; until 1.36 it waited for an event that helps."""
    scene = Scene(make_world(gates=defaults(version)))
    candidate = scene.victims("a", "b")
    scene.world.waiting_pods.add(candidate.victims.pods[in_memory], {"Gang": 10.0})
    await scene.evict(candidate)
    is_last = in_memory == 1
    last = candidate.victims.pods[1].metadata.uid
    preemptors = {last: scene.preemptor} if is_last and version == "1.37" else {}
    assert scene.world.waiting_pods.preemptors == preemptors, "to activate when the place is free"
    assert scene.world.activations.activated == []


async def test_a_victim_whose_wait_is_over_is_deleted(scene) -> None:
    candidate = scene.victims("a")
    uid = candidate.victims.pods[0].metadata.uid
    scene.world.waiting_pods.add(candidate.victims.pods[0], {"Gang": 10.0}).allow("Gang")
    cancelled = []
    scene.world.pods_in_pre_bind.add(uid, cancelled.append)
    await scene.evict(candidate)
    assert scene.client.calls == ["patch a", "delete a"]
    assert cancelled == [], "the wait was decided, so PreBind is not looked at"


async def test_a_victim_in_pre_bind_is_called_off(scene) -> None:
    candidate = scene.victims("a")
    reasons = []
    scene.world.pods_in_pre_bind.add(candidate.victims.pods[0].metadata.uid, reasons.append)
    await scene.evict(candidate)
    assert reasons == ["preempted by DefaultPreemption"]
    assert scene.client.calls == []
    assert scene.events[0][1].endswith(" (in kube-scheduler memory).")


async def test_a_victim_past_pre_bind_is_deleted(scene) -> None:
    candidate = scene.victims("a")
    uid = candidate.victims.pods[0].metadata.uid
    scene.world.pods_in_pre_bind.add(uid, lambda _reason: None).mark_prebound()
    await scene.evict(candidate)
    assert scene.client.calls == ["patch a", "delete a"]


@pytest.mark.parametrize(
    ("error", "patches"),
    [
        pytest.param(ServerError("broken", code=500), 4, id="an internal error is tried again"),
        pytest.param(ServerError("busy", code=503), 4, id="so is an unavailable server"),
        pytest.param(Conflict("changed"), 4, id="so is a conflict"),
        pytest.param(ConnectFailed("refused"), 4, id="so is a refused connection"),
        pytest.param(ServerError("bad gateway", code=502), 1, id="other server errors are not"),
        pytest.param(Forbidden("no"), 1, id="what is forbidden stays forbidden"),
        pytest.param(DeadlineExceeded("late"), 1, id="nor is a timeout"),
    ],
)
async def test_status_patches_are_retried(scene, monkeypatch, error, patches) -> None:
    pauses = []

    async def no_pause(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", no_pause)
    candidate = scene.victims("a")
    scene.client.fail["patch a"] = error
    await scene.evict(candidate)
    assert scene.client.calls == ["patch a"] * patches, "and the victim is not deleted"
    for pause, expected in zip(pauses, [0.01, 0.05, 0.25], strict=False):
        assert expected <= pause <= 1.1 * expected
    assert scene.world.activations.activated == ["default/p"]


# -- several victims, in the background ------------------------------------------------------------


async def test_the_preemptor_waits_until_everything_is_done(scene) -> None:
    scene.executor.start(scene.victims("a", "b"), scene.preemptor)
    assert scene.executor.is_running(scene.preemptor)
    await scene.world.run_spawned()
    assert scene.is_settled
    assert scene.client.calls[-1] == "delete b", "the last one comes last"


@pytest.mark.parametrize("broken", ["a", "b"])
async def test_the_last_victim_is_spared_when_another_one_could_not_be_evicted(
    scene, broken
) -> None:
    candidate = scene.victims("a", "b", "c")
    scene.client.fail[f"patch {broken}"] = Forbidden("no")
    await scene.evict(candidate)
    assert not any("c" in call.split() for call in scene.client.calls)
    assert scene.world.activations.activated == ["default/p"]
    assert scene.is_settled


async def test_the_last_victim_frees_the_preemptor_as_soon_as_it_is_going(scene) -> None:
    """Its deletion may be seen before the server's answer to it arrives."""
    candidate = scene.victims("a")
    (victim,) = candidate.victims.pods
    seen = []

    async def delete(pod):
        seen.append(scene.executor.is_running(scene.preemptor))
        marked = structs.replace(pod.metadata, deletion_timestamp=NOW)
        scene.world.listers.of(Pod).put(structs.replace(pod, metadata=marked))
        seen.append(scene.executor.is_running(scene.preemptor))
        scene.world.listers.of(Pod).remove(pod.metadata.namespace, pod.metadata.name)
        seen.append(scene.executor.is_running(scene.preemptor))

    scene.client.delete_pod = delete
    await scene.evict(candidate)
    assert seen == [True, False, False]
    assert victim.metadata.name == "a"


async def test_while_other_victims_are_left_the_last_one_does_not_free_the_preemptor(scene) -> None:
    candidate = scene.victims("a", "b")
    seen = []

    async def delete(pod):
        scene.world.listers.of(Pod).remove("default", "b")
        seen.append((pod.metadata.name, scene.executor.is_running(scene.preemptor)))

    scene.client.delete_pod = delete
    await scene.evict(candidate)
    assert seen == [("a", True), ("b", False)]


async def test_victims_that_are_not_bound_yet_are_stopped_in_the_first_step(scene) -> None:
    """Tasks begin after it: whoever had left PreBind by then would be deleted, and stopped when a
    recording is played.
    """
    candidate = scene.victims("a", "b", "c")
    reasons = []
    scene.world.pods_in_pre_bind.add(candidate.victims.pods[1].metadata.uid, reasons.append)
    scene.executor.start(candidate, scene.preemptor)
    ((work, _),) = scene.world.spawned
    scene.world.spawned.clear()
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    assert reasons == ["preempted by DefaultPreemption"]
    assert scene.client.calls == []
    await task
    assert scene.client.calls == ["patch a", "delete a", "patch c", "delete c"]


async def test_outcomes_are_measured(scene) -> None:
    await scene.evict(scene.victims("a"))
    scene.client.fail["delete b"] = Forbidden("no")
    await scene.evict(scene.victims("b"))
    cells = scene.world.metrics.preemption_goroutines_execution_total.cells()
    assert {labels[0]: cell.value for labels, cell in cells.items()} == {"success": 1, "error": 1}


async def test_an_unforeseen_failure_locks_no_pod_out(scene) -> None:
    candidate = scene.victims("a")
    scene.client.fail["patch a"] = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        await scene.evict(candidate)
    assert scene.is_settled
    assert scene.world.activations.activated == ["default/p"]


async def test_cancelling_the_work_locks_no_pod_out(scene) -> None:
    scene.executor.start(scene.victims("a"), scene.preemptor)
    hanging = asyncio.Event()

    async def hang(_pod, _patch):
        await hanging.wait()

    scene.client.patch_pod_status = hang
    (work, _), *_ = scene.world.spawned
    scene.world.spawned.clear()
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert scene.is_settled


async def test_no_more_victims_at_a_time_than_the_configuration_allows(make_world) -> None:
    scene = Scene(make_world(parallelism=2))
    candidate = scene.victims("a", "b", "c", "d", "e", "f")
    running, most = 0, 0

    async def delete(_pod):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    scene.client.delete_pod = delete
    await scene.evict(candidate)
    assert most == 2


# -- nominations of others -------------------------------------------------------------------------


async def test_lower_nominations_to_the_node_are_cleared(scene) -> None:
    scene.world.nominate("n", "lower", priority=99)
    scene.world.nominate("n", "equal", priority=100)
    scene.world.nominate("n", "higher", priority=101)
    scene.world.nominate("m", "elsewhere", priority=0)
    await scene.evict(scene.victims("a"))
    assert scene.client.calls == ["patch lower", "patch a", "delete a"]
    assert scene.client.patches["lower"] == {"status": {"nominatedNodeName": None}}


async def test_a_nomination_the_server_does_not_know_yet_is_not_cleared(scene) -> None:
    pod = scene.world.nominate("n", "lower", priority=1)
    unaware = structs.replace(pod, status=structs.replace(pod.status, nominated_node_name=""))
    scene.world.queued["default/lower"].pod = unaware
    await scene.evict(scene.victims("a"))
    assert "patch lower" not in scene.client.calls


async def test_a_nomination_that_cannot_be_cleared_stops_nothing_but_is_not_forgotten(
    scene,
) -> None:
    scene.world.nominate("n", "lower", priority=1)
    candidate = scene.victims("a")
    scene.client.fail["patch lower"] = Forbidden("no")
    await scene.evict(candidate)
    assert scene.client.calls == ["patch lower", "patch a", "delete a"]
    assert scene.world.activations.activated == ["default/p"]


# -- while the attempt waits -----------------------------------------------------------------------


async def test_the_attempt_waits_for_the_evictions(synchronous_scene) -> None:
    scene = synchronous_scene
    scene.world.nominate("n", "lower", priority=1)
    await scene.executor.carry_out(scene.victims("a", "b"), scene.preemptor)
    assert sorted(scene.client.calls[:4]) == ["delete a", "delete b", "patch a", "patch b"]
    assert scene.client.calls[4] == "patch lower", "nominations are cleared afterwards"
    assert scene.world.spawned == []
    assert not scene.executor.is_running(scene.preemptor)


async def test_the_whole_answer_waits_too(make_world) -> None:
    world = make_world(gates=SYNCHRONOUS)
    world.node("n", "1")
    world.on("n", "v")
    assert await world.preempt_and_wait(world.pending()) == ("n", "")
    assert world.client.calls == ["patch v", "delete v"]


async def test_a_failed_eviction_fails_the_attempt_and_keeps_the_nomination(make_world) -> None:
    world = make_world(gates=SYNCHRONOUS)
    world.node("n", "1")
    world.on("n", "v")
    world.client.fail["delete v"] = Forbidden("pods is forbidden")
    assert await world.preempt_and_wait(world.pending()) == (None, "preemption: pods is forbidden")
    assert world.activations.activated == [], "an error brings the pod back by itself"


async def test_a_nomination_that_cannot_be_cleared_does_not_fail_the_attempt(
    synchronous_scene,
) -> None:
    scene = synchronous_scene
    scene.world.nominate("n", "lower", priority=1)
    candidate = scene.victims("a")
    scene.client.fail["patch lower"] = Forbidden("no")
    assert await scene.executor.carry_out(candidate, scene.preemptor) is None


async def test_terminating_victims_count_but_are_left_alone(synchronous_scene) -> None:
    scene = synchronous_scene
    assert (
        await scene.executor.carry_out(scene.victims("a", terminating=True), scene.preemptor)
        is None
    )
    assert scene.client.calls == []
    assert scene.world.metrics.preemption_victims.sum == 1


# -- every call fails once -------------------------------------------------------------------------


@pytest.mark.parametrize("lands", [False, True], ids=["never arrived", "arrived, no answer"])
@pytest.mark.parametrize("at", range(7))
async def test_whatever_call_fails_trying_again_finishes_the_job(make_world, at, lands) -> None:
    """The 0th to 6th call of a preemption with three victims and one nomination to clear: seven
    calls in all.
    """
    world = make_world()
    scene = Scene(world)
    lower = world.nominate("n", "lower", priority=1)
    candidate = scene.victims("a", "b", "c")
    server = {pod.metadata.name: set() for pod in (*candidate.victims.pods, lower)}
    count = 0

    async def call(what, pod):
        nonlocal count
        count += 1
        failing = count - 1 == at
        if not failing or lands:
            server[pod.metadata.name].add(what)
        if failing:
            raise DeadlineExceeded("no answer")

    async def patch(pod, _body):
        if "delete" in server[pod.metadata.name]:
            raise NotFound("gone")
        await call("patch", pod)

    async def delete(pod):
        if "delete" in server[pod.metadata.name]:
            raise NotFound("gone")
        assert "patch" in server[pod.metadata.name], "deleted without a word"
        await call("delete", pod)

    scene.client.patch_pod_status, scene.client.delete_pod = patch, delete
    await scene.evict(candidate)
    assert scene.is_settled
    assert world.activations.activated == ["default/p"], "the preemptor is tried again"
    # It is tried again and, nothing else having changed, chooses the same victims.
    await scene.evict(candidate)
    assert scene.is_settled
    assert all("delete" in server[name] for name in "abc")
    assert world.activations.activated == ["default/p"], "and this time it is done"
