"""Checks every placement, preemption and pop at the moment it is decided.

The reference is `rules`, applied to the scheduler's knowledge at that moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.api.host_ports import HostPort
from kubesched.api.names import key_of
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.api.storage_v1 import CSINode
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.groups.states import group_of
from kubesched.framework.groups.tree import GroupCycle, GroupNode, Nominations, PlaceGroup
from kubesched.framework.handle import Handle, Lister
from kubesched.framework.interfaces import PostFilterAnswer, ReservePlugin
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.ports import HostPortIndex
from kubesched.framework.preemption.candidates import Candidate
from kubesched.framework.preemption.executor import Executor, OnBehalfOf
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.status import Code, NodeToStatus, Status
from kubesched.insight.state.virtual_loop import OWNER
from kubesched.lab.simulation.extenders import ExtenderVerdicts
from kubesched.lab.simulation.rules import State, objection
from kubesched.lab.simulation.victims import (
    Budget,
    all_fit,
    fits_without_victims,
    priority_of,
    spareable,
    spareable_by_group,
    units,
    violations,
)
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.plugins.default_preemption import DefaultPreemption
from kubesched.scheduler.groups.group_queue import GroupSchedulingQueue
from kubesched.scheduler.groups.queued_group import QueuedGroup
from kubesched.scheduler.queue.scheduling_queue import SchedulingQueue

AUDITOR: Final = "SimulationAuditor"
UNKNOWN_COST: Final = 1_000
"""More than any number of victims."""
MAX_ATTEMPTS_AT_ONE_INSTANT: Final = 100

Complain = Callable[[str, str], None]
"""(property, detail)"""


Decisions = dict[tuple[str, str, str], frozenset[str]]
"""(process, pod UID, node name) -> UIDs of the pods its watch had shown there at the choice."""

Attempts = dict[tuple[str, str, str], list[str]]
"""(process, pod UID, claim name) -> UIDs of the claims used in its attempts, in order."""


class Auditing(ReservePlugin):
    """The Reserve plugin that `make_auditor` makes."""

    def audit(self, pod: Pod, node_name: str, *, is_judged: bool = True) -> None:
        raise NotImplementedError


def make_auditor(
    complain: Complain, verdicts: ExtenderVerdicts, decisions: Decisions
) -> type[Auditing]:
    """A Reserve plugin that checks every decision and adds it to `decisions`.

    It sees the state that the decision was based on, and the extender's answer. What is reserved
    for members of groups may be a trial.
    """

    class Auditor(Auditing):
        name = AUDITOR

        def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
            if group_of(pod) is None:
                self.audit(pod, node_name)
            return None

        def audit(self, pod: Pod, node_name: str, *, is_judged: bool = True) -> None:
            known = known_state(self.handle, without=pod)
            counted = (other["metadata"]["uid"] for other in known.pods_on(node_name))
            decisions[OWNER.get(), pod.metadata.uid, node_name] = shown_on(
                self.handle, node_name
            ).intersection(counted)
            # Claims and volumes may change while an extender is awaited; `checkers` verify them at
            # the binding.
            why = objection(
                to_json(pod),
                node_name,
                known,
                asks_for_volumes=not self.handle.extenders,
            )
            if why is not None and is_judged:
                complain(
                    "rules hold at every decision",
                    f"pod {key_of(pod.metadata)} goes to {node_name}: {why}",
                )
            allowed = verdicts.get((OWNER.get(), pod.metadata.uid))
            if allowed is not None and node_name not in allowed:
                complain(
                    "no node is chosen against the extender",
                    f"pod {key_of(pod.metadata)} goes to {node_name}, of {allowed}",
                )

        def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
            """No-op."""

    return Auditor


class SilentAuditor(ReservePlugin):
    """Replaces the simulation's auditor, which makes no decisions, in replays and second looks."""

    name = AUDITOR

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        return None

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Does nothing: nothing was reserved."""


def make_audited_preemption(complain: Complain) -> type[DefaultPreemption]:
    """The production plugin, with its choice of a node compared with all others."""

    class AuditedExecutor(Executor):
        judge: Callable[[Candidate, Pod], None]
        victims_of_group: Sequence[Pod] = ()

        def start_for(self, candidate: Candidate, preemptor: OnBehalfOf) -> None:
            if preemptor.related is not None:
                self.victims_of_group = candidate.victims.pods
            super().start_for(candidate, preemptor)

        def start(self, candidate: Candidate, preemptor: Pod) -> None:
            if not self.is_rehearsing:
                self.judge(candidate, preemptor)
            super().start(candidate, preemptor)

        async def delete(self, victim: Pod, preemptor: OnBehalfOf) -> bool:
            if victim.metadata.deletion_timestamp is not None:
                complain("no victim is evicted twice", key_of(victim.metadata))
            return await super().delete(victim, preemptor)

    class AuditedPreemption(DefaultPreemption):
        answers_per_class = True
        executor_type = AuditedExecutor

        def __init__(self, args: Any, handle: Handle) -> None:  # noqa: ANN401  # the plugin's own arguments
            super().__init__(args, handle)
            assert isinstance(self.evaluator.executor, AuditedExecutor)
            self._executor = self.evaluator.executor
            self._executor.judge = self._judge_victims

        async def pod_group_post_filter(
            self, cycle: GroupCycle, group: GroupNode, place: PlaceGroup
        ) -> tuple[Nominations | None, Status]:
            self._executor.victims_of_group = ()
            nominations, status = await super().pod_group_post_filter(cycle, group, place)
            if self._executor.victims_of_group:
                placed = [
                    (info.pod_info.pod, (nominations or {})[info.pod_info.uid].node_name)
                    for info in group.all_members()
                    if info.pod_info.uid in (nominations or {})
                ]
                self._judge_group(group, placed, self._executor.victims_of_group)
            return nominations, status

        def _judge_group(
            self, group: GroupNode, placed: Sequence[tuple[Pod, str]], victims: Sequence[Pod]
        ) -> None:
            """Check that a group's victims are allowed, and necessary for where it is to go."""
            groups, name = known_groups(self.handle), str(group.key)
            state = known_state(self.handle, without=placed[0][0])
            uids = [victim.metadata.uid for victim in victims]
            for victim in map(to_json, victims):
                if priority_of(victim, groups) >= group.priority:
                    complain(
                        "only pods of lower priority are evicted",
                        f"{name} preempts {victim['metadata']['name']}",
                    )
            self._judge_units(state, uids)
            # Upstream: terms of pods that are reprieved are not noticed if there were none before.
            has_terms = any(pod["spec"].get("affinity") for pod, _node in state.placed)
            if has_terms or not all(is_plain(pod) for pod, _node in placed):
                return
            members = [(to_json(pod), node) for pod, node in placed]
            own = {pod["metadata"]["uid"] for pod, _node in members}
            nominated = [
                (pod, node)
                for pod, node in self._nominated(placed[0][0])
                if pod["metadata"]["uid"] not in own
            ]
            if not all_fit(members, state.without(map(to_json, victims))):
                complain("preemption makes room where it says", f"{name} does not fit")
            spared = spareable_by_group(members, state, nominated, uids, groups)
            if spared is not None:
                complain("no pod is evicted without need", f"{name} would fit beside {spared}")

        def _judge_units(self, state: State, uids: Sequence[str]) -> None:
            for unit in units(state.placed, known_groups(self.handle)):
                if len({pod["metadata"]["uid"] in uids for pod, _node in unit}) > 1:
                    complain(
                        "a group that is disrupted as a whole goes as a whole",
                        f"of {unit[0][0]['spec']['schedulingGroup']} {uids} are evicted",
                    )

        def _judge_victims(self, candidate: Candidate, preemptor: Pod) -> None:
            """Check that the victims are allowed and necessary."""
            victims, name = candidate.victims.pods, key_of(preemptor.metadata)
            for victim in victims:
                if (victim.spec.priority or 0) >= (preemptor.spec.priority or 0):
                    complain(
                        "only pods of lower priority are evicted",
                        f"pod {name} preempts {key_of(victim.metadata)}",
                    )
            state = known_state(self.handle, without=preemptor)
            uids = [victim.metadata.uid for victim in victims]
            self._judge_units(state, uids)
            if self.handle.extenders or not is_plain(preemptor):
                return  # extenders choose freely; affinity can need more than room
            spared = spareable(
                to_json(preemptor),
                candidate.node_name,
                state,
                self._nominated(preemptor),
                uids,
                known_groups(self.handle),
            )
            if spared is not None:
                complain(
                    "no pod is evicted without need",
                    f"pod {name} would fit on {candidate.node_name} beside {spared}",
                )

        def post_filter(
            self, state: CycleState, pod: Pod, statuses: NodeToStatus
        ) -> PostFilterAnswer | Awaitable[PostFilterAnswer]:
            answer = super().post_filter(state, pod, statuses)
            if isinstance(answer, tuple):  # else an extender decides
                self._judge(pod, statuses, answer)
            return answer

        def _judge(self, pod: Pod, statuses: NodeToStatus, answer: PostFilterAnswer) -> None:
            result, status = answer
            if result is None or not (status is None or status.is_success):
                return
            nomination = result.nominating_info
            if nomination is None or not nomination.node_name:
                return
            if pod.spec.resource_claims or _has_large_units(self.handle):
                return  # `rules` do not know devices, nor what goes together
            chosen, costs = nomination.node_name, self._costs(pod, statuses)
            if chosen not in costs:
                complain(
                    "preemption makes room where it says",
                    f"pod {key_of(pod.metadata)} does not fit on {chosen} whoever goes",
                )
            elif costs[chosen][0] > min(most for _least, most in costs.values()):
                complain(
                    "no disruption budget is violated without need",
                    f"pod {key_of(pod.metadata)} preempts on {chosen}; violations by node: {costs}",
                )

        def _costs(self, pod: Pod, statuses: NodeToStatus) -> dict[str, tuple[int, int]]:
            """Minimum and maximum violations for every node where preemption would help."""
            wanted, state = to_json(pod), known_state(self.handle, without=pod)
            nominated = self._nominated(pod)
            budgets = known_budgets(self.handle)
            costs = {}
            for name in state.nodes:
                if statuses.get(name).code is not Code.UNSCHEDULABLE:
                    continue
                if _miscounts(pod, state.pods_on(name)):
                    costs[name] = (0, UNKNOWN_COST)
                    continue
                if fits_without_victims(wanted, name, state, nominated):  # rejected by the extender
                    continue
                alone = violations(wanted, name, state, (), budgets)
                # Upstream: affinity of nominated pods counts only if some placed pod has affinity,
                # too.
                crowded = violations(wanted, name, state, nominated, budgets)
                if alone is not None:
                    costs[name] = (
                        alone[0],
                        UNKNOWN_COST if crowded is None else max(alone[1], crowded[1]),
                    )
            return costs

        def _nominated(self, pod: Pod) -> list[tuple[JsonObject, str]]:
            nominator, table = self.handle.nominator, self.handle.table
            if nominator is None:
                return []
            return [
                (to_json(info.pod), name)
                for name in table.row_of
                for info in nominator.nominated_pods_for_node(name)
                if info.uid != pod.metadata.uid
            ]

    return AuditedPreemption


def is_plain(pod: Pod) -> bool:
    """Whether the pod can only lack resources."""
    spec = pod.spec
    return not (
        spec.affinity or spec.topology_spread_constraints or spec.volumes or spec.resource_claims
    )


def _miscounts(pod: Pod, there: Iterable[JsonObject]) -> bool:
    """Upstream: spread constraints ignore a terminating pod, but subtract it as a victim."""
    return bool(pod.spec.topology_spread_constraints) and any(
        other["metadata"].get("deletionTimestamp") for other in there
    )


def audit_pops(
    queue: SchedulingQueue,
    complain: Complain,
    note_attempt: Callable[[Pod], None],
    now: Callable[[], float],
) -> None:
    """Check pop order: no ready pod has higher priority, or the same and is older.

    Notes every pop as the start of an attempt. What is tried without end while no time passes is
    not popped any more, so that the complaint is heard.
    """
    groups = queue if isinstance(queue, GroupSchedulingQueue) else None
    pop = queue.pop if groups is None else groups.pop_entity
    tried: Counter[object] = Counter()
    tried_at = -1.0

    def audited() -> QueuedPodInfo | QueuedGroup | None:
        nonlocal tried_at
        popped = pop()
        if popped is not None:
            if now() != tried_at:
                tried_at = now()
                tried.clear()
            key = popped.root if isinstance(popped, QueuedGroup) else popped.pod_info.uid
            tried[key] += 1
            if tried[key] > MAX_ATTEMPTS_AT_ONE_INSTANT:
                complain("the world goes on", f"{popped} is tried again and again at one instant")
                return None
            ready: list[QueuedPodInfo | QueuedGroup] = [
                info
                for pod in queue.pods_in_active_q()
                if (info := queue.get_pod(*_names(pod))) is not None and not _is_member(info)
            ]
            ready += () if groups is None else groups.active_groups()
            first = min(ready, key=_rank, default=popped)
            if _rank(first) < _rank(popped):
                complain("the most important pod is tried first", f"{popped} before {first}")
            for info in popped if isinstance(popped, QueuedGroup) else (popped,):
                note_attempt(info.pod_info.pod)
        return popped

    setattr(queue, "pop" if groups is None else "pop_entity", audited)  # only of this queue


def note_claims(
    attempts: Attempts, process: str, claims: Lister[PersistentVolumeClaim], pod: Pod
) -> None:
    """Add the claims known when an attempt starts; they may be replaced while it waits."""
    for volume in pod.spec.volumes or ():
        source = volume.persistent_volume_claim
        claim = claims.get(pod.metadata.namespace, source.claim_name) if source else None
        if claim is None:
            continue
        tried = attempts.setdefault((process, pod.metadata.uid, claim.metadata.name), [])
        if tried[-1:] != [claim.metadata.uid]:
            tried.append(claim.metadata.uid)


def _rank(info: QueuedPodInfo | QueuedGroup) -> tuple[int, float]:
    if isinstance(info, QueuedGroup):
        return -info.priority, info.timestamp
    return -(info.pod_info.pod.spec.priority or 0), info.timestamp


def _is_member(info: QueuedPodInfo) -> bool:
    return group_of(info.pod_info.pod) is not None


def _names(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name


def known_state(handle: Handle, *, without: Pod) -> State:
    """The scheduler's knowledge as plain objects."""
    table = handle.table
    nodes = {
        name: to_json(node)
        for name, row in table.row_of.items()
        if (node := table.nodes[row]) is not None
    }
    placed = tuple(
        (to_json(info.pod), info.pod.spec.node_name)
        for _row, info in table.all_pods()
        if info.uid != without.metadata.uid
    )
    state = State(nodes, placed, blurred_ports=_blurred_ports(table))
    listers = handle.listers
    assert listers is not None, "a scheduler has listers"
    claims = listers.of(PersistentVolumeClaim).list()
    if not claims:
        return state
    return replace(
        state,
        claims=_by_name(claims),
        volumes=_by_name(listers.of(PersistentVolume).list()),
        attachable=_attachable(listers.of(CSINode).list()),
    )


def shown_on(handle: Handle, node_name: str) -> frozenset[str]:
    """UIDs of the pods that the watch has shown on a node, without assumed pods."""
    assert handle.listers is not None, "a scheduler has listers"
    pods = handle.listers.of(Pod).list()
    return frozenset(pod.metadata.uid for pod in pods if pod.spec.node_name == node_name)


class WatchedPorts(HostPortIndex):
    """The production index; also remembers ports that two pods shared until one was removed."""

    def __init__(self) -> None:
        super().__init__()
        self._shared: set[tuple[int, int]] = set()
        self.blurred: dict[int, set[int]] = {}
        """Port numbers by row."""

    def add(self, row: int, ports: Iterable[HostPort]) -> None:
        self._shared.update((row, port.port) for port in ports if self.is_taken(row, port))
        super().add(row, ports)

    def remove(self, row: int, ports: Iterable[HostPort]) -> None:
        for port in ports:
            if (row, port.port) in self._shared:
                self.blurred.setdefault(row, set()).add(port.port)
        super().remove(row, ports)


def watch_ports(table: NodeTable) -> None:
    """Must be called while the table is empty."""
    assert not table.row_of, "ports taken before are not known"
    table.ports = WatchedPorts()


def _blurred_ports(table: NodeTable) -> dict[str, frozenset[int]]:
    ports = table.ports
    assert isinstance(ports, WatchedPorts), "the ports of every simulated scheduler are watched"
    return {table.names[row]: frozenset(numbers) for row, numbers in ports.blurred.items()}


def known_groups(handle: Handle) -> dict[str, JsonObject]:
    assert handle.listers is not None, "a scheduler has listers"
    return _by_name(handle.listers.of(PodGroup).list()) if handle.groups is not None else {}


def _has_large_units(handle: Handle) -> bool:
    placed = [(to_json(info.pod), "") for _row, info in handle.table.all_pods()]
    return handle.groups is not None and any(
        len(unit) > 1 for unit in units(placed, known_groups(handle))
    )


def known_budgets(handle: Handle) -> list[Budget]:
    assert handle.listers is not None, "a scheduler has listers"
    return [Budget.of(to_json(budget)) for budget in handle.listers.of(PodDisruptionBudget).list()]


def _by_name(records: Iterable[Any]) -> dict[str, JsonObject]:
    return {record.metadata.name: to_json(record) for record in records}


def _attachable(csi_nodes: Iterable[CSINode]) -> dict[str, int]:
    limits = {}
    for csi_node in csi_nodes:
        for driver in csi_node.spec.drivers or ():
            if driver.allocatable is not None and driver.allocatable.count is not None:
                limits[csi_node.metadata.name] = driver.allocatable.count
    return limits


def to_json(obj: Any) -> JsonObject:  # noqa: ANN401  # any record
    plain: JsonObject = msgspec.to_builtins(obj)
    plain.setdefault("spec", {})
    return plain
