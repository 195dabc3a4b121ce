"""Placing a tree of groups: members one after the other, in one placement after the other.

"Placing" is a trial on the live tables: members are assumed and reserved so that later ones see
them, and everything is undone, last first. What is left is a result per group, from which the
cycle goes on. While an extender is awaited the trial stays in the tables: the event gate is held,
so that neither watch events nor failed bindings change them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral
from random import Random

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.diagnosis import FitError
from kubesched.framework.groups.states import GroupKey, GroupStates
from kubesched.framework.groups.tree import GroupCycle, GroupNode, PlacedPod, Placement
from kubesched.framework.interfaces import (
    PlacementFeasiblePlugin,
    PlacementGeneratePlugin,
    PlacementScorePlugin,
)
from kubesched.framework.nominating_info import CLEAR_NOMINATION, KEEP_NOMINATION
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.guard import WrongAnswer, as_status, raised
from kubesched.framework.runtime.reserve import run_reserve, run_unreserve
from kubesched.framework.status import Code, Status, error_status
from kubesched.scheduler.algorithm import ScheduleResult, SchedulingAlgorithm
from kubesched.scheduler.cache.cache import Cache, CacheError
from kubesched.scheduler.groups.placement_algorithm import PlacementAlgorithm
from kubesched.scheduler.groups.results import (
    SUCCESS,
    GroupResult,
    MemberResult,
    Verdict,
    group_unschedulable,
)
from kubesched.scheduler.groups.side_by_side import place_side_by_side
from kubesched.scheduler.queue.nominator import Nominator
from kubesched.scheduler.scheduling_cycle import SchedulingCycle, as_one_node_failure

Undo = Callable[[], None]
MAX_SCORE = 100


@dataclass(eq=False, kw_only=True)
class Placing:
    """One run of the algorithm for a whole tree."""

    framework: Framework
    cycle: SchedulingCycle
    cache: Cache
    nominator: Nominator
    states: GroupStates
    shared: GroupCycle
    random: Random
    scheduling_cycle: int
    by_topology: bool
    results: dict[GroupKey, GroupResult] = field(default_factory=dict)
    trials: dict[GroupKey, list[tuple[Placement, GroupResult]]] = field(default_factory=dict)
    """What came out in each placement, of every group."""

    def __post_init__(self) -> None:
        self._whole = self.cycle.algorithm
        plugins = self.framework.plugins
        self._feasible = [each for each in plugins if isinstance(each, PlacementFeasiblePlugin)]
        self._generate: Sequence[PlacementGeneratePlugin] = self.framework.at("placementGenerate")
        self._score: Sequence[PlacementScorePlugin] = self.framework.at("placementScore")

    async def run(self, root: GroupNode) -> dict[GroupKey, GroupResult]:
        """Results of all groups that were reached; nothing stays assumed."""
        table = self._whole.table
        table.refresh()
        undo: list[Undo] = []
        try:
            everywhere = Placement("", table.order_rows)
            result = await self._place(root, everywhere, undo)
            if result.status.is_success and not result.any_scheduled:
                result.verdict = Verdict(group_unschedulable())
            return self.results
        finally:
            _revert(undo)

    async def _place(self, node: GroupNode, within: Placement, undo: list[Undo]) -> GroupResult:
        if node.key.is_composite or self.by_topology:
            result = await self._place_by_topology(node, within, undo)
        else:
            result = await self._place_members(node, within, undo)
        self.results[node.key] = result
        return result

    # -- placements --------------------------------------------------------------------------------

    async def _place_by_topology(
        self, node: GroupNode, within: Placement, undo: list[Undo]
    ) -> GroupResult:
        """The best of the placements in which the group succeeds."""
        placements = self._placements(node, within)
        if isinstance(placements, Status):
            return GroupResult(node, Verdict(placements))
        metrics, profile = self.framework.handle.metrics, self.framework.profile_name
        if metrics is not None and not node.key.is_composite:
            metrics.generated_placements_total.labels(profile).inc(len(placements))
        tried: list[tuple[GroupResult, dict[GroupKey, GroupResult]]] = []
        found = self._place_side_by_side(node, placements) if len(placements) > 1 else {}
        for at, placement in enumerate(placements):
            outer, self.results = self.results, {}
            trial: list[Undo] = []
            try:
                result = found.get(at) or await self._try_placement(node, placement, trial)
                tried.append((result, self.results))
                self.trials.setdefault(node.key, []).append((placement, result))
                if at in found:
                    self._whole.next_start %= len(placement.rows)  # as if all were examined
            finally:
                _revert(trial)
                self.results = outer
            if result.status.code is Code.ERROR:
                self.results.update(tried[-1][1])
                return result
        best = self._best(node, placements, tried)
        if isinstance(best, Status):
            return GroupResult(node, Verdict(best))
        if best is None:
            first, below = tried[0]
            self.results.update(below)
            text = (
                f"0/{len(placements)} placements are available, "
                f"first placement status: {first.status.as_error()}"
            )
            return GroupResult(node, Verdict(group_unschedulable(text)), first.members)
        result, below = tried[best]
        self.results.update(below)
        if self.states.composites:
            self._assume_again(result, below, undo)
        return result

    def _placements(self, node: GroupNode, within: Placement) -> Sequence[Placement] | Status:
        if not self._generate:
            return [within]
        plugin = self._generate[0]
        try:
            placements = plugin.generate_placements(node, within)
            if isinstance(placements, Status):
                return placements
            if not all(isinstance(each, Placement) for each in placements):
                raise WrongAnswer(f"{plugin.name} must return placements")
        except Exception as error:  # a plugin may raise anything; it fails this cycle only
            return raised(f'running PlacementGenerate plugin "{plugin.name}": ', error)
        return placements or Status(Code.UNSCHEDULABLE, ("no feasible placements found",))

    async def _try_placement(
        self, node: GroupNode, placement: Placement, undo: list[Undo]
    ) -> GroupResult:
        if node.key.is_composite:
            return await self._place_children(node, placement, undo)
        started = self.framework.now()
        result = await self._place_members(node, placement, undo)
        self._evaluated(result, self.framework.now() - started)
        return result

    def _evaluated(self, result: GroupResult, seconds: float) -> None:
        metrics = self.framework.handle.metrics
        if metrics is not None and result.status.code is not Code.ERROR:
            word = "feasible" if result.status.is_success else "infeasible"
            labels = (word, self.framework.profile_name)
            metrics.placement_evaluations_total.labels(*labels).inc()
            metrics.placement_evaluation_duration_seconds.labels(*labels).observe(seconds)

    def _place_side_by_side(
        self, node: GroupNode, placements: Sequence[Placement]
    ) -> dict[int, GroupResult]:
        """Results by index of placements that take all members; others are to be tried."""
        framework, group, results = self.framework, self.states.state(node.key), {}
        algorithm, started = PlacementAlgorithm(self._whole, placements[0].rows), framework.now()
        if not node.members or group is None or self.cycle.with_extenders(algorithm) != algorithm:
            return {}
        count, scheduled = len(node.members), group.scheduled_count
        checks = [self._is_feasible(node, count - n, scheduled + n) for n in range(count + 1)]
        is_stopped = any(each.code in (Code.ERROR, Code.UNSCHEDULABLE) for each in checks)
        if is_stopped or not checks[-1].is_success:
            return {}
        members = [(info.pod_info, self._begin(info)) for info in node.members]
        found = place_side_by_side(framework, algorithm, members, placements)
        seconds = (framework.now() - started) / max(len(found), 1)
        for at, places in found.items():
            result = results[at] = GroupResult(node, Verdict(SUCCESS), any_scheduled=True)
            for info, (_, state), place in zip(node.members, members, places, strict=True):
                each = MemberResult(info, SUCCESS, state, place, seconds=seconds / count)
                result.members.append(each)
            self._evaluated(result, seconds)
        return results

    async def _place_children(
        self, node: GroupNode, placement: Placement, undo: list[Undo]
    ) -> GroupResult:
        remaining, scheduled = len(node.children), 0
        result = self._begin_group(node, remaining, scheduled)
        status = result.status
        if status.code in (Code.UNSCHEDULABLE, Code.ERROR):
            return result
        for child in node.children:
            below = await self._place(child, placement, undo)
            if below.status.code is Code.ERROR:
                text = "composite pod group evaluation failed due to child error: "
                result.verdict = Verdict(error_status(text + str(below.status.as_error())))
                return result
            remaining -= 1
            scheduled += below.status.is_success
            result.any_scheduled |= below.any_scheduled
            status = self._is_feasible(node, remaining, scheduled)
            result.verdict = Verdict(status)
            if status.code in (Code.UNSCHEDULABLE, Code.ERROR):
                return result
        if status.code is Code.WAIT:
            result.verdict = Verdict(group_unschedulable(*status.reasons))
        return result

    def _best(
        self,
        node: GroupNode,
        placements: Sequence[Placement],
        tried: Sequence[tuple[GroupResult, dict[GroupKey, GroupResult]]],
    ) -> int | Status | None:
        """The index of the best successful placement; None if there is none."""
        good = [at for at, (result, _) in enumerate(tried) if result.status.is_success]
        if len(good) < 2 or not self._score:
            return good[0] if good else None
        placed = [_placed_below(*tried[at]) for at in good]
        totals = [0] * len(good)
        for plugin in self._score:
            try:
                scores = _scores(plugin, node, [placements[at] for at in good], placed)
            except Exception as error:  # a plugin may raise anything; it fails this cycle only
                return raised(f'running PlacementScore plugin "{plugin.name}": ', error)
            if isinstance(scores, Status):
                return scores
            weight = self.framework.placement_score_weights.get(plugin.name, 1)
            for index, score in enumerate(scores):
                if not 0 <= score <= MAX_SCORE:
                    return error_status(
                        f'plugin "{plugin.name}" returns an invalid score {score}, '
                        f"it should in the range of [0, {MAX_SCORE}] after normalizing"
                    )
                totals[index] += weight * score
        top = max(totals)
        ties = [at for at, total in zip(good, totals, strict=True) if total == top]
        return ties[0] if len(ties) == 1 else ties[self.random.randrange(len(ties))]

    def _assume_again(
        self, result: GroupResult, below: dict[GroupKey, GroupResult], undo: list[Undo]
    ) -> None:
        """Sibling groups must see the members of the placement that was chosen."""
        for each in {id(each): each for each in (result, *below.values())}.values():
            for member in each.members:
                if member.result is not None and member.status.is_success:
                    self._assume(member.info, member.state, member.result, undo)

    # -- members -----------------------------------------------------------------------------------

    async def _place_members(
        self, node: GroupNode, placement: Placement, undo: list[Undo]
    ) -> GroupResult:
        """Try the members of a PodGroup in order, until it cannot succeed any more."""
        algorithm = self._whole
        if len(placement.rows) != algorithm.table.node_count:
            algorithm = PlacementAlgorithm(self._whole, placement.rows)
        state = self.states.state(node.key)
        if state is None:
            meta = node.group.metadata
            text = f"podGroup {meta.namespace}/{meta.name} to compute gang feasibility"
            missing = f"pod group state not found for pod group {node.key}"
            error = error_status(f"failed to get podGroup state for {text}: {missing}")
            return GroupResult(node, Verdict(error))
        remaining, scheduled = len(node.members), state.scheduled_count
        result = self._begin_group(node, remaining, scheduled)
        status = result.status
        if status.code in (Code.UNSCHEDULABLE, Code.ERROR):
            return result
        trial: list[Undo] = []
        undo.append(partial(_revert, trial))  # also if an extender's answer never comes
        for info in node.members:
            member = await self._try_member(info, algorithm, trial, result)
            result.members.append(member)
            if not member.status.is_success and not member.status.is_rejected:
                text = f"failed to schedule other pod from a pod group: {member.status.as_error()}"
                status = error_status(text)
                break
            remaining -= 1
            scheduled += member.status.is_success
            status = self._is_feasible(node, remaining, scheduled)
            if status.code in (Code.ERROR, Code.UNSCHEDULABLE):
                break
            result.any_scheduled |= member.status.is_success
        if status.code is Code.WAIT:
            status = group_unschedulable(*status.reasons)
        result.verdict = Verdict(status)
        self._whole.next_start = algorithm.next_start
        if not status.is_success:
            _revert(trial)
        return result

    def _begin(self, info: QueuedPodInfo) -> CycleState:
        state = CycleState()
        state.cycle, state.signature = self.scheduling_cycle, info.signature
        self.cycle.recall_nomination(info.pod_info)
        return state

    async def _try_member(
        self,
        info: QueuedPodInfo,
        algorithm: SchedulingAlgorithm,
        undo: list[Undo],
        group_trial: object,
    ) -> MemberResult:
        framework = self.framework
        started = framework.now()
        state = self._begin(info)
        state.group_trial = group_trial
        decided = self.cycle.with_extenders(algorithm).schedule(framework, state, info.pod_info)
        outcome = await decided if isinstance(decided, Awaitable) else decided
        self.shared.member_states[info.pod_info.uid] = state
        framework.algorithm_done(started)
        if isinstance(outcome, Status):
            member = MemberResult(info, _without_post_filter(outcome), state)
            if not isinstance(outcome.error, FitError):
                member.nomination = CLEAR_NOMINATION
        else:
            member = MemberResult(info, SUCCESS, state, outcome)
            refused = self._assume(info, state, outcome, undo)
            if refused is not None:
                member.status, member.result = refused, None
                member.nomination = CLEAR_NOMINATION
        member.seconds = framework.now() - started
        return member

    def _assume(
        self, info: QueuedPodInfo, state: CycleState, result: ScheduleResult, undo: list[Undo]
    ) -> Status | None:
        """Assume and reserve; the way back is added to `undo`."""
        framework = self.framework
        pod = info.pod_info.assumed_on(result.node_name)
        try:
            self.cache.assume_pod(pod)
        except CacheError as error:
            return error_status(error)
        self.nominator.delete_nominated_pod(pod.pod)

        def revert() -> None:
            run_unreserve(framework, state, pod.pod, result.node_name)
            self.cache.forget_pod(pod.pod)
            self.nominator.add_nominated_pod(info.pod_info, KEEP_NOMINATION)

        refused = run_reserve(framework, state, pod.pod, result.node_name)
        if refused is not None:
            revert()
            return as_one_node_failure(pod.key, result.node_name, refused)
        undo.append(revert)
        return None

    def _begin_group(self, node: GroupNode, remaining: int, scheduled: int) -> GroupResult:
        status = self._is_feasible(node, remaining, scheduled)
        if status.code is Code.UNSCHEDULABLE:
            status = group_unschedulable(*status.reasons)
        return GroupResult(node, Verdict(status))

    def _is_feasible(self, node: GroupNode, remaining: int, scheduled: int) -> Status:
        """Success, Wait, Unschedulable, or an Error if a plugin failed."""
        for plugin in self._feasible:
            started = self.framework.now()
            try:
                answer = plugin.placement_feasible(node, remaining, scheduled)
                status = as_status(plugin, answer) or SUCCESS
            except Exception as error:  # a plugin may raise anything; it fails this cycle only
                status = error_status(error)
            self.framework.point_done("PlacementFeasible", started, status)
            if status.is_success:
                continue
            if status.code in (Code.WAIT, Code.UNSCHEDULABLE):
                return status
            if status.code is Code.ERROR:
                text = f"running PlacementFeasible plugin: {status.as_error()}"
            else:
                name = status.code.upstream_name
                text = f"unexpected status from PlacementFeasible plugin: {name}"
            return error_status(f"failed to evaluate placement feasibility: {text}")
        return SUCCESS


def _revert(undo: list[Undo]) -> None:
    while undo:
        undo.pop()()


def _without_post_filter(status: Status) -> Status:
    """Members fail without PostFilter, also where a single pod of their class had one."""
    error = status.error
    if not isinstance(error, FitError) or not error.diagnosis.post_filter_msg:
        return status
    diagnosis = error.diagnosis.copy()
    diagnosis.post_filter_msg = ""
    return Status(status.code, error=FitError(error.pod_key, error.node_count, diagnosis))


def _placed_below(result: GroupResult, below: dict[GroupKey, GroupResult]) -> list[PlacedPod]:
    each = {id(each): each for each in (result, *below.values())}.values()
    return [placed for one in each for placed in one.placed()]


def _scores(
    plugin: PlacementScorePlugin,
    node: GroupNode,
    placements: Sequence[Placement],
    placed: Sequence[Sequence[PlacedPod]],
) -> Sequence[int] | Status:
    raw: list[int] = []
    for placement, pods in zip(placements, placed, strict=True):
        score = plugin.score_placement(node, placement, pods)
        if isinstance(score, Status):
            return _score_error("running PlacementScore plugins", plugin.name, score)
        raw.append(score)
    scores = plugin.normalize_placement_scores(raw)
    if isinstance(scores, Status):
        where = "running NormalizePlacementScore on PlacementScore plugins"
        return _score_error(where, plugin.name, scores)
    if len(scores) != len(raw) or not all(isinstance(each, Integral) for each in (*raw, *scores)):
        raise WrongAnswer(f"{plugin.name} must return one integer score for each placement")
    return scores


def _score_error(where: str, plugin: str, status: Status) -> Status:
    return error_status(f'{where}: plugin "{plugin}" failed with: {status.as_error()}')
