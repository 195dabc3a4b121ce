"""Plays sequences of pod groups beside a scheduler's process.

After a step the player waits until nothing has changed for longer than the backoff of a failed
group, so that the comparison does not depend on when a group was tried. Compared are the nodes of
pods, the conditions of pods and groups since the step, and evictions. Before a group is created,
pods without a node are deleted, since several groups in backoff would race for room.

# Upstream: whether a group waits for the flush when its victims are gone is a race between their
eviction and the writes of its conditions, so a group that is nominated gets the time for both.
"""

from __future__ import annotations

import asyncio
import re

from kubesched.api.core_v1 import Pod
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.client.patch import strategic_merge_patch
from kubesched.lab.conformance.groups import told_about_group, told_about_pod
from kubesched.lab.conformance.play import MAX_REST_S, ProcessPlayer
from kubesched.lab.conformance.player import AT_ONCE, DECISION_TIMEOUT_S
from kubesched.lab.conformance.sequences import Decision, Json, Step, running
from kubesched.lab.conformance.watching import Patience
from kubesched.testing.control_plane import ControlPlaneError

_SEVERAL = re.compile(r" 0/([2-9]|\d\d+) placements are available")
_RACED = ("got allocated elsewhere in the meantime", "is in the process of being allocated")
_QUIET_S = 1.5
_BACKED_OFF_S = 4.5
"""Four pods back off for two seconds at most, and both ends are rounded to whole seconds."""
_FLUSHED_S = MAX_REST_S + 30 + _BACKED_OFF_S
"""A gated group is tried by the first flush after `MAX_REST_S`; there is one every 30 s."""


class GroupPlayer(ProcessPlayer):
    """One sequence of groups."""

    async def create(self, document: Json) -> Json:
        made = await super().create(document)
        if made["kind"] == "Pod":
            self._numbers[made["metadata"]["uid"]] = len(self._numbers) + 1
        return made

    async def perform(self, at: int, step: Step) -> None:
        if step.kind == "PodGroup" and step.action == "create":
            await self._clear(step.name)
        pods = self._pods
        for of_pod in pods.versions.values():
            del of_pod[:-1]
        for of_group in pods.groups.values():
            of_group[:-1] = [was for was in of_group[:-1] if _is_scheduled(was)][:1]
        gone_before = len(pods.deleted)
        await self.carry_out(at, step)
        if step.asks_for_decision:
            await self._quiet()
            if await self._claims.release():
                await self._quiet()
            has_evicted = any(key != step.key for key in pods.deleted[gone_before:])
            if has_evicted and any(map(_is_nominated, pods.current.values())):
                await self._quiet(_FLUSHED_S)
            gone = set(pods.deleted[gone_before:]) - {step.key}
            held = await self._claims.held()
            self.outcome.decisions[at] = Decision(
                victims=tuple(sorted(gone)), devices=held, seen=self._seen()
            )

    async def _clear(self, group: str) -> None:
        """Delete pods without a node, except those of the group that is about to come.

        Their groups go first if no member runs: the others could be tried while one is deleted.
        """
        pods = list(self._pods.current.values())
        waiting = [pod for pod in pods if not pod.spec.node_name and _group_of(pod) != group]
        groups = {_group_of(pod) for pod in waiting}
        for name in groups - {_group_of(pod) for pod in pods if pod.spec.node_name}:
            if name in self._pods.groups:
                await self._client.delete(PodGroup, name, "default", AT_ONCE)
        for pod in waiting:
            meta = pod.metadata
            await self._client.delete(Pod, meta.name, meta.namespace, AT_ONCE)

    async def _quiet(self, nominated_s: float = _BACKED_OFF_S) -> None:
        """Wait until nothing changes any more; pods that are bound start to run."""
        pods, loop = self._pods, asyncio.get_running_loop()
        patience = Patience(DECISION_TIMEOUT_S + nominated_s)
        events, changed_at, left = -1, 0.0, 1.0
        while left > 0:
            self.check()
            if patience.is_over():
                raise ControlPlaneError(f"no rest for {DECISION_TIMEOUT_S:.0f} s")
            if events != pods.events:
                events, changed_at = pods.events, loop.time()
                await self._start_pods()
            tried = any("message" in told_about_pod(pod) for pod in pods.current.values())
            is_nominated = any(map(_is_nominated, pods.current.values()))
            rest_s = nominated_s if is_nominated else _BACKED_OFF_S if tried else _QUIET_S
            left = changed_at + rest_s - loop.time()
            await pods.change(min(max(left, 0.0), 0.5))

    async def _start_pods(self) -> None:
        for pod in list(self._pods.current.values()):
            number = self._numbers.get(pod.metadata.uid) if pod.spec.node_name else None
            if number is not None and not pod.status.start_time:
                meta, change = pod.metadata, strategic_merge_patch(running(number))
                await self._client.patch(
                    Pod, meta.name, meta.namespace, change, subresource="status"
                )

    def _seen(self) -> Json:
        pods = {key: list(map(told_about_pod, made)) for key, made in self._pods.versions.items()}
        groups = {key: list(map(told_about_group, made)) for key, made in self._pods.groups.items()}
        return summary(pods, groups)


def _is_nominated(pod: Pod) -> bool:
    return bool(pod.status.nominated_node_name) and not pod.spec.node_name


def _is_scheduled(group: PodGroup) -> bool:
    return told_about_group(group).get("status") == "True"


def _group_of(pod: Pod) -> str:
    named = pod.spec.scheduling_group
    return (named.pod_group_name or "") if named is not None else ""


def summary(pods: dict[str, list[Json]], groups: dict[str, list[Json]]) -> Json:
    """The part of the conditions of pods and groups that is compared.

    # Upstream: of members that share a claim all but the first to write its allocation fail in
    # PreBind, and are tried again. Those that are left over may wait for that write. What such
    # members are told is left out; `raced` says that there were some.
    """
    said = {
        key: [told for told in history if not _has_raced(told)] for key, history in pods.items()
    }
    every = [told for history in (*said.values(), *groups.values()) for told in history]
    if any(_SEVERAL.search(told.get("message", "")) for told in every):
        # Upstream: which of several placements is the first, and tells its reasons, is random.
        for told in every:
            told.pop("message", None)
    return {
        "pods": {key: _distinct(told) for key, told in sorted(said.items())},
        "podGroups": {key: _until_true(told) for key, told in sorted(groups.items())},
        **({"raced": True} if said != pods else {}),
    }


def _has_raced(told: Json) -> bool:
    return any(text in told.get("message", "") for text in _RACED)


def _distinct(told: list[Json]) -> list[Json]:
    """What was said, one after the other.

    Members that wait for others are nominated, which is left out: how long they wait is timing.
    """
    said = told[:1]
    for each in told[1:]:
        if each.keys() - {"nominated"} and each != said[-1]:
            said.append(each)
    return said


def _until_true(told: list[Json]) -> list[Json]:
    """The same of a group. What comes after a success is timing (see `groups`)."""
    if any(each.get("status") == "True" for each in told):
        return [{"status": "True"}]
    return _distinct(told)
