"""Every decision is made a second time, by a fresh scheduler core, and has to be the same.

The core is built for one decision from the informers' stores and from what the scheduler has
promised since: assumed pods, nominations, assumed volumes and claims, devices in flight. Of the
live tables it takes only how nodes are numbered and ordered, so that the same random numbers break
ties in the same way. It evaluates the pod in full, without classes. So a stale column, a kept
answer, an index, a counter or an assumption shows up, whatever the cause.

Extenders answer the core as they answered the scheduler, if it asks about the same nodes, and what
could not be read for a question cannot be read again.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import fields
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

import numpy as np

from kubesched.api.core_v1 import Namespace, Node, Pod
from kubesched.api.names import key_of
from kubesched.api.scheduling_v1alpha3 import CompositePodGroup
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.base.clock import Clock
from kubesched.base.errors import KubeschedError
from kubesched.client.transport import Request, Response
from kubesched.config.features import FeatureGates
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.diagnosis import Failed, FitError
from kubesched.framework.groups.states import GroupKey, GroupStates
from kubesched.framework.groups.tree import GroupNode
from kubesched.framework.handle import Listers
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.saved_table import SavedTable
from kubesched.framework.preemption.candidates import Candidate
from kubesched.framework.preemption.executor import OnBehalfOf, rehearse
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.registry import Registry
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.maybe_async import then
from kubesched.framework.status import Code, Status
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.memory import (
    InMemoryScheduler,
    KeptObjects,
    PretendingClient,
    in_memory_scheduler,
    state_of_listers,
)
from kubesched.lab.simulation.audit import Complain, WatchedPorts
from kubesched.lab.simulation.extenders import Said, subject
from kubesched.lab.simulation.placeable import OTHER_KINDS
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.plugins.dynamic_resources.claim_tracker import ClaimTracker
from kubesched.plugins.dynamic_resources.plugin import STATE as DEVICES
from kubesched.plugins.dynamic_resources.structured.allocated_state import holds_the_same
from kubesched.plugins.volume_binding import VolumeBinding
from kubesched.plugins.volume_binding.assume_cache import AssumeCache
from kubesched.plugins.volume_binding.plugin import STATE as VOLUMES
from kubesched.scheduler.algorithm import SchedulingAlgorithm
from kubesched.scheduler.classes import Best
from kubesched.scheduler.factory import Assembly
from kubesched.scheduler.groups.conditions import wish_of
from kubesched.scheduler.groups.group_cycle import GroupCycles, GroupRejected, Results, failure_of
from kubesched.scheduler.groups.parts import GroupScheduler
from kubesched.scheduler.groups.queued_group import QueuedGroup
from kubesched.scheduler.http_extender import make_extenders
from kubesched.scheduler.scheduling_cycle import Assumed, SchedulingCycle

PROMISE: Final = "every decision is that of a fresh scheduler"
UNRESOLVABLE: Final = Code.UNSCHEDULABLE_AND_UNRESOLVABLE.name
ALL: Final = 25
"""Decisions of a process that are all compared."""

DEFAULT: Final = "default-scheduler"

Members = dict[GroupKey, list[Pod]]
"""By PodGroup, in the order in which they are tried."""
Core = InMemoryScheduler
"""A fresh scheduler, for one decision."""


class Decided(NamedTuple):
    """All that is compared of a decision."""

    counts: tuple[int, int] = (0, 0)
    """Feasible and evaluated nodes."""
    behind: dict[str, int] | None = None
    """How many points each feasible node has less than the best, if there was a choice."""
    node: str = ""
    reserved: object = None
    """Devices and volumes."""
    rejected: tuple[dict[str, tuple[str, str, list[str]]], list[str], list[str]] | None = None
    """Verdicts by node, and the plugins behind them."""
    message: str = ""
    nomination: object = None
    """None if a request of PostFilter failed, with which it cannot be compared any further."""
    victims: object = None

    def difference(self, other: Decided) -> str:
        """Where two decisions about a pod differ; empty if they do not."""
        compared = self._fields if self.nomination or self.node else ("counts", "rejected")
        for name in compared:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs and not (name == "behind" and None in (mine, theirs)):
                return f"{name}: {mine}, of a fresh scheduler: {theirs}"
        return ""

    def misheard(self, answers: Iterable[bytes]) -> str:
        """A verdict that is not what the extender said of the node; empty if there is none."""
        verdicts = {} if self.rejected is None else self.rejected[0]
        for answer in answers:
            try:
                said = json.loads(answer)
                lasting = said["FailedAndUnresolvableNodes"]
                passing = said["FailedNodes"].keys() - lasting.keys()
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue  # nonsense
            for names, code in ((lasting, UNRESOLVABLE), (passing, Code.UNSCHEDULABLE.name)):
                for name in names:
                    if name in verdicts and verdicts[name][0] != code:
                        return f"{name}: {verdicts[name]}, and the extender said {code}"
        return ""


def is_due(number: int, nodes: int, pods: int) -> bool:
    """Whether this decision of a process is compared: fewer in large worlds, where they cost more.

    With up to seven nodes and 63 pods, all of them are.
    """
    return number <= ALL or number % max(1, nodes // 4, pods // 32) == 0


class SecondLook:
    """Makes the decisions of one scheduler a second time."""

    def __init__(
        self,
        live: Assembly,
        listers: Listers,
        config: KubeSchedulerConfiguration,
        gates: FeatureGates,
        registry: Registry,
        clock: Clock,
        complain: Complain,
        said: Callable[[], Said],
        mischief: Callable[[], int] = lambda: 0,
    ) -> None:
        """`registry` has honest plugins. `said` starts a new list of an extender's answers.

        `mischief` counts what a plugin did at random: then there is nothing to compare.
        """
        self._live = live
        self._listers = listers
        self._config, self._gates, self._registry, self._clock = config, gates, registry, clock
        self._complain, self._said, self._mischief = complain, said, mischief
        self._struck = 0
        self.candidates: list[Candidate] = []
        """Whose victims the scheduler evicts in this attempt."""
        self._echo = Echo([])
        self.count = self.compared = 0
        self._last: Core | None = None

    def watch(self) -> None:
        """Compare from now on."""
        scheduler = self._live.scheduler
        if not self._is_recorded:  # nothing else draws while an extender is awaited
            scheduler.queue._transitions.pre_enqueue._random = Random(0)
        cycle = scheduler.cycle
        watched = WatchedCycle(*(getattr(cycle, field.name) for field in fields(cycle)))
        watched.look = self
        scheduler.cycle = watched
        if isinstance(scheduler, GroupScheduler):
            groups = scheduler.groups
            seen = WatchedGroupCycles(
                **{it.name: getattr(groups, it.name) for it in fields(groups) if it.init}
            )
            seen.look = self
            scheduler.groups = seen
        for framework in self._live.frameworks.values():
            for plugin in framework.post_filter:
                executor = getattr(getattr(plugin, "evaluator", None), "executor", None)
                if executor is not None:
                    executor.start_for = partial(self._start, executor.start_for)
                    executor.delete = partial(self._delete, executor.delete)
        for extender in getattr(cycle._extended, "_extenders", ()):
            extender._arguments = partial(self._arguments, extender._arguments)

    def _start(
        self, start: Callable[..., None], candidate: Candidate, preemptor: OnBehalfOf
    ) -> None:
        self.candidates.append(candidate)
        start(candidate, preemptor)

    def _delete(
        self, delete: Callable[..., Awaitable[bool]], victim: Pod, preemptor: OnBehalfOf
    ) -> Awaitable[bool]:
        if victim.metadata.deletion_timestamp is not None:
            self._complain("no victim is evicted twice", key_of(victim.metadata))
        return delete(victim, preemptor)

    async def _arguments(
        self, read: Callable[..., Awaitable[JsonObject]], pod: Pod, nodes: Sequence[Node]
    ) -> JsonObject:
        """What an extender is told. The core must not read what could not be read here.

        # Upstream: after a failure while the nominated node is tried, all nodes are searched.
        """
        try:
            return await read(pod, nodes)
        except KubeschedError as error:
            self._echo.said.append(("", pod.metadata.uid, error))
            raise

    @property
    def _is_recorded(self) -> bool:
        return self._live.scheduler._flight is not None

    # -- one decision ------------------------------------------------------------------------------

    def decide(
        self,
        run: Callable[[], Assumed | Failed | Awaitable[Assumed | Failed]],
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
    ) -> Assumed | Failed | Awaitable[Assumed | Failed]:
        """Run an attempt and compare its outcome."""
        core = self._begin()
        if core is None:
            return run()
        tried, self._live.scheduler.cycle.algorithm.ranking = pod.pod, None
        return then(run(), self._compare, core, framework.profile_name, state, tried)

    def _begin(self) -> Core | None:
        """A core for an attempt that begins; None if it is not compared."""
        self._echo = Echo(self._said())
        self.count += 1
        self._struck, self.candidates = self._mischief(), []
        pods = len(self._listers.of(Pod).list())
        if not is_due(self.count, self._live.table.node_count, pods) or (
            self._config.extenders and self._is_recorded
        ):
            return None
        if len(self._live.scheduler.event_gate):
            return None  # parked events: the stores are ahead of the tables
        return self.core()

    def _compare(
        self,
        core: Core,
        profile: str,
        state: CycleState,
        pod: Pod,
        outcome: Assumed | Failed,
    ) -> Assumed | Failed | Awaitable[Assumed | Failed]:
        if self._may_differ(core):
            return outcome
        name = pod.metadata.namespace, pod.metadata.name
        if isinstance(outcome, Failed) and self._listers.of(Pod).get(*name) is not (
            core.listers.of(Pod).get(*name)
        ):
            return outcome  # Upstream: PostFilter reads the pod anew, whose events are parked.
        mine = decided(self._live.scheduler.cycle.algorithm, state, outcome, self.candidates)
        again = decide_again(core, profile, pod)
        return then(again, self._say, pod, mine, outcome)

    def _say(
        self, pod: Pod, mine: Decided, outcome: Assumed | Failed, again: Decided
    ) -> Assumed | Failed:
        if isinstance(outcome, Failed) and not self._echo.has_more_to_say:
            return outcome  # the extender was not asked, since a victim could not be read
        self.compared += 1
        why = mine.difference(again) or mine.misheard(self._echo.heard)
        if why:
            self._complain(PROMISE, f"pod {key_of(pod.metadata)}: {why}")
        return outcome

    # -- one group ---------------------------------------------------------------------------------

    async def decide_group(
        self, run: Callable[[], Awaitable[tuple[Results, Status]]], root: GroupNode
    ) -> tuple[Results, Status]:
        """Run the decision about a group and compare its outcome."""
        core = self._begin()
        if core is None:
            return await run()
        members = _members(root)
        results, status = await run()
        if self._may_differ(core):
            return results, status
        mine = decided_group(root, results, self.candidates)
        again = await decide_group_again(core, root.key, members)
        self.compared += 1
        for name in sorted(mine.keys() | again.keys()):
            if mine.get(name) != again.get(name):
                self._complain(
                    PROMISE,
                    f"{root.key}: {name}: {mine.get(name)}, "
                    f"of a fresh scheduler: {again.get(name)}",
                )
                break
        return results, status

    # -- the core ----------------------------------------------------------------------------------

    def _may_differ(self, core: Core) -> bool:
        """Whether a plugin did something at random in this attempt, or claims or volumes changed.

        # Upstream: Reserve reads them anew (`AssumePodVolumes`); their events are not parked.
        """
        return self._mischief() != self._struck or (
            bool(self._config.extenders)
            and any(
                set(map(id, self._listers.of(kind).list()))
                != set(map(id, core.listers.of(kind).list()))
                for kind in OTHER_KINDS
            )
        )

    def core(self) -> Core | None:
        """A scheduler that knows what this one should know; None, with a complaint, if it cannot.

        Assumed pods and nominations are read from their lists, not from what follows from them.
        """
        live, listers, echo = self._live, self._listers, self._echo
        random, drawn = Random(), live.scheduler.cycle.algorithm.random
        made = in_memory_scheduler(
            ClusterState("stores"),
            self._config,
            gates=self._gates,
            registry=self._registry,
            client=PretendingClient(),
            clock=self._clock,
            random=random,
            classes=False,
            extenders=lambda configured, table: make_extenders(configured, echo, table, echo),
            metrics=self._last.assembly.scheduler.metrics if self._last else None,
        )
        self._last = made
        core = made.assembly
        for obj in state_of_listers("stores", listers):
            made.listers.put(obj)
        for namespace in listers.of(Namespace).list():
            core.handlers.namespace_changed(namespace)
        if not self._place_nodes(core.table):
            return None
        groups = core.frameworks[DEFAULT].handle.groups
        if groups is not None:
            self._place_groups(groups)
        self._place_pods(core)
        if groups is not None:
            self._order_members(groups)
        queue, waiting = core.scheduler.queue, live.scheduler.queue
        queue.nominator.find_queued = partial(_anew, waiting.nominator.find_queued)
        queue.nominator.restore(waiting.nominator.references())
        core.scheduler.cycle.algorithm.next_start = live.scheduler.cycle.algorithm.next_start
        for name, framework in live.frameworks.items():
            _share_promises(framework, core.frameworks[name])
        random.setstate(drawn.getstate())
        return made

    def _place_nodes(self, table: NodeTable) -> bool:
        nodes = {node.metadata.name: node for node in self._listers.of(Node).list()}
        numbered = SavedTable.of(self._live.table)
        strange = nodes.keys() ^ {name for name in numbered.rows if name}
        if strange:
            self._complain(PROMISE, f"nodes: {sorted(strange)} are in the stores or in the table")
            return False
        numbered.place_nodes(table, nodes)
        table.order._listed = self._live.table.order.rows()  # zone moves alone do not show
        return True

    @property
    def _groups(self) -> GroupStates:
        states = self._live.frameworks[DEFAULT].handle.groups
        assert states is not None, "a core has the gates of its scheduler"
        return states

    def _place_groups(self, states: GroupStates) -> None:
        """Groups and the pods that wait; those with a node are placed like all others."""
        for kind in (CompositePodGroup, PodGroup) if states.composites else (PodGroup,):
            for group in self._listers.of(kind).list():
                states.put(group)
        for pod in self._listers.of(Pod).list():
            if not pod.spec.node_name and pod.spec.scheduler_name in self._live.frameworks:
                states.pod_waits(pod)

    def _order_members(self, states: GroupStates) -> None:
        """Of units that are alike, the one that was known first is evicted first."""
        order = {key: place for place, key in enumerate(self._groups._states)}
        known = sorted(states._states.items(), key=lambda item: order.get(item[0], len(order)))
        states._states = dict(known)
        for key, state in known:
            live = self._groups.state(key)
            uids = list(live.pods) if live is not None else []
            state.pods = {uid: state.pods[uid] for uid in uids if uid in state.pods} | state.pods
            state.gone = set() if live is None else live.gone & state.assumed

    def _place_pods(self, core: Assembly) -> None:
        live = self._live
        ranks = {info.uid: rank for rank, (_row, info) in enumerate(live.table.all_pods())}
        by_uid = {pod.metadata.uid: pod for pod in self._listers.of(Pod).list()}
        assumed = {info.uid: info.pod for info in live.scheduler.cache.assumed_pods()}
        # Upstream: a deleted pod keeps its room until its binding cycle has ended.
        pods = list((assumed | by_uid).values())
        pods.sort(key=lambda pod: ranks.get(pod.metadata.uid, len(ranks)))
        for pod in pods:
            promised = assumed.get(pod.metadata.uid)
            if promised is not None:
                core.scheduler.cache.assume_pod(PodInfo(promised))
            elif pod.spec.node_name:
                core.handlers.pod_added(pod)
        ports = live.table.ports
        if isinstance(ports, WatchedPorts) and ports.blurred:
            core.table.ports.restore(ports.save())
        core.table.images.restore_sizes(live.table.images.sizes())


class WatchedCycle(SchedulingCycle):
    """The production cycle, with a second look at every decision."""

    look: SecondLook

    def run(
        self, framework: Framework, state: CycleState, info: QueuedPodInfo, started: float
    ) -> Assumed | Failed | Awaitable[Assumed | Failed]:
        self.recall_nomination(info.pod_info)
        run = partial(super().run, framework, state, info, started)
        return self.look.decide(run, framework, state, info.pod_info)


class WatchedGroupCycles(GroupCycles):
    """The production cycle of groups, with a second look at every decision."""

    look: SecondLook

    async def decide(
        self, framework: Framework, root: GroupNode, started: float
    ) -> tuple[Results, Status]:
        run = partial(super().decide, framework, root, started)
        return await self.look.decide_group(run, root)


class Echo(KeptObjects):
    """An extender that says again what it said, and the objects that can be read for it."""

    def __init__(self, said: Said) -> None:
        self.said = said
        self.has_more_to_say = True
        self.heard: list[bytes] = []
        """Answers about feasible nodes."""

    async def pod(self, pod: Pod) -> JsonObject:
        _verb, about, answer = self.said[0] if self.said else ("", "", None)
        if about == pod.metadata.uid and isinstance(answer, Exception):
            del self.said[0]
            raise answer
        return await super().pod(pod)

    async def request(self, request: Request) -> Response:
        verb, about = subject(request)
        self.has_more_to_say = bool(self.said)
        if not self.said or self.said[0][1] != about:
            raise KubeschedError(f"asked to {verb} {about}, not as before: {self.said[:1]}")
        answer = self.said.pop(0)[2]
        if isinstance(answer, Exception):
            raise answer
        if verb == "filter":
            self.heard.append(await answer.read())
        return answer

    async def aclose(self) -> None:
        """No-op."""


def decide_again(core: Core, profile: str, pod: Pod) -> Decided | Awaitable[Decided]:
    """The core's decision."""
    assembly = core.assembly
    framework, cycle, state = assembly.frameworks[profile], assembly.scheduler.cycle, CycleState()
    rehearsals = ExitStack()
    candidates = rehearsals.enter_context(rehearse(framework.handle))
    ran = cycle.run(framework, state, QueuedPodInfo(PodInfo(pod), 0.0), 0.0)

    def concluded(outcome: Assumed | Failed) -> Decided:
        rehearsals.close()
        return decided(cycle.algorithm, state, outcome, candidates)

    return then(ran, concluded)


async def decide_group_again(core: Core, key: GroupKey, members: Members) -> dict[str, object]:
    """The core's decision about the members of a tree of groups."""
    scheduler = core.assembly.scheduler
    assert isinstance(scheduler, GroupScheduler), "a core has the gates of its scheduler"
    entity = QueuedGroup(key, 0, 0.0)
    entity.members = {
        leaf: [QueuedPodInfo(PodInfo(pod), 0.0) for pod in pods] for leaf, pods in members.items()
    }
    try:
        root = scheduler.groups.tree(entity)
        framework = scheduler.groups.validated(root)
    except GroupRejected as error:
        return {"": str(error)}
    with rehearse(framework.handle) as candidates:
        results, _status = await scheduler.groups.decide(framework, root, 0.0)
    return decided_group(root, results, candidates)


def decided_group(
    root: GroupNode, results: Results, candidates: Iterable[Candidate]
) -> dict[str, object]:
    """Status and condition of every group, the result of every member, and the victims."""
    told: dict[str, object] = {"victims": _victims(candidates)}
    for leaf in root.leaves():
        result = results[leaf.key]
        told[str(leaf.key)] = (*wish_of(result.status), result.waits_for_preemption)
        for member in result.members:
            failed, found = failure_of(result, member), member.result
            told[member.info.pod_info.key] = (
                found and (*found, _reserved(member.state, found.node_name)),
                failed and (failed.status.message, failed.nomination),
            )
    return told


def _members(root: GroupNode) -> Members:
    return {leaf.key: [info.pod_info.pod for info in leaf.members] for leaf in root.leaves()}


def decided(
    algorithm: SchedulingAlgorithm,
    state: CycleState,
    outcome: Assumed | Failed,
    candidates: Iterable[Candidate],
) -> Decided:
    """An outcome in a form that does not depend on the scheduler."""
    if isinstance(outcome, Assumed):
        return Decided(
            outcome.result[1:],
            _behind(algorithm),
            outcome.node_name,
            reserved=_reserved(state, outcome.node_name),
        )
    status, rejected = outcome.status, None
    if isinstance(status.error, FitError):
        found = status.error.diagnosis
        verdicts = {name: found.node_to_status.get(name) for name in algorithm.table.row_of}
        rejected = (
            {name: _verdict(verdict) for name, verdict in verdicts.items()},
            sorted(found.unschedulable_plugins),
            sorted(found.pending_plugins),
        )
        if found.is_post_filter_unfinished:
            return Decided(rejected=rejected)
    return Decided(
        rejected=rejected,
        message=status.message,
        nomination=outcome.nomination,
        victims=_victims(candidates),
    )


def _victims(candidates: Iterable[Candidate]) -> list[tuple[str, list[str], int]]:
    return [
        (it.node_name, [pod.metadata.uid for pod in it.victims.pods], it.victims.pdb_violations)
        for it in candidates
    ]


def _verdict(status: Status) -> tuple[str, str, list[str]]:
    return status.code.name, status.plugin, list(status.all_reasons)


def _behind(algorithm: SchedulingAlgorithm) -> dict[str, int] | None:
    ranking, names = algorithm.ranking, algorithm.table.names
    if ranking is None or len(ranking.totals) == 1 or ranking.totals.dtype == np.bool_:
        return None  # there is no choice
    totals = ranking.totals
    if isinstance(ranking, Best):
        rows = np.flatnonzero(ranking.passing)
        if len(totals) == len(ranking.passing):
            totals = totals[rows]
    else:
        rows = ranking.rows
    best = totals.max()  # an engine leaves out what all nodes have in common
    return {names[row]: int(best - own) for row, own in zip(rows.tolist(), totals, strict=True)}


def _reserved(state: CycleState, node_name: str) -> object:
    devices, volumes = state.get(DEVICES), state.get(VOLUMES)
    taken = {
        info.claim.metadata.name: info.allocation
        for info in (devices.claims if devices is not None else ())
    }
    made = volumes.reserved.get(node_name) if volumes is not None else None
    if made is None:
        return taken, None
    bound = [(each.volume.metadata.name, key_of(each.claim.metadata)) for each in made.bindings]
    return taken, bound, [key_of(claim.metadata) for claim in made.provisions]


def _anew(find: Callable[[str], PodInfo | None], key: str) -> PodInfo | None:
    """A queued pod, without what was derived from it."""
    queued = find(key)
    return None if queued is None else PodInfo(queued.pod)


def _share_promises(live: Framework, core: Framework) -> None:
    """What plugins have promised and the stores do not show yet."""
    for mine, theirs in zip(live.plugins, core.plugins, strict=True):
        storage = vars(mine).get("_storage")
        if isinstance(theirs, VolumeBinding) and storage is not None:
            _share_assumptions(storage.volumes, theirs._storage.volumes)
            _share_assumptions(storage.claims, theirs._storage.claims)
    tracker: ClaimTracker | None = vars(live.handle.dra_manager).get("claims")
    if tracker is None or tracker.is_idle():
        return
    promised: ClaimTracker = core.handle.dra_manager.claims
    for claim in tracker._assumed.values():
        promised.assume(claim)
    counted = dict(promised._counted.values())
    for uid, known in tracker._in_flight.items():
        if uid not in counted or not holds_the_same(known.allocation, counted[uid]):
            promised.add_in_flight(uid, known.allocation, next(iter(known.pods)))


def _share_assumptions(mine: AssumeCache[Any], theirs: AssumeCache[Any]) -> None:
    if not mine.is_idle():
        for obj in mine._assumed.values():
            theirs.assume(obj)
