"""The pod-group cycle: from a popped group to members that are being bound, or to a failure.

A group is placed as a whole first (`placing`), without lasting effects. If it failed,
PodGroupPostFilter may make room. Then the result is carried out member by member: those of a group
that succeeded are assumed, reserved and permitted for good; all others fail, each with its own
reason or the group's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kubesched.api.core_v1 import Pod
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.base.logs import get_logger
from kubesched.base.metrics.scheduler import SchedulerMetrics
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.diagnosis import Failed
from kubesched.framework.engine import InTreePlugin
from kubesched.framework.groups.states import (
    Group,
    GroupKey,
    GroupStates,
    PodGroupState,
    key_of_group,
)
from kubesched.framework.groups.tree import GroupCycle, GroupNode, PlacedPod, PlaceGroup
from kubesched.framework.interfaces import GroupPostFilterAnswer, PodGroupPostFilterPlugin
from kubesched.framework.nominating_info import CLEAR_NOMINATION
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.guard import WrongAnswer
from kubesched.framework.runtime.maybe_async import finish
from kubesched.framework.status import Code, Status, error_status
from kubesched.scheduler.cache.cache import Cache
from kubesched.scheduler.decisions import DecisionRing, Outcome
from kubesched.scheduler.failure import FailureHandler
from kubesched.scheduler.flight import ATTEMPT_DECIDED, FlightRecorder
from kubesched.scheduler.groups.conditions import GroupConditions, wish_of
from kubesched.scheduler.groups.group_queue import GroupSchedulingQueue
from kubesched.scheduler.groups.placing import Placing
from kubesched.scheduler.groups.queued_group import QueuedGroup
from kubesched.scheduler.groups.results import (
    SUCCESS,
    GroupResult,
    MemberResult,
    Verdict,
    group_unschedulable,
)
from kubesched.scheduler.scheduling_cycle import Assumed, SchedulingCycle

log = get_logger(__name__)

Results = dict[GroupKey, GroupResult]
SkipPod = Callable[[Framework, Pod], bool]


class GroupRejected(Exception):
    """The group cannot be tried; the message is upstream's."""


@dataclass(slots=True, eq=False, kw_only=True)
class GroupCycles:
    """Runs the cycles of groups."""

    cycle: SchedulingCycle
    cache: Cache
    queue: GroupSchedulingQueue
    states: GroupStates
    frameworks: Mapping[str, Framework]
    failures: FailureHandler
    conditions: GroupConditions
    decisions: DecisionRing
    metrics: SchedulerMetrics
    random: Random
    flight: FlightRecorder | None
    by_topology: bool
    policy_of_group: bool
    """Gate PodGroupPreemptionPolicy: the group states the policy of its pods."""
    may_wait: bool = field(init=False)
    """True if a PodGroupPostFilter plugin may await anything; those of the tree do not."""

    def __post_init__(self) -> None:
        self.may_wait = any(
            not isinstance(plugin, InTreePlugin)
            for framework in self.frameworks.values()
            for plugin in framework.at("podGroupPostFilter")
        )

    def run(
        self, entity: QueuedGroup, is_skipped: SkipPod
    ) -> list[Assumed] | Coroutine[Any, Any, list[Assumed]]:
        """Try a group; returns the members to bind, later if an extender must be asked."""
        members = [info.pod_info.pod for info in entity]
        extenders = next(iter(self.frameworks.values())).handle.extenders
        if self.may_wait or any(each.is_interested(pod) for each in extenders for pod in members):
            return self._run(entity, is_skipped, self.flight)
        return finish(self._run(entity, is_skipped, None))

    async def _run(
        self, entity: QueuedGroup, is_skipped: SkipPod, flight: FlightRecorder | None
    ) -> list[Assumed]:
        root = None
        try:
            root = self.tree(entity)
            framework = self.validated(root)
        except GroupRejected as error:
            self._fail_before(entity, error, root)
            return []
        started = framework.now()
        self._skip(framework, entity, root, is_skipped)
        if not entity.members:
            self.queue.attempted_group(entity, SUCCESS)
            return []
        log.info("Attempting to schedule pod group", v=3, podGroup=str(root.key))
        results, root_status = await self.decide(framework, root, started)
        if flight is not None:  # the attempt was suspended, and continues here
            await flight.reach(ATTEMPT_DECIDED, next(iter(entity)).pod_info.uid)
        assumed = [
            each for leaf in root.leaves() for each in self._submit(framework, results[leaf.key])
        ]
        self._put_conditions(root, lambda leaf: results[leaf.key].status)
        self._observe(framework, results[root.key], started)
        self.queue.attempted_group(entity, root_status)
        return assumed

    async def decide(
        self, framework: Framework, root: GroupNode, started: float
    ) -> tuple[Results, Status]:
        """What becomes of every group and member, and the root's status before preemption.

        Only PodGroupPostFilter plugins have effects.
        """
        shared = GroupCycle()
        results = await self.placing(framework, shared).run(root)
        root_status = results[root.key].status
        _complete(root, results, Verdict(SUCCESS))
        self.metrics.podgroup_scheduling_algorithm_duration_seconds.observe(
            framework.now() - started
        )
        if root_status.code is Code.UNSCHEDULABLE:
            await self._post_filter(framework, shared, root, results)
        return results, root_status

    def placing(self, framework: Framework, shared: GroupCycle) -> Placing:
        return Placing(
            framework=framework,
            cycle=self.cycle,
            cache=self.cache,
            nominator=self.queue.nominator,
            states=self.states,
            shared=shared,
            random=self.random,
            scheduling_cycle=self.queue.scheduling_cycle,
            by_topology=self.by_topology,
        )

    # -- before placing ----------------------------------------------------------------------------

    def tree(self, entity: QueuedGroup) -> GroupNode:
        """The tree of a queued group, as it is known now.

        Raises:
            GroupRejected: its root is gone.
        """
        group = self.states.find(entity.root)
        if group is None:
            raise GroupRejected(f"pod group object not found for pod group {entity.root}")
        return self._node(group, entity)

    def _node(self, group: Group, entity: QueuedGroup) -> GroupNode:
        key = key_of_group(group)
        if not key.is_composite:
            return GroupNode(group, list(entity.members.get(key, ())))
        children = [self._node(child, entity) for child in self.states.children(key)]
        return GroupNode(group, children=children)

    def validated(self, root: GroupNode) -> Framework:
        """The profile of all members, which must agree with each other and with the group.

        Raises:
            GroupRejected: they do not.
        """
        members = [info.pod_info.pod for info in root.all_members()]
        placed = [pod for leaf in root.leaves() for pod in self._state_of(leaf).scheduled_pods()]
        name = members[0].spec.scheduler_name
        policy = (root.group.spec.preemption_policy or _DEFAULT) if self.policy_of_group else ""
        for pod in (*members, *placed):
            if pod.spec.scheduler_name != name:
                raise GroupRejected(
                    "all pods in a single pod group should have the same .spec.schedulerName set, "
                    f'got: "{pod.spec.scheduler_name}" and "{name}"'
                )
            if (priority := pod.spec.priority or 0) != root.priority:
                raise GroupRejected(
                    "all pods in a single pod group should have the same priority as the pod "
                    f"group's priority, got {priority} and {root.priority}"
                )
            of_pod = pod.spec.preemption_policy or _DEFAULT
            policy = policy or of_pod
            if of_pod != policy:
                of_group = " as the pod group's preemption policy" if self.policy_of_group else ""
                raise GroupRejected(
                    "all pods in a single pod group should have the same preemption policy"
                    f"{of_group}, got {of_pod} and {policy}"
                )
        framework = self.frameworks.get(name)
        if framework is None:
            raise GroupRejected(f'profile not found for scheduler name "{name}"')
        return framework

    def _state_of(self, leaf: GroupNode) -> PodGroupState:
        state = self.states.state(leaf.key)
        if state is None:
            text = f"pod group state not found for pod group {leaf.key}"
            raise GroupRejected(f"failed to get pod group state: {text}")
        return state

    def _fail_before(
        self, entity: QueuedGroup, error: GroupRejected, root: GroupNode | None
    ) -> None:
        status = error_status(error)
        for info in list(entity):
            framework = self.frameworks[info.pod_info.pod.spec.scheduler_name]
            failed = Failed(status, CLEAR_NOMINATION)
            self._note(info, "", status)
            self.failures.handle(framework, info, failed, framework.now())
        if root is not None:
            self._put_conditions(root, lambda _leaf: status)
        self.queue.attempted_group(entity, status)

    def _put_conditions(self, root: GroupNode, status: Callable[[GroupNode], Status]) -> None:
        for leaf in root.leaves():
            assert isinstance(leaf.group, PodGroup), "leaves are pod groups"
            self.conditions.put(leaf.group, wish_of(status(leaf)))

    def _skip(
        self, framework: Framework, entity: QueuedGroup, root: GroupNode, is_skipped: SkipPod
    ) -> None:
        """Leave out members that are being deleted or are assumed already."""
        for leaf in root.leaves():
            for info in list(leaf.members):
                if is_skipped(framework, info.pod_info.pod):
                    self.queue.done(info.pod_info.uid)
                    leaf.members.remove(info)
                    entity.remove(info.pod_info.key)

    # -- after placing -----------------------------------------------------------------------------

    async def _post_filter(
        self, framework: Framework, shared: GroupCycle, root: GroupNode, results: Results
    ) -> None:
        async def place() -> tuple[Sequence[PlacedPod], Status]:
            again = await self.placing(framework, GroupCycle()).run(root)
            placed = [
                pod
                for leaf in root.leaves()
                if leaf.key in again
                for pod in again[leaf.key].placed()
            ]
            return placed, again[root.key].status

        started = framework.now()
        nominations, status = await _run_plugins(framework, shared, root, place)
        framework.point_done("PodGroupPostFilter", started, status)
        if status.is_success:
            for result in results.values():
                result.waits_for_preemption = True
                for member in result.members:
                    member.nomination = (nominations or {}).get(
                        member.info.pod_info.uid, member.nomination
                    )
        for result in results.values():
            if status.code is Code.ERROR:
                result.verdict = Verdict(status)
            else:
                result.verdict.add_reason(status.message)

    def _submit(self, framework: Framework, result: GroupResult) -> list[Assumed]:
        """Carry out the result of one PodGroup; returns the members to bind."""
        submitted = (self._submit_member(framework, result, member) for member in result.members)
        return [assumed for assumed in submitted if assumed is not None]

    def _submit_member(
        self, framework: Framework, result: GroupResult, member: MemberResult
    ) -> Assumed | None:
        started = framework.now() - member.seconds
        failed = failure_of(result, member)
        if failed is None:
            outcome = self._bind(framework, member, started)
            if isinstance(outcome, Assumed):
                return outcome
            failed = outcome
        if framework.evaluations is not None:
            framework.evaluations.note(member.state)
        self._note(member.info, "", failed.status)
        self.failures.handle(framework, member.info, failed, started)
        return None

    def _note(self, info: QueuedPodInfo, node_name: str, status: Status | None) -> None:
        """Tell the recorder; a cycle is recorded as one attempt with a decision per member."""
        if self.flight is not None:
            self.flight.decided(info, node_name, status)

    def _bind(self, framework: Framework, member: MemberResult, started: float) -> Assumed | Failed:
        info, found = member.info, member.result
        assert found is not None, "a member that succeeded has a node"
        pod = info.pod_info.assumed_on(found.node_name)
        member.state.group_trial = None  # pods of later cycles wait for allocations until written
        outcome = self.cycle.assume(
            Assumed(framework, member.state, info, pod, found.node_name, found, started)
        )
        if isinstance(outcome, Assumed):
            if framework.evaluations is not None:
                framework.evaluations.note(member.state)
            now = framework.handle.clock.now()
            self.decisions.add(
                info, framework.profile_name, now, member.seconds, Outcome.SCHEDULED, *found
            )
            self._note(info, found.node_name, None)
            self.queue.assumed(info)
        return outcome

    def _observe(self, framework: Framework, root: GroupResult, started: float) -> None:
        status = root.status
        if status.is_success:
            word = "scheduled"
        elif root.waits_for_preemption:
            word = "waiting_on_preemption"
        else:
            word = "unschedulable" if status.is_rejected else "error"
        labels = (word, framework.profile_name)
        self.metrics.podgroup_schedule_attempts_total.labels(*labels).inc()
        self.metrics.podgroup_scheduling_attempt_duration_seconds.labels(*labels).observe(
            framework.now() - started
        )


_DEFAULT = "PreemptLowerPriority"


def failure_of(result: GroupResult, member: MemberResult) -> Failed | None:
    """What a member is told that will not be bound."""
    group, own = result.status, member.status
    if group.code is Code.ERROR:
        return Failed(own if own.code is Code.ERROR else group, CLEAR_NOMINATION)
    if not own.is_success:
        return Failed(own, member.nomination)
    if group.is_success:
        return None
    if result.waits_for_preemption:
        return Failed(group, member.nomination)
    return Failed(group_unschedulable(group.message), CLEAR_NOMINATION)


def _complete(node: GroupNode, results: Results, parent: Verdict) -> None:
    """Give every group and every member a result: what a failed parent says holds below it."""
    result = results.get(node.key)
    if result is None or (not parent.status.is_success and result.status.is_success):
        result = results[node.key] = GroupResult(node, parent)
    for info in node.members[len(result.members) :]:
        result.members.append(MemberResult(info, result.status, CycleState()))
    for child in node.children:
        _complete(child, results, result.verdict)


async def _run_plugins(
    framework: Framework, shared: GroupCycle, root: GroupNode, place: PlaceGroup
) -> GroupPostFilterAnswer:
    """Ask the PodGroupPostFilter plugins until one succeeds or rules it out."""
    reasons: list[str] = []
    plugins: Sequence[PodGroupPostFilterPlugin] = framework.at("podGroupPostFilter")
    for plugin in plugins:
        try:
            answer = plugin.pod_group_post_filter(shared, root, place)
            nominations, status = await answer if isinstance(answer, Awaitable) else answer
            if not isinstance(status, Status) or not isinstance(nominations, Mapping | None):
                raise WrongAnswer(f"{plugin.name} must return nominations and a Status")
        except Exception as error:  # a plugin may raise anything; it fails this cycle only
            log.exception(
                "A plugin failed", plugin=plugin.name, extensionPoint="PodGroupPostFilter"
            )
            nominations, status = None, error_status(error)
        if status.is_success or status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return nominations, status
        if status.code is not Code.UNSCHEDULABLE:
            text = f'error in "{plugin.name}" PodGroupPostFilter plugins: {status.as_error()}'
            return None, error_status(text)
        reasons += status.all_reasons
    return None, Status(Code.UNSCHEDULABLE, reasons)
