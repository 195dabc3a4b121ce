"""Why a pod group is not running: its members tried together, as the scheduler does.

A group is explained with the whole tree it is part of, whichever of the tree's groups is asked for.

Besides the scheduler's own attempt, the group is tried without its quorum, which shows how far its
members get in each topology domain, and with what would let it start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from kubesched.api.core_v1 import Pod
from kubesched.api.names import key_of
from kubesched.api.scheduling_v1beta1 import (
    BasicSchedulingPolicy,
    GangSchedulingPolicy,
    PodGroup,
    PodGroupSchedulingPolicy,
)
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
from kubesched.framework.nodes.pods import PodInfo
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


def attempt(cycles: GroupCycles, rehearse: Rehearsal, key: GroupKey) -> GroupAttempt | None:
    """Try the tree of a group; None if none of its pods is queued."""
    root = cycles.states.root_of(key)
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


def key_named(cycles: GroupCycles, namespace: str, name: str) -> GroupKey | None:
    """The PodGroup of that name, which may be missing, or else the CompositePodGroup."""
    key, composite = GroupKey(namespace, name), GroupKey(namespace, name, is_composite=True)
    if cycles.states.state(key) is not None:
        return key
    return composite if cycles.states.find(composite) is not None else None


def pods_below(cycles: GroupCycles, key: GroupKey) -> list[Pod]:
    """The pods of a group and of those below it."""
    states = map(cycles.states.state, cycles.states.leaves(key))
    return [pod for state in states if state is not None for pod in state.pods.values()]


def waits_of(cycles: GroupCycles, key: GroupKey) -> list[WaitingFor]:
    """What keeps a group out of the queue: missing objects, missing pods, gated members."""
    states = cycles.states
    if states.find(key) is None:
        named = f"{key.namespace}/{key.name}"
        return [_wait(f"PodGroup {named} does not exist", [key.name])]
    try:
        list(states.ancestors(key))
    except HierarchyError as error:
        return [_wait(str(error), [])]
    root = states.root_of(key)
    entity = None if root is None else cycles.queue.find_entity(key_of_group(root))
    if entity is None or not entity.is_gated:
        return []
    found: dict[str, WaitingFor] = {}
    short = "; ".join(_short_of_pods(cycles, root))
    for info in entity:
        pod = info.pod_info.pod
        framework = cycles.frameworks[pod.spec.scheduler_name]
        for wait in waiting.before_the_queue(framework, cycles.queue, pod):
            if wait.plugin == "GangScheduling":
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
    cycles: GroupCycles, rehearse: Rehearsal, key: GroupKey, notes: Sequence[str]
) -> GroupExplanation:
    """Everything there is to say about a group and the tree it belongs to."""
    return _GroupStory(cycles, rehearse, key).told(notes)


class _GroupStory:
    def __init__(self, cycles: GroupCycles, rehearse: Rehearsal, key: GroupKey) -> None:
        self.cycles = cycles
        self.key = key
        self.waits = waits_of(cycles, key)
        self.attempt = attempt(cycles, rehearse, key)
        self.group = cycles.states.find(key)
        self.known = len(pods_below(cycles, key))
        self.scheduled = len(cycles.states.scheduled_pods_below(key))

    def told(self, notes: Sequence[str]) -> GroupExplanation:
        tried = self.attempt
        members: list[Member] = []
        domains: list[Domain] = []
        helps: list[str] = []
        alone: dict[GroupKey, GroupResult] = {}
        if tried is not None and tried.framework is not None:
            freely = self._placing(tried.framework)
            alone = finish(freely.run(_without_quorum(tried.root)))
            members = list(_members(tried.root, alone))
            domains = self._domains(freely)
            if not self._succeeds:
                helps = list(self._helps(tried.framework, tried.root, members, domains))
                missing = _keys(tried.root) - set(tried.framework.handle.table.label_keys())
                notes = [*notes, *(f"no node has the label {key}" for key in sorted(missing))]
        elif tried is not None:
            members = list(_disagreeing(self.cycles, tried.root))
        verdict = self._verdict()
        return GroupExplanation(
            kind="CompositePodGroup" if self.key.is_composite else "PodGroup",
            group=f"{self.key.namespace}/{self.key.name}",
            verdict=verdict,
            summary=self._summary(verdict, members, alone),
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

    def _summary(
        self, verdict: Verdict, members: Sequence[Member], alone: dict[GroupKey, GroupResult]
    ) -> str:
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
        quorum = self._quorum(alone)
        running = f", {self.scheduled} run" if self.scheduled else ""
        preemption = self._preemption()
        count = 0 if preemption is None else len(preemption.victims)
        evicted = f" The scheduler would evict {count} pod{'s' * (count != 1)}." if count else ""
        return f"not now. {found} find a node{running}{quorum}.{evicted}"

    def _quorum(self, alone: dict[GroupKey, GroupResult]) -> str:
        """What the root needs, and in a tree how many pods each of its groups gets."""
        assert self.attempt is not None, "the group was tried"
        root, told = self.attempt.root, []
        if not root.key.is_composite:
            return f"; minCount is {min_count(root.group)}"
        for leaf in root.leaves():
            state, result = self.cycles.states.state(leaf.key), alone.get(leaf.key)
            count = 0 if state is None else state.scheduled_count
            count += 0 if result is None else len(result.placed())
            told.append(f"{leaf.key.name} gets {count} of minCount {min_count(leaf.group)}")
        listed = ", ".join(told[:GROUPS_TOLD]) + ", ..." * (len(told) > GROUPS_TOLD)
        return (
            f"; CompositePodGroup {root.key.name} needs {min_count(root.group)} of its groups: "
            f"{listed}"
        )

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
        self,
        framework: Framework,
        root: GroupNode,
        members: Sequence[Member],
        domains: Sequence[Domain],
    ) -> Sequence[str]:
        """Changes that let the group start; each was tried."""
        found = []
        # The domain that is preferred without a quorum may take fewer than another.
        placed = max([sum(bool(it.node) for it in members), *(it.placed for it in domains)])
        group = self.group if root.key == self.key else None
        if isinstance(group, PodGroup) and placed:
            quorum = placed + self.scheduled
            gang = GangSchedulingPolicy(min_count=quorum)
            changed = _changed(root, scheduling_policy=PodGroupSchedulingPolicy(gang=gang))
            if quorum < min_count(group) and (count := self._starts(framework, changed)):
                pods = "1 pod" if count == 1 else f"{count} pods"
                found.append(f"minCount {quorum}: {pods} would start")
        missing = min_count(group) - self.known if isinstance(group, PodGroup) else 0
        if 0 < missing <= MOST_COPIES and self._starts(framework, _with_copies(root, missing)):
            more = "1 more pod" if missing == 1 else f"{missing} more pods"
            found.append(f"{more} like {members[0].pod}: all would start")
        if root.group.spec.scheduling_constraints is not None and (
            self._starts(framework, _changed(root, scheduling_constraints=None))
        ):
            found.append("no topology constraint: it would start")
        if not self.waits and self._preemption() is None:
            found += self._in_the_way(framework, root)
        return found

    def _in_the_way(self, framework: Framework, root: GroupNode) -> Iterator[str]:
        """Workloads without which it would start; preemption evicts none. Least important first."""
        table = framework.handle.table
        own = set(self.cycles.states.leaves(root.key))
        workloads: defaultdict[str, list[PodInfo]] = defaultdict(list)
        for on_node in table.pods:
            for info in on_node.values():
                if group_of(info.pod) not in own:
                    workloads[_workload(info.pod)].append(info)
        ranked = sorted(
            workloads.items(), key=lambda it: (max(pod.priority for pod in it[1]), len(it[1]))
        )
        for name, pods in ranked[:MOST_WORKLOADS]:
            batch = table.take_out(pods)
            try:
                is_started = self._starts(framework, root)
            finally:
                table.put_back(batch)
            if is_started:
                count = "1 pod" if len(pods) == 1 else f"{len(pods)} pods"
                yield f"without {name} ({count}): it would start"

    def _starts(self, framework: Framework, root: GroupNode) -> int:
        """How many members get a node; 0 if the group does not start."""
        results = finish(self._placing(framework).run(root))
        for info in root.all_members():
            if info.pod_info.uid.startswith(_COPY):  # the group's state must not keep it
                self.cycles.states.pod_removed(info.pod_info.pod)
        is_started = results[root.key].status.is_success
        return sum(len(result.placed()) for result in results.values()) if is_started else 0


GROUPS_TOLD = 8
MOST_WORKLOADS = 20
"""Workloads that are tried as being in the way."""
MOST_COPIES = 1000
"""Missing members that are tried: minCount may be two billion."""
_COPY = "copy-"
_SHARED = ("schedulerName", "priority", "preemptionPolicy")
"""Fields in which all pods of a tree have to agree."""


def _workload(pod: Pod) -> str:
    """The pod's group, else its owner, else itself."""
    group, owner = group_of(pod), pod.metadata.controller()
    if group is not None:
        return f"PodGroup {group.namespace}/{group.name}"
    if owner is not None:
        return f"{owner.kind} {pod.metadata.namespace}/{owner.name}"
    return f"pod {key_of(pod.metadata)}"


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


def _keys(node: GroupNode) -> set[str]:
    """The topology keys that a tree asks for."""
    constraints = node.group.spec.scheduling_constraints
    own = {one.key for one in (constraints.topology if constraints is not None else None) or ()}
    return own.union(*map(_keys, node.children))


def _members(root: GroupNode, results: dict[GroupKey, GroupResult]) -> Iterator[Member]:
    """The pending members of a tree; those that no placement was found for were not tried."""
    for leaf in root.leaves():
        result = results.get(leaf.key)
        tried = [] if result is None else result.members
        yield from map(_member, tried)
        why = (result or results[root.key]).status.message
        for info in leaf.members[len(tried) :]:
            yield Member(info.pod_info.key, "", why)


def _disagreeing(cycles: GroupCycles, root: GroupNode) -> Iterator[Member]:
    """Pods whose fields keep `GroupCycles.validated` from trying the tree."""
    placed = cycles.states.scheduled_pods_below(root.key)
    pods = [*(info.pod_info.pod for info in root.all_members()), *placed]
    first = pods[0].spec
    of_group = root.group.spec.preemption_policy if cycles.policy_of_group else None
    wanted = (first.scheduler_name, root.priority, of_group or first.preemption_policy)
    for pod in pods:
        spec = pod.spec
        own = (spec.scheduler_name, spec.priority or 0, spec.preemption_policy)
        lacks = [
            f"{field} {there} (it has {here})"
            for field, there, here in zip(_SHARED, wanted, own, strict=True)
            if there != here
        ]
        if lacks:
            yield Member(key_of(pod.metadata), spec.node_name, "; ".join(lacks))


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
