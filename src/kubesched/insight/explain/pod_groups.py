"""Why a pod group is not running: its members tried together, as the scheduler does.

Besides the scheduler's own attempt, the group is tried without its quorum, which shows how far its
members get in each topology domain, and with what would let it start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from kubesched.api.core_v1 import Pod
from kubesched.api.names import key_of
from kubesched.api.scheduling_v1beta1 import BasicSchedulingPolicy
from kubesched.framework.diagnosis import Failed
from kubesched.framework.groups.states import (
    Group,
    GroupKey,
    HierarchyError,
    group_of,
    key_of_group,
    min_count,
)
from kubesched.framework.groups.tree import GroupCycle, GroupNode
from kubesched.framework.nominating_info import CLEAR_NOMINATION
from kubesched.framework.preemption.candidates import Candidate
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.maybe_async import finish
from kubesched.framework.status import error_status
from kubesched.insight.explain import waiting
from kubesched.insight.explain.model import (
    Domain,
    GroupExplanation,
    Member,
    Preemption,
    Verdict,
    Victim,
    WaitingFor,
)
from kubesched.insight.explain.reasons import NOT_ENQUEUED
from kubesched.scheduler.algorithm import ScheduleResult
from kubesched.scheduler.factory import Assembly
from kubesched.scheduler.groups.group_cycle import GroupCycles, GroupRejected, failure_of
from kubesched.scheduler.groups.parts import GroupScheduler
from kubesched.scheduler.groups.placing import Placing
from kubesched.scheduler.groups.results import GroupResult, MemberResult

Rehearsal = Callable[[Framework], AbstractContextManager[Sequence[Candidate]]]
"""A dry run: evictions by plugins are recorded, not carried out."""


def cycles_of(assembly: Assembly) -> GroupCycles | None:
    """The cycles of a scheduler that knows groups."""
    scheduler = assembly.scheduler
    return scheduler.groups if isinstance(scheduler, GroupScheduler) else None


@dataclass(slots=True)
class GroupAttempt:
    """The scheduler's own attempt at a whole tree."""

    framework: Framework | None
    root: GroupNode
    results: dict[GroupKey, GroupResult]
    candidate: Candidate | None = None
    error: GroupRejected | None = None
    """Why it was not tried."""

    def outcome_for(self, pod: Pod) -> ScheduleResult | Failed | None:
        if self.error is not None:
            return Failed(error_status(self.error), CLEAR_NOMINATION)
        for result in self.results.values():
            for member in result.members:
                if member.info.pod_info.uid == pod.metadata.uid:
                    return failure_of(result, member) or member.result
        return None

    @property
    def message(self) -> str:
        if self.error is not None:
            return str(self.error)
        status = self.results[self.root.key].status
        return "" if status.is_success else status.message


def attempt(cycles: GroupCycles, rehearse: Rehearsal, leaf: GroupKey) -> GroupAttempt | None:
    """Try the tree of a PodGroup; None if none of its pods is queued."""
    root = cycles.states.root_of(leaf)
    entity = None if root is None else cycles.queue.find_entity(key_of_group(root))
    if entity is None:
        return None
    node = cycles.tree(entity)
    for below in node.leaves():
        below.members = [
            info for info in below.members if info.pod_info.pod.metadata.deletion_timestamp is None
        ]
    if not node.all_members():
        return None
    try:
        framework = cycles.validated(node)
    except GroupRejected as error:
        return GroupAttempt(None, node, {}, error=error)
    with rehearse(framework) as evictions:
        results, _ = finish(cycles.decide(framework, node, framework.now()))
    return GroupAttempt(framework, node, results, evictions[-1] if evictions else None)


def waits_of(cycles: GroupCycles, leaf: GroupKey) -> list[WaitingFor]:
    """What keeps a group out of the queue: missing objects, missing pods, gated members."""
    states = cycles.states
    if states.find(leaf) is None:
        named = f"{leaf.namespace}/{leaf.name}"
        return [_wait(f"PodGroup {named} does not exist", [leaf.name])]
    try:
        list(states.ancestors(leaf))
    except HierarchyError as error:
        return [_wait(str(error), [])]
    root = states.root_of(leaf)
    entity = None if root is None else cycles.queue.find_entity(key_of_group(root))
    if entity is None or not entity.is_gated:
        return []
    found: dict[str, WaitingFor] = {}
    for info in entity:
        pod = info.pod_info.pod
        framework = cycles.frameworks[pod.spec.scheduler_name]
        for wait in waiting.before_the_queue(framework, cycles.queue, pod):
            if wait.plugin == "GangScheduling":
                short = "; ".join(_short_of_pods(cycles, root))
                wait.what = short or wait.what.removeprefix("waiting for ")
            else:
                wait.what = f"{info.pod_info.key}: {wait.what}"
            found.setdefault(wait.what, wait)
    return list(found.values())


def _wait(what: str, names: list[str]) -> WaitingFor:
    return WaitingFor(code=NOT_ENQUEUED.code, plugin="", what=what, names=names)


def _short_of_pods(cycles: GroupCycles, root: Group | None) -> list[str]:
    told = []
    for leaf in cycles.states.leaves(key_of_group(root)) if root is not None else ():
        state = cycles.states.state(leaf)
        if state is None or state.group is None or len(state.pods) >= min_count(state.group):
            continue
        count = f"{len(state.pods)} of minCount {min_count(state.group)} pods"
        others = _of_other_schedulers(cycles, leaf)
        beside = f" beside {others} of other schedulers, which count with a node" if others else ""
        told.append(f"{count} of PodGroup {leaf.namespace}/{leaf.name} exist{beside}")
    return told


def _of_other_schedulers(cycles: GroupCycles, leaf: GroupKey) -> int:
    """Members that wait for another scheduler."""
    listers = next(iter(cycles.frameworks.values())).handle.listers
    return sum(
        group_of(pod) == leaf and pod.spec.scheduler_name not in cycles.frameworks
        for pod in (() if listers is None else listers.of(Pod).list())
        if not pod.spec.node_name
    )


def explain_group(
    cycles: GroupCycles, rehearse: Rehearsal, leaf: GroupKey, notes: Sequence[str]
) -> GroupExplanation:
    """Everything there is to say about a PodGroup and the tree it belongs to."""
    return _GroupStory(cycles, rehearse, leaf).told(notes)


class _GroupStory:
    def __init__(self, cycles: GroupCycles, rehearse: Rehearsal, leaf: GroupKey) -> None:
        self.cycles = cycles
        self.leaf = leaf
        self.waits = waits_of(cycles, leaf)
        self.attempt = attempt(cycles, rehearse, leaf)
        state = cycles.states.state(leaf)
        self.group = None if state is None else state.group
        self.known = 0 if state is None else len(state.pods)
        self.scheduled = 0 if state is None else state.scheduled_count

    def told(self, notes: Sequence[str]) -> GroupExplanation:
        tried = self.attempt
        members: list[Member] = []
        domains: list[Domain] = []
        helps: list[str] = []
        if tried is not None and tried.framework is not None:
            freely = self._placing(tried.framework)
            alone = finish(freely.run(_without_quorum(tried.root)))
            members = [_member(one) for result in alone.values() for one in result.members]
            domains = self._domains(freely)
            if not self._succeeds:
                helps = list(self._helps(tried.framework, tried.root, members))
        verdict = self._verdict()
        return GroupExplanation(
            group=f"{self.leaf.namespace}/{self.leaf.name}",
            verdict=verdict,
            summary=self._summary(verdict, members),
            message="" if tried is None or self.waits else tried.message,
            min_count=0 if self.group is None else min_count(self.group),
            pods=self.known,
            scheduled=self.scheduled,
            waiting_for=self.waits,
            members=members,
            domains=domains,
            preemption=self._preemption(),
            helps=helps,
            notes=list(notes),
        )

    @property
    def _succeeds(self) -> bool:
        tried = self.attempt
        return tried is not None and tried.error is None and not tried.message

    def _verdict(self) -> Verdict:
        if self.waits:
            return Verdict.WAITING
        if self.attempt is None:
            return Verdict.PLACED if self.scheduled else Verdict.WAITING
        return Verdict.FITS if self._succeeds else Verdict.NOT_NOW

    def _summary(self, verdict: Verdict, members: Sequence[Member]) -> str:
        placed = sum(bool(member.node) for member in members)
        found = f"{placed} of {len(members)} pending pods"
        if verdict is Verdict.PLACED:
            return f"placed. {self.scheduled} of its {self.known} pods have nodes."
        if verdict is Verdict.WAITING:
            what = "; ".join(wait.what for wait in self.waits) or "no pod of it waits or runs"
            then = f" Otherwise {found} would find a node." if members else ""
            return f"waiting: {what}.{then}"
        if verdict is Verdict.FITS:
            return f"fits. {found} would find a node."
        if self.attempt is not None and self.attempt.error is not None:
            return f"not now. The attempt fails with an error: {self.attempt.error}."
        quorum = "" if self.group is None else f"; minCount is {min_count(self.group)}"
        running = f", {self.scheduled} run" if self.scheduled else ""
        preemption = self._preemption()
        count = 0 if preemption is None else len(preemption.victims)
        evicted = f" The scheduler would evict {count} pod{'s' * (count != 1)}." if count else ""
        return f"not now. {found} find a node{running}{quorum}.{evicted}"

    def _preemption(self) -> Preemption | None:
        candidate = None if self.attempt is None or self.waits else self.attempt.candidate
        if candidate is None:
            return None
        victims = candidate.victims
        return Preemption(
            node="",
            victims=[
                Victim(pod=_named_with_group(pod), priority=pod.spec.priority or 0)
                for pod in victims.pods
            ],
            violated_budgets=victims.pdb_violations,
        )

    def _placing(self, framework: Framework) -> Placing:
        return self.cycles.placing(framework, GroupCycle())

    def _domains(self, freely: Placing) -> list[Domain]:
        """How far the members get in each domain of the group's topology."""
        assert self.attempt is not None, "the group was tried"
        found = []
        for leaf in self.attempt.root.leaves():
            for placement, result in freely.trials.get(leaf.key, ()):
                if not placement.name:
                    continue
                lacks = next(
                    (one.status.message for one in result.members if not one.status.is_success), ""
                )
                placed = sum(one.status.is_success for one in result.members)
                found.append(Domain(placement.name, len(placement.rows), placed, lacks))
        return found

    def _helps(
        self, framework: Framework, root: GroupNode, members: Sequence[Member]
    ) -> Sequence[str]:
        """Changes that let the group start; each was tried."""
        found = []
        placed = sum(bool(member.node) for member in members)
        group = self.group
        if group is not None and root.key == self.leaf and placed:
            quorum = placed + self.scheduled
            if quorum < min_count(group) and self.known >= quorum:
                pods = "1 pod" if placed == 1 else f"{placed} pods"
                found.append(f"minCount {quorum}: {pods} would start")
        if group is not None and root.key == self.leaf and self.known < min_count(group):
            missing = min_count(group) - self.known
            if self._starts(framework, _with_copies(root, missing)):
                more = "1 more pod" if missing == 1 else f"{missing} more pods"
                found.append(f"{more} like {members[0].pod}: all would start")
        if root.group.spec.scheduling_constraints is not None and (
            self._starts(framework, _changed(root, scheduling_constraints=None))
        ):
            found.append("no topology constraint: it would start")
        return found

    def _starts(self, framework: Framework, root: GroupNode) -> bool:
        status = finish(self._placing(framework).run(root))[root.key].status
        for info in root.all_members():
            if info.pod_info.uid.startswith(_COPY):  # the group's state must not keep it
                self.cycles.states.pod_removed(info.pod_info.pod)
        return status.is_success


_COPY = "copy-"


def _without_quorum(node: GroupNode) -> GroupNode:
    policy = type(node.group.spec.scheduling_policy)(basic=BasicSchedulingPolicy())
    changed = _changed(node, scheduling_policy=policy)
    changed.children = [_without_quorum(child) for child in node.children]
    return changed


def _changed(node: GroupNode, **fields: Any) -> GroupNode:  # noqa: ANN401  # of whichever kinds
    group: Any = node.group
    changed = structs.replace(group, spec=structs.replace(group.spec, **fields))
    return GroupNode(changed, list(node.members), list(node.children))


def _with_copies(root: GroupNode, count: int) -> GroupNode:
    """The group with more members like its first one."""
    first = root.members[0]
    pod = first.pod_info.pod
    copies = []
    for number in range(count):
        uid = f"{_COPY}{number}-{pod.metadata.uid}"
        name = f"{pod.metadata.name}-{_COPY}{number}"
        meta = structs.replace(pod.metadata, uid=uid, name=name)
        info = type(first.pod_info)(structs.replace(pod, metadata=meta))
        copies.append(QueuedPodInfo(info, first.timestamp))
    return GroupNode(root.group, [*root.members, *copies])


def _member(member: MemberResult) -> Member:
    found = member.result if member.status.is_success else None
    return Member(
        pod=member.info.pod_info.key,
        node="" if found is None else found.node_name,
        lacks="" if found is not None else member.status.message,
    )


def _named_with_group(pod: Pod) -> str:
    member_of = group_of(pod)
    of = f" (PodGroup {member_of.name})" if member_of is not None else ""
    return f"{key_of(pod.metadata)}{of}"
