"""DefaultPreemption: evicts lower-priority pods, with least disruption, for an unschedulable pod.

The evaluation is in `kubesched.framework.preemption`. Mirrors upstream's
`defaultpreemption/default_preemption.go`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar, Final

from kubesched.api.core_v1 import Pod
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.api.scheduling_v1alpha2 import PodGroup
from kubesched.config.plugin_args import DefaultPreemptionArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin
from kubesched.framework.events import Action, ClusterEventWithHint, Hint, Resource, on_event
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import (
    EnqueueExtensions,
    PostFilterAnswer,
    PostFilterPlugin,
    PreEnqueuePlugin,
)
from kubesched.framework.preemption.candidates import Candidate, CandidateCount
from kubesched.framework.preemption.evaluator import Evaluator, OrderedScores
from kubesched.framework.preemption.executor import Executor
from kubesched.framework.preemption.importance import MoreImportant
from kubesched.framework.preemption.victims import IsEligible, VictimRules
from kubesched.framework.rules import Premise
from kubesched.framework.runtime.maybe_async import then
from kubesched.framework.status import NodeToStatus, Status, unresolvable, unschedulable
from kubesched.plugins.helper.args import checked_args

PREFIX: Final = "preemption: "
STILL_RUNNING: Final = unresolvable("waiting for the preemption for this pod to be finished")
GROUP_NOT_FOUND: Final = unschedulable(PREFIX + "pod group for pod not found")
GROUP_IS_PLACED: Final = unschedulable(
    PREFIX + "not eligible due to placement-based pod group scheduling limitation"
)
GROUP_PREEMPTS_ITSELF: Final = unschedulable(
    PREFIX + "not eligible due to workload aware preemption enabled"
)


class DefaultPreemption(PostFilterPlugin, PreEnqueuePlugin, EnqueueExtensions, InTreePlugin):
    """Preemption with upstream's rules.

    Subclasses can change the choice of victims and node by defining one of the hooks below, which
    are None here. Custom victim rules disable the evaluation of many nodes at once.
    """

    name = "DefaultPreemption"
    answers_per_class = True
    lists = (PodDisruptionBudget,)
    args_type = DefaultPreemptionArgs
    executor_type: ClassVar[type[Executor]] = Executor

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # A hook may treat pods of one class differently.
        cls.answers_per_class = cls.__dict__.get("answers_per_class", False)
        if "post_filter" in cls.__dict__ and "answer_premise" not in cls.__dict__:
            cls.answer_premise = InTreePlugin.answer_premise  # type: ignore[method-assign]

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
        self._groups_are_placed = gates.TopologyAwareWorkloadScheduling
        self._groups_preempt = gates.WorkloadAwarePreemption
        self.evaluator = Evaluator(
            handle,
            self.name,
            CandidateCount(args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute),
            in_background=self._in_background,
            rules=VictimRules(self.is_eligible_pod, self.is_more_important_pod),
            ordered_scores=self.ordered_score_functions,
            executor=self.executor_type,
        )

    def rehearse(self) -> AbstractContextManager[Sequence[Candidate]]:
        """Dry run: evicts nothing, and yields the candidates for eviction, in order."""
        return self.evaluator.executor.rehearse()

    def is_idle(self) -> bool:
        return self.evaluator.executor.is_idle()

    def pre_enqueue(self, pod: Pod) -> Status | None:
        if self._in_background and self.evaluator.executor.keeps_back(pod):
            return STILL_RUNNING
        return None

    def post_filter(
        self, state: CycleState, pod: Pod, statuses: NodeToStatus
    ) -> PostFilterAnswer | Awaitable[PostFilterAnswer]:
        if self.handle.metrics is not None:
            self.handle.metrics.preemption_attempts_total.inc()
        if pod.spec.scheduling_group is not None:
            refused = self._refuse_group(pod)
            if refused is not None:
                return None, refused
        return then(self.evaluator.preempt(state, pod, statuses), _with_prefix)

    def answer_premise(self, state: CycleState, pod: Pod, statuses: NodeToStatus) -> Premise | None:
        if pod.spec.scheduling_group is not None:
            return None
        return self.evaluator.premise_of_no_candidates(pod, statuses)

    def answer_repeated(self) -> None:
        if self.handle.metrics is not None:
            self.handle.metrics.preemption_attempts_total.inc()

    # -- events ------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Pod deletions; the hints of the plugins that rejected the pod decide whether one helps.

        Exception: an earlier deletion helped while PreEnqueue held the pod back. That event is
        lost, and the deletion of the last victim, which ends the wait, may not match these plugins'
        hints. (Upstream drops the first event, and the pod waits for the five-minute flush.)
        """
        if not self._in_background:
            return ()
        return (on_event(Resource.ASSIGNED_POD, Action.DELETE, self.after_pod_deletion),)

    def after_pod_deletion(self, pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
        return Hint.QUEUE if self.evaluator.executor.was_kept_back(pod) else Hint.SKIP

    # -- pod groups --------------------------------------------------------------------------------

    def _refuse_group(self, pod: Pod) -> Status | None:
        """Returns why a pod group member may not preempt on its own; None if it may."""
        if self._groups_are_placed:
            group = self._group_of(pod)
            if group is None:
                return GROUP_NOT_FOUND
            if group.spec.scheduling_constraints is not None:
                return GROUP_IS_PLACED
        return GROUP_PREEMPTS_ITSELF if self._groups_preempt else None

    def _group_of(self, pod: Pod) -> PodGroup | None:
        listers, member_of = self.handle.listers, pod.spec.scheduling_group
        if listers is None or member_of is None:
            return None
        group: PodGroup | None = listers.of(PodGroup).get(
            pod.metadata.namespace, member_of.pod_group_name or ""
        )
        return group


def _with_prefix(answer: PostFilterAnswer) -> PostFilterAnswer:
    """Adds this plugin's prefix to the answer's message."""
    result, status = answer
    if status is None or not status.message:
        return answer
    return result, Status(status.code, (PREFIX + status.message,))
