"""DefaultPreemption: evicts lower-priority pods, with least disruption, for an unschedulable pod.

The evaluation is in `kubesched.framework.preemption`. Mirrors upstream's
`defaultpreemption/default_preemption.go`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import ClassVar, Final

from kubesched.api.core_v1 import Pod
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.config.plugin_args import DefaultPreemptionArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin
from kubesched.framework.events import Action, ClusterEventWithHint, Hint, Resource, on_event
from kubesched.framework.groups.states import group_of
from kubesched.framework.groups.tree import GroupCycle, GroupNode, Nominations, PlaceGroup
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import (
    EnqueueExtensions,
    GroupPostFilterAnswer,
    PodGroupPostFilterPlugin,
    PostFilterAnswer,
    PostFilterPlugin,
    PreEnqueuePlugin,
)
from kubesched.framework.preemption.candidates import Candidate, CandidateCount
from kubesched.framework.preemption.evaluator import Evaluator, OrderedScores
from kubesched.framework.preemption.executor import Executor, on_behalf_of_group
from kubesched.framework.preemption.group_preemption import GroupPreemption, GroupPreemptor
from kubesched.framework.preemption.importance import MoreImportant
from kubesched.framework.preemption.victims import IsEligible, VictimRules
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.maybe_async import then
from kubesched.framework.status import Code, NodeToStatus, Status, error_status, unresolvable
from kubesched.plugins.helper.args import checked_args

PREFIX: Final = "preemption: "
STILL_RUNNING: Final = unresolvable("waiting for the preemption for this pod to be finished")
GROUP_PREFIX: Final = "pod group preemption: "
GROUP_STILL_RUNNING: Final = unresolvable(
    "waiting for the preemption for this pod group to be finished"
)


class DefaultPreemption(
    PostFilterPlugin,
    PreEnqueuePlugin,
    PodGroupPostFilterPlugin,
    EnqueueExtensions,
    InTreePlugin,
):
    """Preemption with upstream's rules.

    Subclasses can change the choice of victims and node by defining one of the hooks below, which
    are None here. Custom victim rules disable the evaluation of many nodes at once.
    """

    name = "DefaultPreemption"
    answers_per_class = True
    lists = (PodDisruptionBudget,)
    args_type = DefaultPreemptionArgs
    executor_type: ClassVar[type[Executor]] = Executor

    is_eligible_pod: IsEligible | None = None
    """May this lower-priority pod be evicted?"""
    is_more_important_pod: MoreImportant | None = None
    """Is the first pod reprieved before the second?"""
    ordered_score_functions: OrderedScores | None = None
    """Node selection criteria, most important first; empty for the default criteria."""

    def __init__(self, args: DefaultPreemptionArgs | None, handle: Handle) -> None:
        args = checked_args(args, DefaultPreemptionArgs, handle)
        super().__init__(args, handle)
        gates = handle.feature_gates
        self._in_background = gates.SchedulerAsyncPreemption
        self._policy_of_group = gates.PodGroupPreemptionPolicy
        self.evaluator = Evaluator(
            handle,
            self.name,
            CandidateCount(args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute),
            in_background=self._in_background,
            rules=VictimRules(self.is_eligible_pod, self.is_more_important_pod),
            ordered_scores=self.ordered_score_functions,
            executor=self.executor_type,
        )

    def is_idle(self) -> bool:
        return self.evaluator.executor.is_idle()

    def pre_enqueue(self, pod: Pod) -> Status | None:
        if not self._in_background:
            return None
        groups, key = self.handle.groups, group_of(pod)
        if groups is not None and key is not None:
            root = groups.root_of(key)
            is_held = root is not None and self.evaluator.executor.keeps_back(pod, root)
            return GROUP_STILL_RUNNING if is_held else None
        return STILL_RUNNING if self.evaluator.executor.keeps_back(pod) else None

    def post_filter(
        self, state: CycleState, pod: Pod, statuses: NodeToStatus
    ) -> PostFilterAnswer | Awaitable[PostFilterAnswer]:
        if self.handle.metrics is not None:
            self.handle.metrics.preemption_attempts_total.inc()
        return then(self.evaluator.preempt(state, pod, statuses), _with_prefix)

    async def pod_group_post_filter(
        self, cycle: GroupCycle, group: GroupNode, place: PlaceGroup
    ) -> GroupPostFilterAnswer:
        framework, states = self.handle.framework, self.handle.groups
        assert isinstance(framework, Framework), "the framework is set once its plugins are built"
        assert states is not None, "groups need the gate GenericWorkload"
        started = self.handle.clock.monotonic()
        preemptor = GroupPreemptor(
            framework,
            states,
            group,
            place,
            self.evaluator.budgets.list(),
            round(self.handle.clock.now() * 1e6),
            policy_of_group=self._policy_of_group,
        )
        found = await preemptor.find()
        nominations: Nominations | None
        if isinstance(found, GroupPreemption):
            whom = on_behalf_of_group(group)
            self._count_disruptions(found, whom.kind)
            self.evaluator.executor.start_for(Candidate("cluster", found.victims), whom)
            text = f"found a placement for podgroup, preempting {len(found.victims.pods)} victims"
            nominations, status = found.nominations, Status(Code.SUCCESS, (text,))
        else:
            nominations, status = found
        if self.handle.metrics is not None:
            metrics, word = self.handle.metrics, status.code.upstream_name
            metrics.workload_preemption_attempts_total.labels(word).inc()
            elapsed = self.handle.clock.monotonic() - started
            durations = metrics.preemption_evaluation_duration_seconds
            durations.labels("podgroup", word).observe(elapsed)
        said = GROUP_PREFIX + status.message
        if status.code is Code.ERROR:
            return None, error_status(said)
        return nominations, Status(status.code, (said,))

    def _count_disruptions(self, found: GroupPreemption, preemptor: str) -> None:
        metrics = self.handle.metrics
        if metrics is None:
            return
        metrics.workload_preemption_victims.observe(len(found.victims.pods))
        violations = found.victims.pdb_violations
        metrics.preemption_pdb_violations_total.labels(preemptor).inc(violations)
        if found.disrupted_groups:
            disruptions = metrics.preemption_workload_disruptions.labels(preemptor)
            disruptions.observe(found.disrupted_groups)

    # -- events ------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Pod deletions; the hints of the plugins that rejected the pod decide whether one helps.

        Two exceptions: an earlier deletion helped while PreEnqueue held the pod back. That event is
        lost, and the deletion of the last victim, which ends the wait, may not match these plugins'
        hints. And members of a group that preempted may lack nothing, or what they were told may be
        of another placement. (Upstream, both wait for the five-minute flush; such a group does so
        only if its evictions take longer than the writes of its conditions.)
        """
        if not self._in_background:
            return ()
        return (on_event(Resource.ASSIGNED_POD, Action.DELETE, self.after_pod_deletion),)

    def after_pod_deletion(self, pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
        is_member = self.handle.groups is not None and group_of(pod) is not None
        is_helped = is_member or self.evaluator.executor.was_kept_back(pod)
        return Hint.QUEUE if is_helped else Hint.SKIP


def _with_prefix(answer: PostFilterAnswer) -> PostFilterAnswer:
    """Adds this plugin's prefix to the answer's message."""
    result, status = answer
    if status is None or not status.message:
        return answer
    return result, Status(status.code, (PREFIX + status.message,))
