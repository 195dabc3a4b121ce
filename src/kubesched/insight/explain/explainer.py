"""Explainer: explains one pod with the scheduler's own framework."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from msgspec import structs

from kubesched.api.core_v1 import Pod
from kubesched.api.names import key_of
from kubesched.base.errors import KubeschedError
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.diagnosis import Failed, FitError
from kubesched.framework.groups.states import GroupKey, group_of
from kubesched.framework.handle import Listers
from kubesched.framework.nodes.columns import Mask
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.pod_status import (
    POD_SCHEDULED,
    REASON_SCHEDULER_ERROR,
    REASON_UNSCHEDULABLE,
)
from kubesched.framework.preemption.candidates import Candidate
from kubesched.framework.preemption.executor import rehearse
from kubesched.framework.runtime import Framework
from kubesched.insight.explain import pod_groups, waiting
from kubesched.insight.explain.devices import DeviceStories, device_stories
from kubesched.insight.explain.evaluation import Evaluation, evaluate
from kubesched.insight.explain.fixes.changes import edited
from kubesched.insight.explain.fixes.pod_edits import set_scheduler
from kubesched.insight.explain.fixes.rehearsal import Copy, Rehearsals
from kubesched.insight.explain.fixes.search import FixSearch, changes_for_entry
from kubesched.insight.explain.judging import is_hopeless, reasons_of, summary_of
from kubesched.insight.explain.missing import missing_for
from kubesched.insight.explain.model import (
    Condition,
    Explanation,
    Fix,
    GroupExplanation,
    NodeCounts,
    NodeRow,
    Preemption,
    Reason,
    Verdict,
    Victim,
    WaitingFor,
    WokenBy,
)
from kubesched.insight.explain.reasons import DEVICES_UNAVAILABLE
from kubesched.insight.explain.rows import chosen_of, node_rows
from kubesched.insight.explain.selection import Selection, every_node
from kubesched.insight.explain.volumes import nearest, volume_needs
from kubesched.insight.explain.waiting import held_at_permit, held_now
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.memory import state_of_listers
from kubesched.scheduler.algorithm import ScheduleResult
from kubesched.scheduler.factory import Assembly

POST_FILTER_NOT_KNOWN = (
    "a PostFilter plugin waits for something; what it would add to the message is not known"
)
WITHOUT_LATER_PODS = (
    "the scores are of the cluster as it is now: "
    "pods that came or went since this one was placed count as they are now"
)
GROUPS_BACK_OFF = "failed groups back off and are retried; 'explain podgroup' says what would help"
NO_FIXES = "no fixes were tried: what is missing may be all that is in the way"
TIES = "nodes with equal totals are drawn at random: which of them is taken is not known beforehand"

T = TypeVar("T")


class ExplainError(KubeschedError):
    """The pod cannot be explained; the message gives the cause."""


class Explainer:
    """Explains pods with an in-memory scheduler, whose state is left unchanged."""

    def __init__(
        self,
        assembly: Assembly,
        *,
        notes: Sequence[str] = (),
        copy: Copy | None = None,
        state: ClusterState | None = None,
        is_fixed: bool = False,
    ) -> None:
        """`notes` (limits of the answer) are added to every explanation.

        `is_fixed` says that nothing changes between explanations.

        `state` tells what its source does not hold.

        `copy` makes the clusters in which fixes are tried, with the scheduler's configuration.
        Without it only the filters are asked.
        """
        self.assembly = assembly
        self.notes = notes
        self._copy = copy
        self.state = state or ClusterState("memory")
        self._kept: dict[object, Any] | None = {} if is_fixed else None

    def rehearsals(self, pod: Pod, listers: Listers | None) -> Rehearsals | None:
        """Trials of fixes in copies of the cluster, if it can be copied."""
        if self._copy is None or listers is None:
            return None
        return Rehearsals(self._copy, state_of_listers("copy", listers), pod)

    def explain(
        self, pod: Pod, select: Selection = every_node, *, fix: bool = False, decided: str = ""
    ) -> Explanation:
        """Explain the pod; `select` chooses the nodes to list, `fix` enables the search for fixes.

        `decided` is the node that was chosen, if the scheduler is in the state right before that.

        Raises:
            ExplainError: the pod has invalid values.
        """
        framework = self.assembly.frameworks.get(pod.spec.scheduler_name)
        if framework is None:
            return self._of_another_scheduler(pod, fix=fix)
        if (held := held_now(self.assembly.waiting_pods, pod)) is not None:
            return self._waiting(pod, held, profile=framework.profile_name)
        node_name = decided or self._node_of(pod)
        try:
            with self.as_pending(pod) as info:
                story = _Story(self, framework, info, node_name)
                story.is_later = bool(node_name) and not decided
                return story.told(select, fix=fix)
        except KubeschedError as error:
            raise ExplainError(f"pod {key_of(pod.metadata)}: {error}") from error

    @contextmanager
    def as_pending(self, pod: Pod) -> Iterator[PodInfo]:
        """The pod as pending; a placed pod is taken off its node until the block ends."""
        known = self.assembly.scheduler.cache.get_pod(pod.metadata.uid)
        if known is None:
            yield PodInfo(pod)
            return
        # Only the table is changed: the cache must keep track of whether the pod is assumed.
        table, node_name = self.assembly.table, known.pod.spec.node_name
        table.remove_pod(known, node_name)
        try:
            yield PodInfo(structs.replace(pod, spec=structs.replace(pod.spec, node_name="")))
        finally:
            table.add_pod(known, node_name)

    def _node_of(self, pod: Pod) -> str:
        """The node on which the scheduler counts the pod; empty if none."""
        known = self.assembly.scheduler.cache.get_pod(pod.metadata.uid)
        return known.pod.spec.node_name if known is not None else ""

    def _of_another_scheduler(self, pod: Pod, *, fix: bool) -> Explanation:
        schedulers = self._schedulers()
        waits = waiting.another_scheduler(pod, schedulers)
        note = "nodes were not looked at: the profile is missing"
        told = self._waiting(pod, waits, notes=[note])
        if pod.spec.node_name:
            name = pod.spec.scheduler_name
            told.verdict, told.waiting_for = Verdict.PLACED, []
            told.summary = (
                f"placed on {pod.spec.node_name} by the scheduler {name}, "
                "whose configuration is not known"
            )
        elif fix and not schedulers.get(pod.spec.scheduler_name):
            told.fixes = self._with_nearest_scheduler(pod)
        return told

    def _schedulers(self) -> Counter[str]:
        """The profiles, and all schedulers that have placed pods."""
        found = Counter(dict.fromkeys(self.assembly.frameworks, 0))
        for pods in self.assembly.table.pods:
            found.update(info.pod.spec.scheduler_name for info in pods.values())
        return found

    def _with_nearest_scheduler(self, pod: Pod) -> list[Fix]:
        """What would help if the name of the scheduler is misspelt."""
        name = nearest(pod.spec.scheduler_name, self.assembly.frameworks)
        if not name:
            return []
        framework, edit = self.assembly.frameworks[name], set_scheduler(pod, name)
        evaluation = evaluate(framework, PodInfo(edited(pod, [edit])))
        rehearsals = self.rehearsals(pod, framework.handle.listers)
        return FixSearch(framework, evaluation, [edit], rehearsals).fixes()

    def _waiting(
        self, pod: Pod, waits: WaitingFor, *, profile: str = "", notes: Sequence[str] = ()
    ) -> Explanation:
        """Of a pod that waits for something, whatever the nodes are like."""
        by = f" ({waits.plugin})" if waits.plugin else ""
        return Explanation(
            pod=key_of(pod.metadata),
            uid=pod.metadata.uid,
            profile=profile,
            verdict=Verdict.WAITING,
            summary=f"waiting: {waits.what}{by}.",
            condition=condition_of(pod),
            nominated_node=pod.status.nominated_node_name or "",
            waiting_for=[waits],
            nodes=NodeCounts(total=self.assembly.table.node_count, feasible=0),
            notes=[*self.notes, *notes],
        )

    # -- the decision ------------------------------------------------------------------------------

    def decide(
        self, framework: Framework, pod: PodInfo
    ) -> tuple[ScheduleResult | Failed | None, Candidate | None]:
        """The result of an attempt and its victims; None if a PostFilter plugin has to wait."""
        with self.rehearse(framework) as evictions:
            decided = self.assembly.scheduler.cycle.decide(framework, CycleState(), pod)
            outcome = self._finished(decided)
        return outcome, evictions[-1] if evictions else None

    @contextmanager
    def rehearse(self, framework: Framework) -> Iterator[Sequence[Candidate]]:
        """A reproducible dry run: evictions are recorded, not carried out."""
        random = framework.handle.random
        drawn = random.getstate()
        random.seed(0)
        try:
            with rehearse(framework.handle) as evictions:
                yield evictions
        finally:
            random.setstate(drawn)

    def explain_group(self, namespace: str, name: str) -> GroupExplanation:
        """Explain a PodGroup, with the tree it belongs to.

        Raises:
            ExplainError: groups are not looked at, or there is no such group and no pod names it.
        """
        cycles = pod_groups.cycles_of(self.assembly)
        if cycles is None:
            raise ExplainError(
                "pod groups are not looked at: --feature-gates GenericWorkload=true turns them on"
            )
        key = pod_groups.key_named(cycles, namespace, name)
        if key is None:
            raise ExplainError(f"PodGroup {namespace}/{name} not found, nor a pod that names it")
        told = pod_groups.explain_group(cycles, self.rehearse, key, self.notes)
        for pod in pod_groups.pods_below(cycles, key):
            missing = missing_for(pod, self.state, evicts=False)
            if missing is not None:
                told.summary = f"{missing.text}. Without them: {told.summary}"
                told.notes.append(f"{missing.command} gets them, to be added with --from")
                break
        return told

    def kept(self, what: Callable[..., T], key: GroupKey, *arguments: object) -> T:
        """`what(*arguments)`, once per group: it is tried as a whole, and each member may ask."""
        if self._kept is None:
            return what(*arguments)
        known = what.__name__, key
        if known not in self._kept:
            self._kept[known] = what(*arguments)
        found: T = self._kept[known]
        return found

    def _finished(
        self, outcome: ScheduleResult | Failed | Awaitable[ScheduleResult | Failed]
    ) -> ScheduleResult | Failed | None:
        if isinstance(outcome, ScheduleResult | Failed):
            return outcome
        return _immediately(cast("Coroutine[Any, Any, ScheduleResult | Failed]", outcome))


class _Story:
    """Builds one explanation."""

    def __init__(
        self, explainer: Explainer, framework: Framework, info: PodInfo, node_name: str
    ) -> None:
        """`node_name` is the pod's node, empty for a pending pod."""
        self.explainer = explainer
        self.framework = framework
        self.pod = info.pod
        self.info = info
        self.node_name = node_name
        self.is_later = False
        """True if the pod was placed earlier and the cluster has changed since."""
        self.notes = list(explainer.notes)
        self.group = group_of(info.pod)
        self.cycles = pod_groups.cycles_of(explainer.assembly) if self.group is not None else None
        self.helps_of_group: list[str] = []

    def told(self, select: Selection, *, fix: bool) -> Explanation:
        framework, pod = self.framework, self.pod
        evaluation = evaluate(framework, self.info)
        outside = [] if self.node_name else self._waits_outside_the_queue()
        waits = [*outside, *([] if self.node_name else self._waits_for_objects(evaluation))]
        is_tried = not self.node_name and not outside
        decision, candidate = self._decided() if is_tried else (None, None)
        if is_tried and decision is None:
            self.notes.append(POST_FILTER_NOT_KNOWN)
        if isinstance(decision, ScheduleResult) and self.cycles is None:
            cycle = self.explainer.assembly.scheduler.cycle
            with self.explainer.rehearse(framework):
                waits += held_at_permit(framework, cycle, self.info)
        devices = DeviceStories() if self.node_name else device_stories(framework, evaluation)
        self.notes += devices.notes
        verdict = self._verdict(evaluation, waits, decision, devices.never)
        node = self.node_name or (
            decision.node_name if isinstance(decision, ScheduleResult) else ""
        )
        chosen = chosen_of(evaluation, node) if node else None
        if self.is_later:
            self.notes.append(WITHOUT_LATER_PODS)
        if chosen is not None and chosen.tied:
            self.notes.append(TIES)
        counts = NodeCounts(total=evaluation.table.node_count, feasible=len(evaluation.feasible))
        preemption = _preemption(candidate)
        reasons = reasons_of(evaluation)
        matrix = node_rows(framework, evaluation, select(evaluation))
        _tell_of_devices(devices, reasons, matrix)
        evicts = preemption is not None
        missing = None if self.node_name else missing_for(pod, self.explainer.state, evicts=evicts)
        first = f"{missing.text}. Without them: " if missing is not None else ""
        of_group = self._of_group(verdict, counts)
        if self.group is not None and self.cycles is None and not self.node_name:
            first += "alone, without its PodGroup: "
        # Last, because trials change the table temporarily.
        fixes = self._fixes(evaluation, verdict) if fix else None
        if fix and not fixes and self.helps_of_group:
            fixes = None
            self.notes.append(f"would help its group: {'; '.join(self.helps_of_group)}")
        return Explanation(
            pod=self.info.key,
            uid=pod.metadata.uid,
            profile=framework.profile_name,
            verdict=verdict,
            summary=first + summary_of(verdict, counts, waits, chosen, preemption, of_group),
            missing=missing,
            message=decision.status.message if isinstance(decision, Failed) else "",
            condition_reason=_condition_reason(decision),
            condition=condition_of(pod),
            nominated_node=self.info.pod.status.nominated_node_name or "",
            waiting_for=waits,
            woken_by=self._woken_by(decision),
            nodes=counts,
            reasons=reasons,
            matrix=matrix,
            devices=devices.needs,
            volumes=volume_needs(evaluation, framework.handle.listers),
            chosen=chosen,
            preemption=preemption,
            fixes=fixes,
            notes=self.notes,
        )

    def _decided(self) -> tuple[ScheduleResult | Failed | None, Candidate | None]:
        if self.cycles is None or self.group is None:
            return self.explainer.decide(self.framework, self.info)
        rehearse, kept = self.explainer.rehearse, self.explainer.kept
        attempt = kept(pod_groups.attempt, self.group, self.cycles, rehearse, self.group)
        if attempt is None:
            return None, None
        return attempt.outcome_for(self.pod), attempt.candidate

    def _of_group(self, verdict: Verdict, counts: NodeCounts) -> str:
        """What the pod's group lacks, if the pod itself would find a node."""
        if self.group is None or self.node_name:
            return ""
        named = f"PodGroup {self.group.namespace}/{self.group.name}"
        if self.cycles is None:
            self.notes.append(f"{named} is not looked at: the feature gate GenericWorkload is off")
            return ""
        explain = self.explainer.explain_group
        told = self.explainer.kept(explain, self.group, self.group.namespace, self.group.name)
        self.helps_of_group = told.helps
        if verdict in (Verdict.NOT_NOW, Verdict.NEVER):
            self.notes.append(GROUPS_BACK_OFF)
        if verdict is Verdict.NOT_NOW and counts.feasible:
            return f"{named} does not start: {told.summary.removeprefix('not now. ')}"
        self.notes.append(f"{named}: {told.summary}")
        return ""

    def _fixes(self, evaluation: Evaluation, verdict: Verdict) -> list[Fix]:
        if verdict not in (Verdict.NOT_NOW, Verdict.NEVER, Verdict.WAITING):
            return []
        if missing_for(self.pod, self.explainer.state, evicts=False) is not None:
            self.notes.append(NO_FIXES)
            return []
        before = changes_for_entry(self.framework, self.pod)
        if before is None or (len(evaluation.feasible) and not before):
            return []
        rehearsals = self.explainer.rehearsals(self.pod, self.framework.handle.listers)
        search = FixSearch(self.framework, evaluation, before, rehearsals)
        fixes = search.fixes()
        self.notes += search.notes
        return fixes

    def _waits_outside_the_queue(self) -> list[WaitingFor]:
        """What keeps the pod out of the queue."""
        if self.pod.metadata.deletion_timestamp is not None:
            return [waiting.deletion()]
        if self.cycles is not None and self.group is not None:
            waits_of = pod_groups.waits_of
            return self.explainer.kept(waits_of, self.group, self.cycles, self.group)
        queue = self.explainer.assembly.scheduler.queue
        return list(waiting.before_the_queue(self.framework, queue, self.info.pod))

    def _waits_for_objects(self, evaluation: Evaluation) -> list[WaitingFor]:
        listers = self.framework.handle.listers
        return [] if listers is None else list(waiting.objects(evaluation, listers))

    def _verdict(
        self,
        evaluation: Evaluation,
        waits: Sequence[WaitingFor],
        decision: ScheduleResult | Failed | None,
        without_devices: Mask | None,
    ) -> Verdict:
        if self.node_name:
            return Verdict.PLACED
        if waits:
            return Verdict.WAITING
        if isinstance(decision, ScheduleResult):
            return Verdict.FITS
        is_empty = not evaluation.table.node_count
        if not is_empty and is_hopeless(self.framework, evaluation, without_devices):
            return Verdict.NEVER
        return Verdict.NOT_NOW

    def _woken_by(self, decision: ScheduleResult | Failed | None) -> list[WokenBy]:
        error = decision.status.as_error() if isinstance(decision, Failed) else None
        if not isinstance(error, FitError) or self.cycles is not None:
            return []
        diagnosis = error.diagnosis
        plugins = diagnosis.unschedulable_plugins | diagnosis.pending_plugins
        return waiting.woken_by(self.explainer.assembly.hints, plugins)


def _tell_of_devices(
    devices: DeviceStories, reasons: Sequence[Reason], matrix: Sequence[NodeRow]
) -> None:
    """Add what is known about devices to the reasons and to what nodes lack."""
    for reason in reasons:
        if reason.code == DEVICES_UNAVAILABLE.code:
            reason.detail = devices.detail
    for row in matrix:
        for failure in row.failures:
            if failure.code == DEVICES_UNAVAILABLE.code and row.node in devices.by_node:
                failure.lacks = [devices.by_node[row.node]]


def condition_of(pod: Pod) -> Condition | None:
    for condition in pod.status.conditions or ():
        if condition.type == POD_SCHEDULED:
            return Condition(
                status=condition.status,
                reason=condition.reason or "",
                message=condition.message or "",
                since=str(condition.last_transition_time or ""),
            )
    return None


def _condition_reason(decision: ScheduleResult | Failed | None) -> str:
    if not isinstance(decision, Failed):
        return ""
    return REASON_UNSCHEDULABLE if decision.status.is_rejected else REASON_SCHEDULER_ERROR


def _preemption(candidate: Candidate | None) -> Preemption | None:
    if candidate is None:
        return None
    victims = candidate.victims
    return Preemption(
        node=candidate.node_name,
        victims=[
            Victim(pod=key_of(pod.metadata), priority=pod.spec.priority or 0)
            for pod in victims.pods
        ],
        violated_budgets=victims.pdb_violations,
    )


def _immediately(
    work: Coroutine[Any, Any, ScheduleResult | Failed],
) -> ScheduleResult | Failed | None:
    """The coroutine's result if it completes without waiting, else None."""
    try:
        work.send(None)
    except StopIteration as done:
        result: ScheduleResult | Failed = done.value
        return result
    work.close()
    return None
