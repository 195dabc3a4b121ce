"""Checks of groups of pods: bound together, counted right, told the truth, and not forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubesched.api.core_v1 import Pod
from kubesched.api.names import key_of_manifest
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.groups.states import GroupKey, GroupStates, group_of, is_gang, min_count
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import (
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PreBindPlugin,
)
from kubesched.framework.status import Status
from kubesched.lab.simulation.audit import Auditing, Complain
from kubesched.lab.simulation.cluster import GROUPS, SimulatedCluster
from kubesched.lab.simulation.rules import State, extender_objection, objection
from kubesched.lab.simulation.workloads import group_name
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.storage.store import Change
from kubesched.plugins.default_preemption import DefaultPreemption
from kubesched.plugins.node_resources.fit import NodeResourcesFit
from kubesched.scheduler.factory import Assembly
from kubesched.scheduler.groups.group_queue import GroupSchedulingQueue

_HARD: Final = (
    *("affinity", "topologySpreadConstraints", "volumes"),
    *("resourceClaims", "schedulingGates"),
)
"""Fields that may make the order of members matter, or keep them out."""


class Untrue(str):
    """A condition that a group should not have any more, or does not have yet."""

    __slots__ = ()


def make_gang_auditor(
    auditor: type[Auditing], complain: Complain, *, by_topology: bool, audits_members: bool
) -> type[Plugin]:
    """An auditor that checks that enough members have a node before the first of them is bound.

    Permit is asked after GangScheduling. From then on the gang is complete, whichever of the
    bindings fails. With `audits_members` their places are audited, too: not if Reserve may refuse
    some of them, since the others stay where they were placed beside them.
    """

    class GangAuditor(auditor, PermitPlugin, PreBindPlugin, PostBindPlugin):  # type: ignore[valid-type,misc]  # made
        def __init__(self, args: object, handle: Handle) -> None:
            super().__init__(args, handle)
            self._held: dict[GroupKey, dict[str, str]] = {}
            """Members that were permitted, with their nodes."""
            self._complete: set[str] = set()
            self._bound: set[str] = set()

        def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
            self._let_go(pod)

        def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
            key, listers = group_of(pod), self.handle.listers
            assert listers is not None, "a scheduler has listers"
            if key is None:
                return None
            self.audit(pod, node_name, is_judged=audits_members)
            group = listers.of(PodGroup).get(key.namespace, key.name)
            held = self._held.setdefault(key, {})
            held[pod.metadata.uid] = node_name
            placed = {
                other.metadata.uid: other.spec.node_name
                for other in listers.of(Pod).list()
                if group_of(other) == key
                and (other.spec.node_name or other.metadata.uid in self._bound)
            }
            if group is None or not is_gang(group) or len(held | placed) >= min_count(group):
                self._complete |= held.keys()
            if group is not None and by_topology:
                self._check_domain(group, {*held.values(), *placed.values()})
            return None

        def _check_domain(self, group: PodGroup, others: set[str]) -> None:
            table, constraints = self.handle.table, group.spec.scheduling_constraints
            for constraint in (constraints and constraints.topology) or ():
                values = {
                    (node.metadata.labels or {}).get(constraint.key)
                    for name in others & table.row_of.keys()
                    if (node := table.nodes[table.row_of[name]]) is not None
                }
                if len(values) > 1:
                    complain(
                        "rules hold at every decision",
                        f"{group.metadata.name} is in several domains: {sorted(others)}",
                    )

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
                self._held.get(key, {}).pop(pod.metadata.uid, None)
                self._complete.discard(pod.metadata.uid)

    return GangAuditor


class GroupChecks:
    """What must hold of groups when all is quiet."""

    def __init__(
        self, cluster: SimulatedCluster, *, by_topology: bool, asks_extender: bool
    ) -> None:
        self._cluster = cluster
        self._by_topology = by_topology
        self._asks_extender = asks_extender
        self._calm = False
        self._born_before: set[str] = set()
        self._born_in_calm: set[str] = set()
        cluster.store.subscribe(GROUPS, self._on_group)

    def heal(self) -> None:
        """From now on no write gets lost."""
        self._calm = True

    def _on_group(self, change: Change) -> None:
        name = change.entry.obj["metadata"]["name"]
        if change.type == "ADDED":
            born = self._born_in_calm if self._calm else self._born_before
            born.add(name)

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

    def untrue_condition(self) -> Untrue | None:
        """A group that was scheduled since the faults stopped, and does not say so."""
        for group, members in self._with_members():
            bound = sum(bool(pod["spec"].get("nodeName")) for pod in members)
            is_new = group["metadata"]["name"] in self._born_in_calm - self._born_before
            if is_new and bound >= _minimum(group) and condition(group)[0] != "True":
                return Untrue(f"{key_of_manifest(group)} runs, and says {condition(group)}")
        return None

    def fitting(self) -> str | None:
        """A gang that waits although it fits by itself.

        Only gangs whose members are alike and lack nothing but room: then it does not matter in
        which order they are placed, and where.
        """
        nodes = {node["metadata"]["name"]: node for node in self._cluster.nodes()}
        placed = [
            (pod, name)
            for pod in self._cluster.active_pods()
            if (name := pod["spec"].get("nodeName") or pod["status"].get("nominatedNodeName"))
        ]
        for group, members in self._with_members():
            waiting = [pod for pod in members if not pod["spec"].get("nodeName")]
            missing = max(_minimum(group) - len(members) + len(waiting), 1)
            is_child = group["spec"].get("parentCompositePodGroupName")
            if len(waiting) < missing or is_child or not _are_alike(group, members):
                continue
            others = State(nodes, tuple(each for each in placed if each[0] not in waiting))
            for domain in self._domains(group, members):
                if self._asks_extender:
                    pod = waiting[0]
                    domain = [n for n in domain if extender_objection(pod, nodes[n]) is None]
                if _room_for(waiting[0], domain, others, missing) >= missing:
                    return f"{missing} of {key_of_manifest(group)} fit on {', '.join(domain)}"
        return None

    def _with_members(self) -> Iterator[tuple[JsonObject, list[JsonObject]]]:
        pods = self._cluster.active_pods()
        for group in self._cluster.groups():
            name = group["metadata"]["name"]
            yield group, [pod for pod in pods if group_name(pod) == name]

    def _domains(self, group: JsonObject, members: list[JsonObject]) -> list[list[str]]:
        """The sets of nodes that the group may use."""
        nodes = {node["metadata"]["name"]: node for node in self._cluster.nodes()}
        constraints = (group["spec"].get("schedulingConstraints") or {}).get("topology") or ()
        if not constraints or not self._by_topology:
            return [list(nodes)]
        key = constraints[0]["key"]
        values = {name: node["metadata"]["labels"].get(key) for name, node in nodes.items()}
        taken = {
            values.get(name) for pod in members if (name := pod["spec"].get("nodeName")) is not None
        }
        if len(taken) > 1:
            return []  # an error, as in kube-scheduler
        wanted = taken or set(values.values())
        return [[name for name in nodes if values[name] == value] for value in wanted - {None}]


def stays_gated(assembly: Assembly, pod: Pod) -> bool:
    """Whether no event opens the gate of the pod's group.

    # Upstream: if the gated member has left, the others are not looked at again before the
    # five-minute flush. Neither is a group that preempts, if no member lacks room: those that fit
    # below a root that failed, or that were rejected in another placement than the one cleared.
    """
    queue = assembly.scheduler.queue
    entity = queue.find_member(pod)[0] if isinstance(queue, GroupSchedulingQueue) else None
    if entity is None or entity.gate is None:
        return False
    found = entity.find(entity.gate.pod_info.key)
    return (
        found is None
        or not found.is_gated  # one that replaced it was not asked
        or (
            entity.gate.gating_plugin == DefaultPreemption.name
            and not any(NodeResourcesFit.name in info.rejector_plugins for info in entity)
        )
    )


def condition(group: JsonObject) -> tuple[str, str]:
    """Status and reason of the group's condition."""
    for found in (group.get("status") or {}).get("conditions") or ():
        return found["status"], found["reason"]
    return "", ""


def _minimum(group: JsonObject) -> int:
    gang = group["spec"]["schedulingPolicy"].get("gang")
    minimum: int = 1 if gang is None else gang["minCount"]
    return minimum


def _are_alike(group: JsonObject, members: list[JsonObject]) -> bool:
    """Whether members differ in nothing, and agree with their group."""
    queued = [pod for pod in members if not pod["spec"].get("nodeName")]
    waiting = [pod["spec"] for pod in queued]
    labels = [pod["metadata"].get("labels") for pod in queued]
    asked = ("containers", "nodeSelector", "tolerations")
    of_group = [group["spec"].get(name) for name in ("priority", "preemptionPolicy")]
    policies = {pod["spec"].get("preemptionPolicy") for pod in members}
    return (
        not any(spec.get(name) for spec in waiting for name in _HARD)
        and all(spec.get(name) == waiting[0].get(name) for spec in waiting for name in asked)
        and all(each == labels[0] for each in labels)
        and {pod["spec"].get("priority", 0) for pod in members} == {of_group[0] or 0}
        and len(policies) == 1
        and of_group[1] in (None, *policies)
    )


def _room_for(pod: JsonObject, nodes: list[str], state: State, wanted: int) -> int:
    """How many pods like this one fit, up to as many as are wanted."""
    count = 0
    for name in nodes:
        while count < wanted and objection(pod, name, state) is None:
            state = state.joined_by([(pod, name)])
            count += 1
    return count
