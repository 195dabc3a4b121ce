"""Staged situations in a quiet cluster, each of which exposes one kind of bug.

During the fault phase, later events repair what earlier ones missed. An episode runs in a quiet
cluster with its own nodes and pods (`stage`), so no other event helps. The usual checks detect
failures, above all `liveness`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from kubesched.lab.simulation import devices, options, storage, workloads
from kubesched.lab.simulation.cluster import BUDGETS
from kubesched.lab.simulation.faults import CallFault
from kubesched.lab.simulation.stage import STAGE, BrokenOff, Stage

HELD_S: Final = 3.0
GIVEN_UP_S: Final = 60.0
"""After this long no scheduler waits for the answer to a write."""
MAINTENANCE: Final = "example.com/closed"
FORBIDDEN: Final = CallFault("refused", commits=False, code=403)
NO_ANSWER: Final = CallFault("silent", commits=False)
LOST_ANSWER: Final = CallFault("broken", commits=True)
LATE_ANSWER: Final = CallFault("answer late", commits=True)
UNREACHABLE: Final = CallFault("broken", commits=False)

Episode = Callable[[Stage], Awaitable[None]]


async def play(stage: Stage, name: str) -> None:
    """Play an episode. The cluster must settle afterwards."""
    stage.note(name)
    stage.begin(name.replace(" ", "-").replace("'", ""))
    try:
        await EPISODES[name](stage)
        stage.was_played(name)
    except BrokenOff:
        stage.note(f"{name} is broken off")
    finally:
        stage.end()


# Resources become free.


async def _rejected_at_permit(stage: Stage) -> None:
    """A pod is rejected at Permit, and a waiting pod gets its resources."""
    stage.node("stage-1")
    _keep_nomination_unwritten(stage, "held")
    stage.hold("held", HELD_S, "reject")
    stage.pod("held")
    await stage.held("held")
    stage.pod("waits")
    await stage.rejected("waits")
    await asyncio.sleep(HELD_S)


async def _event_in_flight(stage: Stage) -> None:
    """The only helpful event arrives while the pod is held at Permit, before its rejection."""
    stage.node("stage-1")
    _keep_nomination_unwritten(stage, "held")
    stage.hold("held", HELD_S, "reject")
    stage.pod("held")
    await stage.held("held")
    await asyncio.sleep(HELD_S / 2)
    if stage.random.random() < 0.5:
        stage.patch_node("stage-1", {"metadata": {"labels": {"example.com/touched": "yes"}}})
    else:
        stage.node("stage-2")
    await asyncio.sleep(HELD_S)


def _keep_nomination_unwritten(stage: Stage, pod: str) -> None:
    """Suppress the nomination of a held pod, whose withdrawal would wake others."""
    stage.fail_calls("PATCH", f"/pods/{pod}/status", FORBIDDEN, times=20)


async def _scaled_down(stage: Stage) -> None:
    """A pod is resized, and another one fits."""
    stage.node("stage-1")
    await stage.placed(stage.pod("large"))
    await stage.rejected(stage.pod("waits", "1"))
    await _rest(stage)
    large = stage.cluster.find_pod("large")
    if large is not None:
        stage.cluster.set_requests(large, {"cpu": "500m", "memory": "64Mi"})


_CLOSED: Final = [{"key": key, "effect": "NoSchedule"} for key in (STAGE, MAINTENANCE)]
"""Taints of a node under maintenance."""


async def _wait_for_maintenance(stage: Stage) -> None:
    stage.node("stage-1")
    stage.patch_node("stage-1", {"spec": {"taints": _CLOSED}})
    await _rest(stage)
    await stage.rejected(stage.pod("waits"))
    await _rest(stage)


async def _taint_removed(stage: Stage) -> None:
    await _wait_for_maintenance(stage)
    stage.patch_node("stage-1", {"spec": {"taints": _CLOSED[:1]}})


async def _toleration_added(stage: Stage) -> None:
    """The pod itself changes so that it fits."""
    await _wait_for_maintenance(stage)
    tolerations = [{"key": key, "operator": "Exists"} for key in (STAGE, MAINTENANCE)]
    patch = {"spec": {"tolerations": tolerations}}
    stage.cluster.api.patch("pods", "default", "waits", patch)


async def _rest(stage: Stage) -> None:
    """Outlast the backoff after one attempt: only an event can bring the pod back."""
    await asyncio.sleep(stage.random.uniform(2.5, 4.0))


# A pod is deleted during scheduling.


async def _deleted_at_permit(stage: Stage) -> None:
    stage.node("stage-1")
    stage.hold("held", HELD_S, "allow")
    stage.pod("held")
    await stage.held("held")
    # Its binding stays unanswered for a long time, during which its resources must stay taken.
    stage.fail_calls("POST", "/pods/held/binding", NO_ANSWER)
    stage.delete("held")
    stage.pod("waits")
    await stage.placed("waits")


async def _deleted_while_bound(stage: Stage) -> None:
    stage.node("stage-1")
    left = stage.fail_calls("POST", "/pods/leaves/binding", NO_ANSWER)
    stage.pod("leaves")
    await stage.until(lambda: left() == 0)
    stage.delete("leaves")
    stage.pod("waits")
    await stage.placed("waits")


async def _recreated_at_permit(stage: Stage) -> None:
    stage.node("stage-1")
    stage.hold("held", HELD_S, "reject")
    stage.pod("held")
    await stage.held("held")
    stage.delete("held", at_once=True)
    stage.pod("held")
    await asyncio.sleep(HELD_S)


# Preemption.


async def _eviction_refused(stage: Stage) -> None:
    """The API server first rejects the victim's deletion."""
    stage.node("stage-1")
    await stage.placed(stage.pod("victim"))
    stage.fail_calls("DELETE", "/pods/victim", FORBIDDEN)
    stage.pod("preemptor", priority="high")
    await stage.rejected("preemptor")
    await asyncio.sleep(HELD_S)


async def _preemptor_deleted(stage: Stage) -> None:
    """The preemptor is deleted before its victim: waiting pods get the resources."""
    stage.node("stage-1")
    await stage.placed(stage.pod("victim"))
    await stage.rejected(stage.pod("waits", "1"))
    stage.pod("preemptor", priority="high")
    await stage.until(lambda: _is_leaving(stage, "victim"))
    stage.delete("preemptor")
    await asyncio.sleep(HELD_S)


async def _budget_in_the_way(stage: Stage) -> None:
    """Two nodes are possible. One has the less important victim, but a budget protects it."""
    stage.cluster.api.create(BUDGETS, workloads.budget("kept", 1))
    stage.node("scene-1")
    await stage.placed(stage.pod("kept", app="kept"))
    stage.node("scene-2")
    await stage.placed(stage.pod("other", priority="middle"))
    await _rest(stage)
    stage.pod("chooser", priority="high")
    await stage.rejected("chooser")
    await asyncio.sleep(HELD_S)


async def _nomination_withdrawn(stage: Stage) -> None:
    """The nominated node becomes infeasible; an unwritten nomination must not hold resources."""
    stage.node("stage-1")
    await stage.placed(stage.pod("victim"))
    await stage.rejected(stage.pod("waits", "1", tolerates=MAINTENANCE))
    await _rest(stage)
    _keep_nomination_unwritten(stage, "preemptor")
    stage.pod("preemptor", priority="high")
    await stage.until(lambda: _is_leaving(stage, "victim"))
    stage.patch_node("stage-1", {"spec": {"taints": _CLOSED}})
    if stage.cluster.find_pod("victim") is not None:
        stage.delete("victim", at_once=True)
    await asyncio.sleep(3 * HELD_S)


async def _started_later(stage: Stage) -> None:
    """Kubelets report start times between two preemptions: the youngest is the next victim."""
    victims = [f"alike-{number}" for number in range(1, 5)]
    for number, name in enumerate(victims, start=1):
        stage.node(f"scene-{number}")
        stage.pod(name)
    for name in victims:
        await stage.placed(name)
    for preemptor in ("before", "after"):
        await stage.placed(stage.pod(preemptor, priority="high"))
        await asyncio.sleep(2 * HELD_S)


def _is_leaving(stage: Stage, pod: str) -> bool:
    found = stage.cluster.find_pod(pod)
    return found is None or found["metadata"].get("deletionTimestamp") is not None


# Answers are lost, and the watch is late.


async def _binding_answer_lost(stage: Stage) -> None:
    stage.node("stage-1")
    await _rest(stage)
    left = stage.fail_calls("POST", "/pods/bound/binding", LOST_ANSWER)
    stage.pod("bound")
    await asyncio.sleep(0)  # the pod itself is visible at once
    stage.delay_watch("pods", HELD_S)
    await stage.until(lambda: left() == 0)
    await asyncio.sleep(2 * HELD_S)


async def _extender_answer_lost(stage: Stage) -> None:
    """An extender binds a pod, its answer is lost, and the watch is late."""
    stage.node("stage-1")
    await _rest(stage)
    stage.extender.next_mood["bind"] = "breaks"
    stage.pod("bound")
    await asyncio.sleep(0)  # the pod itself is visible at once
    stage.delay_watch("pods", HELD_S)
    await stage.until(lambda: "bind" not in stage.extender.next_mood)
    await asyncio.sleep(2 * HELD_S)


async def _late_renewal(stage: Stage) -> None:
    """A renewal is answered late, and then the leader loses access to its lease."""
    leases, leader = "/leases/kube-scheduler", stage.leader()
    left = stage.fail_calls("PUT", leases, LATE_ANSWER, process=leader)
    await stage.until(lambda: left() == 0)
    stage.fail_calls("PUT", leases, UNREACHABLE, times=100, process=leader)
    await asyncio.sleep(30.0)


async def _restored(stage: Stage) -> None:
    """The cluster is restored from a backup, and no later event reveals it."""
    stage.node("stage-1")
    revision = stage.cluster.store.revision
    await stage.placed(stage.pod("forgotten"))
    await _rest(stage)
    stage.restore(revision)


async def _restored_and_changed(stage: Stage) -> None:
    """After a restore, other node changes reach all known revisions before any watch reconnects."""
    first, last = stage.node("backup-1"), stage.node("backup-2")
    await _rest(stage)
    store = stage.cluster.store
    revision = store.revision
    _mark(stage, first, "lost")
    _mark(stage, last, "lost")
    await _rest(stage)
    reached = store.revision
    stage.restore(revision)
    while store.revision < reached:
        _mark(stage, first, f"revision-{store.revision}")
    _mark(stage, last, "found")  # rereading the newest known object would prove nothing


def _mark(stage: Stage, node: str, value: str) -> None:
    stage.patch_node(node, {"metadata": {"labels": {"example.com/mark": value}}})


# Volumes and devices.


async def _disk_given_back(stage: Stage) -> None:
    """A pod is deleted at Permit, and another claim gets its disk."""
    stage.node("stage-1", disks=1)
    api = stage.cluster.api
    for name in ("stage-a", "stage-b"):
        api.create(storage.CLAIMS, storage.claim(name, storage.LOCAL))
    await _rest(stage)
    stage.hold("held", HELD_S, "reject")
    stage.pod("held", "1", disk_claim="stage-a")
    await stage.held("held")
    stage.delete("held", at_once=True)
    api.delete(storage.CLAIMS, "default", "stage-a")
    stage.pod("waits", "1", disk_claim="stage-b")
    await asyncio.sleep(HELD_S)


async def _other_node_for_volume(stage: Stage) -> None:
    """A claim's selected node becomes infeasible before provisioning; another node is chosen."""
    for name in ("stage-1", "stage-2"):
        stage.node(name, zone=name)
    stage.cluster.api.create(storage.CLAIMS, storage.claim("stage-c", storage.NETWORK))
    await _rest(stage)
    stage.hold("held", HELD_S, "reject")
    stage.pod("held", disk_claim="stage-c")
    await stage.held("held")
    closed = next(iter(_assumed_nodes(stage, "held")), "stage-1")
    await asyncio.sleep(HELD_S / 2)
    stage.patch_node(closed, {"spec": {"unschedulable": True}})
    await asyncio.sleep(HELD_S)


def _assumed_nodes(stage: Stage, pod: str) -> list[str]:
    found = stage.cluster.find_pod(pod) or {"metadata": {"uid": ""}}
    uid = found["metadata"]["uid"]
    caches = (replica.process.assembly.scheduler.cache for replica in stage.processes.alive())
    known = (cache.get_pod(uid) for cache in caches)
    return [info.pod.spec.node_name for info in known if info is not None]


async def _allocation_answer_lost(stage: Stage) -> None:
    """A device is allocated, the answer is lost, the watch is late: the device must stay taken."""
    stage.node("stage-1", gpus=1)
    for name in ("stage-a", "stage-b"):
        stage.cluster.api.create(devices.CLAIMS, devices.claim(name))
    await _rest(stage)
    stage.fail_calls("PUT", "/resourceclaims/stage-a/status", LOST_ANSWER, times=100)
    stage.delay_watch("resourceclaims", GIVEN_UP_S + 2 * HELD_S)
    stage.pod("first", "1", device_claim="stage-a")
    await stage.rejected("first", GIVEN_UP_S)
    stage.pod("second", "1", device_claim="stage-b")
    await asyncio.sleep(2 * HELD_S)


async def _reservation_given_back(stage: Stage) -> None:
    """A pod with a rejected binding releases its claim while it cannot be placed."""
    stage.node("stage-1", gpus=1)
    stage.cluster.api.create(devices.CLAIMS, devices.claim("stage-a"))
    await _rest(stage)
    left = stage.fail_calls("POST", "/pods/refused/binding", FORBIDDEN)
    stage.pod("refused", "1", device_claim="stage-a")
    await stage.until(lambda: left() == 0)
    stage.patch_node("stage-1", {"spec": {"unschedulable": True}})
    await asyncio.sleep(HELD_S)
    stage.expect_no_reservation("stage-a", "refused")


async def _deallocation_refused(stage: Stage) -> None:
    """A claim is allocated where its pod no longer fits, and its deallocation is rejected."""
    stage.node("scene-1", gpus=1)
    stage.cluster.api.create(devices.CLAIMS, devices.claim("scene-a"))
    await _rest(stage)
    left = stage.fail_calls("POST", "/pods/moves/binding", FORBIDDEN)
    stage.pod("moves", "1", device_claim="scene-a")
    await stage.until(lambda: left() == 0)
    left = stage.fail_calls("PUT", "/resourceclaims/scene-a/status", FORBIDDEN)
    stage.patch_node("scene-1", {"spec": {"unschedulable": True}})
    stage.node("scene-2", gpus=1)
    await stage.until(lambda: left() == 0)
    await asyncio.sleep(HELD_S)


EPISODES: Final[dict[str, Episode]] = {
    "rejected at Permit": _rejected_at_permit,
    "event in flight": _event_in_flight,
    "scaled down": _scaled_down,
    "taint removed": _taint_removed,
    "toleration added": _toleration_added,
    "deleted at Permit": _deleted_at_permit,
    "deleted while bound": _deleted_while_bound,
    "recreated at Permit": _recreated_at_permit,
    "eviction refused": _eviction_refused,
    "preemptor deleted": _preemptor_deleted,
    "nomination withdrawn": _nomination_withdrawn,
    "binding answer lost": _binding_answer_lost,
    "late renewal": _late_renewal,
    "restore": _restored,
    "disk given back": _disk_given_back,
    "other node for volume": _other_node_for_volume,
    "allocation answer lost": _allocation_answer_lost,
    "reservation given back": _reservation_given_back,
    "extender's answer lost": _extender_answer_lost,
    "budget in the way": _budget_in_the_way,
    "deallocation refused": _deallocation_refused,
    "restore and changes": _restored_and_changed,
    "started later": _started_later,
}

assert list(EPISODES) == [*options.EPISODES, *options.FURTHER_EPISODES]
