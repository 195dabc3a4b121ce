"""Executes a preemption: deletes and reports the victims, and clears lower nominations to the node.

Usually in the background (`start`), after the attempt has ended. Meanwhile PreEnqueue keeps the
preemptor out of the active queue (`is_running`), because it could only fail again:

    preempting      UIDs of the preemptors whose victims are being evicted
    last victims    for preemptors with a single deletion left. Its watch event wakes the preemptor
                    and may arrive before the response to the request: from here on the preemptor
                    may be queued as soon as that victim is terminating

Without asynchronous preemption (`carry_out`) the attempt waits until everything is done.

After a failure the remaining victims are not evicted; the preemptor is activated at once and
evaluates preemption again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from kubesched.api.core_v1 import Pod, PodCondition
from kubesched.api.names import key_of
from kubesched.base.errors import KubeschedError, NotFound
from kubesched.base.logs import get_logger
from kubesched.framework.groups.states import Group
from kubesched.framework.groups.tree import GroupNode
from kubesched.framework.handle import Handle, SchedulerClient
from kubesched.framework.nominating_info import CLEAR_NOMINATION
from kubesched.framework.pod_status import status_patch, write_status
from kubesched.framework.preemption.candidates import Candidate
from kubesched.framework.status import Status, error_status

log = get_logger(__name__)

DISRUPTION_TARGET: Final = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER: Final = "PreemptionByScheduler"
IN_MEMORY: Final = " (in kube-scheduler memory)."


@contextmanager
def rehearse(handle: Handle) -> Iterator[list[Candidate]]:
    """Evict nothing in this context; yields the candidates that would be evicted, in order."""
    handle.rehearsed = rehearsed = list[Candidate]()
    try:
        yield rehearsed
    finally:
        handle.rehearsed = None


@dataclass(frozen=True, slots=True)
class OnBehalfOf:
    """Whoever needs the room: a pod, or a group of them."""

    obj: Pod | Group
    kind: str
    """As events and conditions call it."""
    scheduler_name: str
    priority: int
    pods: Sequence[Pod]
    """The pods to try again when something goes wrong."""

    @property
    def uid(self) -> str:
        return self.obj.metadata.uid

    @property
    def related(self) -> Group | None:
        """The related object of events; upstream fails to name a pod."""
        return None if isinstance(self.obj, Pod) else self.obj


def on_behalf_of(pod: Pod) -> OnBehalfOf:
    return OnBehalfOf(pod, "pod", pod.spec.scheduler_name, pod.spec.priority or 0, (pod,))


def on_behalf_of_group(group: GroupNode) -> OnBehalfOf:
    pods = [info.pod_info.pod for info in group.all_members()]
    kind = "compositepodgroup" if group.key.is_composite else "podgroup"
    return OnBehalfOf(group.group, kind, pods[0].spec.scheduler_name, group.priority, pods)


class _LastVictim(NamedTuple):
    namespace: str
    name: str


class Executor:
    """Executes the preemptions of one plugin."""

    def __init__(self, handle: Handle, plugin_name: str) -> None:
        self._handle = handle
        self._plugin_name = plugin_name
        reference = handle.feature_gates.reference
        self._counts_terminating = reference.terminating_victims_are_counted
        self._activates_in_memory = reference.last_victim_in_memory_activates
        self._preempting: set[str] = set()
        self._last_victims: dict[str, _LastVictim] = {}
        self._kept_back: dict[str, Pod] = {}
        """UIDs of preemptors that a helpful event reached while `is_running` held them back."""

    def is_idle(self) -> bool:
        """True if no eviction is in progress and no preemptor is held back."""
        return not (self._preempting or self._kept_back)

    # -- in the background -------------------------------------------------------------------------

    def start(self, candidate: Candidate, preemptor: Pod) -> None:
        """Evict the victims in the background, except those already terminating."""
        self.start_for(candidate, on_behalf_of(preemptor))

    def start_for(self, candidate: Candidate, preemptor: OnBehalfOf) -> None:
        if self._handle.rehearsed is not None:
            self._handle.rehearsed.append(candidate)
            return
        victims = [pod for pod in candidate.victims.pods if not _is_terminating(pod)]
        if preemptor.related is None and (victims or self._counts_terminating):
            self._count_victims(candidate)
        if not victims:
            return
        spawn = self._handle.spawn
        assert spawn is not None, "preemption needs `spawn` for its background work"
        self._preempting.add(preemptor.uid)
        log.info(
            "Start the preemption asynchronously",
            v=2,
            preemptor=preemptor.obj,
            node=candidate.node_name,
            numVictims=len(candidate.victims.pods),
            numVictimsToDelete=len(victims),
        )
        work = self._evict(candidate, victims, preemptor)
        name = f"{preemptor.kind} {key_of(preemptor.obj.metadata)}"
        spawn(work, f"preemption for {name} on {candidate.node_name}")

    def keeps_back(self, preemptor: Pod, group: Group | None = None) -> bool:
        """True if the pod, or its group, must stay out of the active queue for now.

        Called by PreEnqueue after an event that may help it.
        """
        uid = (group or preemptor).metadata.uid
        if self.is_running(group or preemptor):
            self._kept_back[uid] = preemptor
            return True
        self._kept_back.pop(uid, None)
        return False

    def was_kept_back(self, preemptor: Pod) -> bool:
        """True if an event that helps the pod arrived too early. It will not arrive again."""
        return preemptor.metadata.uid in self._kept_back

    def is_running(self, preemptor: Pod | Group) -> bool:
        """True while its victims are being evicted and the last one is not terminating."""
        uid = preemptor.metadata.uid
        if uid not in self._preempting:
            return False
        last = self._last_victims.get(uid)
        if last is None:
            return True
        listers = self._handle.listers
        victim: Pod | None = listers.of(Pod).get(*last) if listers is not None else None
        return victim is not None and not _is_terminating(victim)

    async def _evict(
        self, candidate: Candidate, victims: Sequence[Pod], preemptor: OnBehalfOf
    ) -> None:
        """Evict all victims but one concurrently, then the last, which wakes the preemptor.

        If another eviction fails, the last victim stays: its deletion would wake the preemptor
        without enough room.
        """
        uid, started = preemptor.uid, self._handle.clock.monotonic()
        failed = True
        if preemptor.related is not None:
            self._kept_back.pop(uid, None)  # at the end of its cycle: that was no event
        try:
            cleared = await self._clear_nominations(candidate, preemptor)
            *others, last = victims
            error = await self._preempt_all(candidate, others, preemptor)
            if error is None:
                self._last_victims[uid] = _LastVictim(last.metadata.namespace, last.metadata.name)
                # A victim stopped in memory is undone, and wakes the preemptor, as soon as other
                # tasks run. Nothing is awaited from there to the end of this method, so
                # `_preempting` is clear by then.
                if self._stopped_in_memory(candidate, last, preemptor):
                    self._activate_after_undo(last, preemptor.pods[0])
                else:
                    error = await self._try_to_delete(candidate, last, preemptor)
            failed = error is not None or not cleared
        finally:
            self._preempting.discard(uid)
            self._last_victims.pop(uid, None)
            self._observe(started, preemptor.kind, failed=failed)
            log.info(
                "Async Preemption finished completely",
                v=2,
                preemptor=preemptor.obj,
                node=candidate.node_name,
                result="error" if failed else "success",
            )
            # An event that arrived while the preemptor was held back is lost. If the last victim is
            # already off the node, no further event follows, so activate the preemptor here.
            has_room = not self._holds_place(victims[-1])
            missed = uid in self._kept_back and has_room
            if preemptor.related is not None:
                self._kept_back.pop(uid, None)  # no hint asks for groups
            if (failed or missed) and self._handle.activate is not None:
                self._handle.activate({key_of(pod.metadata): pod for pod in preemptor.pods})
            self._forget_the_gone()

    def _activate_after_undo(self, victim: Pod, preemptor: Pod) -> None:
        """Activate the preemptor as soon as the victim's place is free: no deletion will wake it.

        # Upstream activates it at once, and it may find the victim's place still taken.
        """
        waiting_pods = self._handle.waiting_pods
        if self._activates_in_memory and waiting_pods is not None:
            waiting_pods.preemptors[victim.metadata.uid] = preemptor

    def _holds_place(self, victim: Pod) -> bool:
        """True if the victim still counts on its node, so its removal will be an event."""
        table = self._handle.table
        row = table.row_of.get(victim.spec.node_name)
        return row is not None and victim.metadata.uid in table.pods[row]

    def _is_gone(self, pod: Pod) -> bool:
        listers = self._handle.listers
        if listers is None:
            return False
        current: Pod | None = listers.of(Pod).get(pod.metadata.namespace, pod.metadata.name)
        return current is None or current.metadata.uid != pod.metadata.uid

    def _forget_the_gone(self) -> None:
        for uid in [uid for uid, pod in self._kept_back.items() if self._is_gone(pod)]:
            del self._kept_back[uid]

    def _observe(self, started: float, kind: str, *, failed: bool) -> None:
        """Record the outcome.

        Upstream records it before the work starts: always success, always 0 seconds.
        """
        metrics = self._handle.metrics
        if metrics is not None:
            result = "error" if failed else "success"
            elapsed = self._handle.clock.monotonic() - started
            metrics.preemption_goroutines_execution_total.labels(result).inc()
            metrics.preemption_goroutines_duration_seconds.labels(result).observe(elapsed)
            durations = metrics.preemption_execution_duration_seconds
            durations.labels(kind, result).observe(elapsed)

    # -- while the attempt waits -------------------------------------------------------------------

    async def carry_out(self, candidate: Candidate, preemptor: Pod) -> Status | None:
        """Evict the victims and wait for completion; returns an Error status on failure."""
        if self._handle.rehearsed is not None:
            self._handle.rehearsed.append(candidate)
            return None
        self._count_victims(candidate)
        victims = [pod for pod in candidate.victims.pods if not _is_terminating(pod)]
        whom = on_behalf_of(preemptor)
        error = await self._preempt_all(candidate, victims, whom)
        if error is not None:
            return error_status(error)
        await self._clear_nominations(candidate, whom)
        return None

    # -- parts of both -----------------------------------------------------------------------------

    def _count_victims(self, candidate: Candidate) -> None:
        if self._handle.metrics is not None:
            self._handle.metrics.preemption_victims.observe(len(candidate.victims.pods))

    @property
    def _client(self) -> SchedulerClient:
        client = self._handle.client
        assert client is not None, "preemption needs a client to evict pods with"
        return client

    async def _preempt_all(
        self, candidate: Candidate, victims: Sequence[Pod], preemptor: OnBehalfOf
    ) -> KubeschedError | None:
        """Preempt pods, `parallelism` at a time; the first failure cancels the rest."""
        # Victims on Permit or in PreBind are looked up here and not in the tasks, which start
        # later: a replayed recording must find the same victims at this step.
        bound = [pod for pod in victims if not self._stopped_in_memory(candidate, pod, preemptor)]
        slots = asyncio.Semaphore(max(self._handle.parallelism, 1))

        async def one(victim: Pod) -> KubeschedError | None:
            async with slots:
                return await self._try_to_delete(candidate, victim, preemptor)

        loop = asyncio.get_running_loop()  # raises where there is none, as in a dry run
        tasks = [loop.create_task(one(victim)) for victim in bound]
        try:
            for finished in asyncio.as_completed(tasks):
                error = await finished
                if error is not None:
                    return error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return None

    def _stopped_in_memory(self, candidate: Candidate, victim: Pod, preemptor: OnBehalfOf) -> bool:
        """Stop a victim that is not bound yet (on Permit or in PreBind); False if too late."""
        handle, uid = self._handle, victim.metadata.uid
        waiting = handle.waiting_pods.get(uid) if handle.waiting_pods is not None else None
        binding = handle.pods_in_pre_bind.get(uid) if handle.pods_in_pre_bind is not None else None
        if waiting is not None:
            stopped = waiting.preempt(self._plugin_name, "preempted")
        else:
            stopped = binding is not None and binding.cancel(f"preempted by {self._plugin_name}")
        if stopped:
            self._report(candidate, victim, preemptor, IN_MEMORY)
        return stopped

    async def _try_to_delete(
        self, candidate: Candidate, victim: Pod, preemptor: OnBehalfOf
    ) -> KubeschedError | None:
        try:
            if await self.delete(victim, preemptor):
                self._report(candidate, victim, preemptor)
        except KubeschedError as error:
            log.error(
                "Error when preempting a pod",
                error,
                preemptor=preemptor.obj,
                victim=victim,
                node=candidate.node_name,
            )
            return error
        return None

    def _report(
        self, candidate: Candidate, victim: Pod, preemptor: OnBehalfOf, suffix: str = ""
    ) -> None:
        log.info(
            "Preemptor Pod preempted victim Pod",
            v=2,
            preemptor=preemptor.obj,
            victim=victim,
            node=candidate.node_name,
        )
        if self._handle.recorder is not None:
            whom = f"{preemptor.kind} {preemptor.uid}"
            note = f"Preempted by {whom} on node {candidate.node_name}{suffix}"
            self._handle.recorder.event(
                victim, preemptor.related, "Normal", "Preempted", "Preempting", note
            )

    async def delete(self, victim: Pod, preemptor: OnBehalfOf) -> bool:
        """Set the DisruptionTarget condition, then delete the pod. False if it was already gone."""
        condition = PodCondition(
            type=DISRUPTION_TARGET,
            status="True",
            reason=PREEMPTION_BY_SCHEDULER,
            message=f"{preemptor.scheduler_name}: preempting to accommodate "
            f"a higher priority {preemptor.kind}",
            observed_generation=victim.metadata.generation or 0,
        )
        now = self._handle.clock.now()

        def patch() -> dict[str, Any] | None:
            return status_patch(victim, condition, None, now)

        try:
            await write_status(self._client, victim, patch, self._handle.jitter)
            await self._client.delete_pod(victim)
        except NotFound:
            log.info(
                "Victim Pod is already deleted",
                v=2,
                preemptor=preemptor.obj,
                victim=victim,
                node=victim.spec.node_name,
            )
            return False
        return True

    async def _clear_nominations(self, candidate: Candidate, preemptor: OnBehalfOf) -> bool:
        """Clear nominations of lower priority to the node; logs failures and returns False."""
        nominator = self._handle.nominator
        if nominator is None:
            return True
        priority = preemptor.priority
        succeeded = True
        for other in list(nominator.nominated_pods_for_node(candidate.node_name)):
            if other.priority >= priority or not other.pod.status.nominated_node_name:
                continue
            try:
                await write_status(
                    self._client, other.pod, partial(_cleared, other.pod), self._handle.jitter
                )
            except KubeschedError as error:
                log.error("Cannot clear 'NominatedNodeName' field of pod", error, pod=other.pod)
                succeeded = False
        return succeeded


def _cleared(pod: Pod) -> dict[str, Any] | None:
    return status_patch(pod, None, CLEAR_NOMINATION, 0.0)


def _is_terminating(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None
