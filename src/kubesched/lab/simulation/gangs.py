"""Checks of groups of pods: bound together, counted right, told the truth, and not forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from typing import Final

from kubesched.api.core_v1 import Pod
from kubesched.api.names import key_of_manifest
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.groups.states import (
    Group,
    GroupKey,
    GroupStates,
    HierarchyError,
    group_of,
    key_of_group,
    min_count,
)
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import Plugin, PostBindPlugin, PreBindPlugin, ReservePlugin
from kubesched.framework.status import Status
from kubesched.lab.simulation.audit import Complain, SilentAuditor
from kubesched.lab.simulation.cluster import GROUPS, SimulatedCluster
from kubesched.lab.simulation.trace import Pending
from kubesched.lab.simulation.workloads import group_name
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.storage.store import Change
from kubesched.scheduler.factory import Assembly
from kubesched.scheduler.groups.group_queue import GroupSchedulingQueue

UNTRUE: Final = "the condition of a group is true when all is quiet"


class SilentGangAuditor(SilentAuditor, PreBindPlugin):
    """The auditor of gangs in replays: bindings wait for it as they did."""

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        return None


def make_gang_auditor(auditor: type[SilentAuditor], complain: Complain) -> type[Plugin]:
    """An auditor that checks that enough members have a node before the first of them is bound.

    Permit is asked after GangScheduling. From then on the gang is complete, whichever of the
    bindings fails.
    """

    class GangAuditor(auditor, ReservePlugin, PreBindPlugin, PostBindPlugin):  # type: ignore[valid-type,misc]  # made
        def __init__(self, args: object, handle: Handle) -> None:
            super().__init__(args, handle)
            self._held: dict[GroupKey, set[str]] = {}
            """Members that were permitted."""
            self._complete: set[str] = set()
            self._bound: set[str] = set()

        def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
            return None

        def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
            self._let_go(pod)

        def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
            super().permit(state, pod, node_name)
            key, known = group_of(pod), self.handle.groups
            assert known is not None, "it has groups"
            if key is None:
                return None
            self._held.setdefault(key, set()).add(pod.metadata.uid)
            leaves: Iterable[GroupKey] = (key,)
            with suppress(HierarchyError):  # without its group it is not let through
                *_, root = known.ancestors(key)
                # Of a tree that is ready even members of a gang that is not go on, as upstream: one
                # that lost a member at Permit.
                leaves = known.leaves(key_of_group(root)) if self._is_ready(root, known) else ()
            for leaf in leaves:
                self._complete |= self._held.get(leaf, set())
            return None

        def _is_ready(self, group: Group, known: GroupStates) -> bool:
            key = key_of_group(group)
            if key.is_composite:
                ready = sum(self._is_ready(child, known) for child in known.children(key))
                return ready >= min_count(group)
            listers = self.handle.listers  # ahead while an extender is awaited, unlike groups
            assert listers is not None, "a scheduler has listers"
            members = {o.metadata.uid: o for o in listers.of(Pod).list() if group_of(o) == key}
            held = self._held.get(key, set()).union(
                uid for uid, other in members.items() if other.spec.node_name or uid in self._bound
            )
            table = self.handle.table  # deletions of pods are parked while an extender is awaited
            placed = chain(*map(dict.values, (*table.pods, *table.ghosts.values())))
            held |= {i.uid for i in placed if group_of(i.pod) == key and i.uid not in members}
            return len(held) >= min_count(group)

        async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
            if group_of(pod) is not None and pod.metadata.uid not in self._complete:
                complain("no gang is bound in part", f"{pod.metadata.name} goes to {node_name}")
            return None

        def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
            self._bound.add(pod.metadata.uid)
            self._let_go(pod)

        def _let_go(self, pod: Pod) -> None:
            key = group_of(pod)
            if key is not None:
                self._held.get(key, set()).discard(pod.metadata.uid)
                self._complete.discard(pod.metadata.uid)

    return GangAuditor


class GroupChecks:
    """What must hold of groups when all is quiet."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._calm = False
        self._born_in_calm: dict[str, bool] = {}
        cluster.store.subscribe(GROUPS, self._on_group)

    def heal(self) -> None:
        """From now on no write gets lost."""
        self._calm = True

    def _on_group(self, change: Change) -> None:
        if change.type == "ADDED":
            self._born_in_calm.setdefault(change.entry.obj["metadata"]["name"], self._calm)

    def difference(self, states: GroupStates) -> str | None:
        """How a scheduler's account of groups differs from the API server."""
        pods = self._cluster.active_pods()
        names = {group_name(pod) for pod in pods} | {
            group["metadata"]["name"] for group in self._cluster.groups()
        }
        for name in sorted(names - {""}):
            known = states.state(GroupKey("default", name))
            if known is None:
                return f"group {name} is not known"
            here = {pod["metadata"]["uid"]: pod for pod in pods if group_name(pod) == name}
            assigned = {uid for uid, pod in here.items() if pod["spec"].get("nodeName")}
            if known.assumed or known.assigned != assigned or known.pods.keys() != here.keys():
                return f"members of {name}: {sorted(known.assigned ^ assigned)}, {known.assumed}"
        return None

    def untrue_condition(self) -> Pending | None:
        """A group that was scheduled since the faults stopped, and does not say so."""
        pods = self._cluster.active_pods()
        for group in self._cluster.groups():
            name = group["metadata"]["name"]
            members = [pod for pod in pods if group_name(pod) == name]
            bound = sum(bool(pod["spec"].get("nodeName")) for pod in members)
            if (
                self._born_in_calm.get(name)
                and bound >= _minimum(group)
                and condition(group)[0] != "True"
            ):
                what = f"{key_of_manifest(group)} runs, and says {condition(group)}"
                return Pending(what, UNTRUE)
        return None


def stays_gated(assembly: Assembly, pod: Pod) -> bool:
    """Whether no event opens the gate of the pod's group.

    # Upstream: if the gated member has left, the others are not looked at again before the
    # five-minute flush.
    """
    queue = assembly.scheduler.queue
    entity = queue.find_member(pod)[0] if isinstance(queue, GroupSchedulingQueue) else None
    if entity is None or entity.gate is None:
        return False
    found = entity.find(entity.gate.pod_info.key)
    return found is None or not found.is_gated  # one that replaced it was not asked


def condition(group: JsonObject) -> tuple[str, str]:
    """Status and reason of the group's condition."""
    for found in (group.get("status") or {}).get("conditions") or ():
        return found["status"], found["reason"]
    return "", ""


def _minimum(group: JsonObject) -> int:
    gang = group["spec"]["schedulingPolicy"].get("gang")
    minimum: int = 1 if gang is None else gang["minCount"]
    return minimum
