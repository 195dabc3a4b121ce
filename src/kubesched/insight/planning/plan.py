"""Plans: applies changes to a state and runs the scheduler and the controllers until they settle.

Order: try pending pods, add nodes, delete objects, scale workloads, change their requests, apply
files, drain and remove nodes. After each step everything settles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import structs

from kubesched.api.apps_v1 import ReplicaSet, StatefulSet
from kubesched.api.core_v1 import Node, Pod
from kubesched.api.names import key_of
from kubesched.config.defaults import without_extenders
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.load import default_config
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.registry import Registry
from kubesched.insight.explain.workloads import find_workload
from kubesched.insight.planning.drain import Drain, choose_nodes
from kubesched.insight.planning.existing_workloads import (
    SCALABLE,
    Scale,
    doomed_pods,
    pods_to_renew,
    surplus_pods,
)
from kubesched.insight.planning.manifests import Manifest
from kubesched.insight.planning.model import (
    Amount,
    Evicted,
    Kept,
    Moved,
    Placed,
    Plan,
    Unplaced,
    Utilisation,
)
from kubesched.insight.planning.nodes import NewNodes, add_nodes, put_node
from kubesched.insight.planning.stops import stop_of, zone_of
from kubesched.insight.planning.workloads import TEMPLATED, Workloads
from kubesched.insight.state.budgets import Budgets
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.planned_cluster import PlanError, PlannedCluster
from kubesched.insight.state.replacements import Replacements, pods_on
from kubesched.playground.apimachinery.objects import ChangeType

DELETE, DRAIN, REMOVAL, PREEMPTION = "delete", "drain", "removal", "preemption"
SCALE, ROLLOUT = "scale", "rollout"
"""Reason why a pod left its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes to plan."""

    manifests: Sequence[Manifest] = ()
    replicas: int | None = None
    """Overrides the replicas of the manifests' workloads."""
    scale: Sequence[Scale] = ()
    """New replica counts for workloads of the state."""
    requests: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Other requests of the first container, by workload of the state."""
    add_nodes: Sequence[NewNodes] = ()
    nodes: Sequence[Manifest] = ()
    """Nodes to add by name, or to replace if the name exists."""
    delete: Sequence[str] = ()
    """`KIND/NAME` or `KIND/NAMESPACE/NAME`."""
    drain: Sequence[str] = ()
    """Nodes by name or label selector."""
    remove_nodes: Sequence[str] = ()
    """As `drain`; nodes that become empty are deleted."""
    force: bool = False
    """Also evict pods without a controller."""
    namespace: str = "default"


def make_plan(
    state: ClusterState,
    changes: Changes,
    config: KubeSchedulerConfiguration | None = None,
    *,
    gates: FeatureGates = DEFAULT_GATES,
    registry: Registry | None = None,
    seed: int = 0,
) -> Plan:
    """Apply the changes and report where all pods end up. The state itself is not changed.

    Configured extenders are not asked; a note names them.

    Raises:
        PlanError: a change is invalid; the message gives the cause.
        ConfigError: the configuration names plugins that do not exist or do not fit.
    """
    config, notes = without_extenders(config or default_config(gates))
    with PlannedCluster(state, config, gates=gates, registry=registry, seed=seed) as world:
        plan = plan_in(world, state, changes, seed=seed)
    plan.notes[:0] = notes
    return plan


def plan_in(world: PlannedCluster, state: ClusterState, changes: Changes, *, seed: int = 0) -> Plan:
    """As `make_plan`, in a cluster already loaded from the state, which serves this plan only.

    Raises:
        PlanError: a change is invalid; the message gives the cause.
    """
    return _Planning(world, state, changes, seed).run()


class _Planning:
    """One plan in progress."""

    def __init__(
        self, world: PlannedCluster, state: ClusterState, changes: Changes, seed: int
    ) -> None:
        self._world = world
        self._state = state
        self._changes = changes
        self._pending = world.assembly.scheduler.queue.pending_pods()[0]
        """Pods without a node in the state."""
        self._departures: list[tuple[Pod, str, str]] = []
        """Departed pods: the pod, its node, and the cause."""
        self._why = PREEMPTION
        self._workloads: Workloads | None = None
        self._seed = seed
        self._budgets = Budgets(world)
        self._replacements = Replacements(world, seed)
        world.on_bound = self._bound
        world.on_deleted = self._deleted
        world.on_idle = self._idle

    def run(self) -> Plan:
        world, changes = self._world, self._changes
        before = utilisation_of(world)
        world.settle()
        added = [name for new in changes.add_nodes for name in add_nodes(world, new)]
        added += [name for node in changes.nodes if (name := put_node(world, node))]
        world.settle()
        for pod in doomed_pods(world, self._replacements, changes.delete, changes.namespace):
            self._take_away(pod, DELETE)
        for pod in surplus_pods(world, self._replacements, changes.scale, changes.namespace):
            self._take_away(pod, SCALE)
        world.settle()
        for pod in pods_to_renew(world, self._replacements, changes.requests, changes.namespace):
            self._take_away(pod, ROLLOUT)
            world.settle()
        self._apply()
        kept, removed = self._drain()
        return self._plan(before, added, removed, kept)

    def _apply(self) -> None:
        changes = self._changes
        if not changes.manifests:
            return
        self._workloads = Workloads(
            self._state, self._world.clock, self._seed, self._made, self._world.gates
        )
        for manifest in changes.manifests:
            self._check_new(manifest)
            self._workloads.create(manifest, changes.replicas)
        self._world.settle()

    def _check_new(self, manifest: Manifest) -> None:
        """Reject an existing pod; a workload with an existing name creates pods with new names."""
        namespace = (manifest.obj.get("metadata") or {}).get("namespace") or "default"
        if manifest.kind == "Pod" and self._world.find(Pod, namespace, manifest.name) is not None:
            raise PlanError(f"{manifest}: there is a pod of that name in {namespace} already")

    def _drain(self) -> tuple[list[Kept], list[str]]:
        world, changes = self._world, self._changes
        leaving = choose_nodes(world, changes.remove_nodes, "--remove-nodes")
        nodes = {
            node.metadata.name: node
            for node in [*choose_nodes(world, changes.drain, "--drain"), *leaving]
        }
        self._budgets.observe()
        drain = Drain(world, self._budgets, self._evict, force=changes.force)
        drain.run(list(nodes.values()))
        stuck = {kept.node for kept in drain.kept}
        removed = [node.metadata.name for node in leaving if node.metadata.name not in stuck]
        for name in removed:
            self._remove_node(name)
        world.settle()
        return drain.kept, removed

    def _evict(self, pod: Pod) -> None:
        self._take_away(pod, DRAIN)

    def _take_away(self, pod: Pod, why: str) -> None:
        self._why = why
        self._world.delete(pod)
        self._why = PREEMPTION

    def _remove_node(self, name: str) -> None:
        """Remove a drained node with its remaining pods: DaemonSet and mirror pods."""
        world = self._world
        for pod in pods_on(world, name):
            self._take_away(pod, REMOVAL)
        node = world.find(Node, "", name)
        if node is not None:
            world.delete(node)

    # -- hooks -------------------------------------------------------------------------------------

    def _made(self, change: ChangeType, obj: Any) -> None:  # noqa: ANN401  # a record of any kind
        """An object of the plan's own workloads was added, changed or deleted."""
        world = self._world
        known = world.find(type(obj), obj.metadata.namespace, obj.metadata.name)
        if change == "ADDED":
            if isinstance(obj, Pod) or known is None:
                world.add(obj)
        elif change == "DELETED":
            world.delete(obj)
        elif known is not None and isinstance(obj, ReplicaSet | StatefulSet):
            world.put(obj)  # pods and claims change in the plan's own cluster only

    def _bound(self, pod: Pod) -> None:
        self._budgets.pod_came(pod)
        if self._workloads is not None:
            self._workloads.bound(pod)

    def _deleted(self, pod: Pod) -> None:
        self._budgets.pod_left(pod)
        self._departures.append((pod, pod.spec.node_name, self._why))
        if self._workloads is not None and self._workloads.owns(pod):
            self._workloads.deleted(pod)
        elif self._why not in (REMOVAL, SCALE):
            self._replacements.replace(pod)

    def _idle(self) -> float | None:
        return self._workloads.run() if self._workloads is not None else None

    # -- the result --------------------------------------------------------------------------------

    def _plan(
        self, before: Utilisation, added: list[str], removed: list[str], kept: list[Kept]
    ) -> Plan:
        world = self._world
        replaced = {
            self._replacements.of.get(pod.metadata.uid) for pod, node, _ in self._departures if node
        }
        evicted = self._evicted()
        placed, unplaced = self._outcomes()
        unplaced_groups = self._grouped(unplaced)
        after = utilisation_of(world)
        concerned = [group for group in unplaced_groups if not group.was_pending]
        only_room = not (self._changes.manifests or self._changes.drain or self._changes.delete)
        return Plan(
            source=self._state.source,
            is_complete=not kept and not (unplaced_groups if only_room else concerned),
            placed=[placement for placement in placed if placement.pod not in replaced],
            moved=self._moved(placed),
            evicted=evicted,
            kept=kept,
            unplaced=unplaced_groups,
            nodes_added=added,
            nodes_removed=removed,
            before=before,
            after=after,
            tightest=tightest(after),
            notes=[
                *(f"left out, as the scheduler would: {problem}" for problem in world.problems),
                *self._existing(),
            ],
        )

    def _existing(self) -> list[str]:
        """A note for each workload of the files that already exists in the state."""
        return [
            f"{manifest.kind} {where}/{manifest.name} exists already: "
            "the pods of the file come in addition"
            + f"; --replicas {manifest.kind.lower()}/{manifest.name}=N scales it"
            * (manifest.kind in SCALABLE)
            for manifest in self._changes.manifests
            for where in [manifest.namespace or "default"]
            if manifest.kind in TEMPLATED
            and find_workload(self._state.of, manifest.kind, where, manifest.name).is_known
        ]

    def _outcomes(self) -> tuple[list[Placed], list[Pod]]:
        """Newly placed pods and unplaced pods; pods that stayed on their node are in neither."""
        world, placed, unplaced = self._world, list[Placed](), list[Pod]()
        # Only pending and new pods can get a node; the cluster may have 100,000 others.
        for then in [*self._pending, *world.added_pods]:
            pod = world.find(Pod, then.metadata.namespace, then.metadata.name)
            if pod is None or pod.metadata.uid != then.metadata.uid:
                continue
            node = world.where(pod)
            if node:
                placed.append(
                    Placed(
                        pod=key_of(pod.metadata),
                        node=node,
                        zone=zone_of(world.find(Node, "", node)),
                        was_pending=self._was_pending(pod),
                    )
                )
            elif pod.spec.scheduler_name in world.assembly.frameworks:
                unplaced.append(pod)
        return placed, unplaced

    def _was_pending(self, pod: Pod) -> bool:
        meta = pod.metadata
        known = self._state.get(Pod, meta.namespace, meta.name)
        return known is not None and known.metadata.uid == meta.uid

    def _moved(self, placed: Sequence[Placed]) -> list[Moved]:
        by_name = {placement.pod: placement for placement in placed}
        moves = []
        for pod, node, _ in self._departures:
            replacement = self._replacements.of.get(pod.metadata.uid, "")
            now = by_name.get(replacement)
            if now is not None and node:
                moves.append(
                    Moved(
                        pod=key_of(pod.metadata),
                        from_node=node,
                        replacement=replacement,
                        to_node=now.node,
                        zone=now.zone,
                    )
                )
        return moves

    def _evicted(self) -> list[Evicted]:
        return [
            Evicted(
                pod=key_of(pod.metadata),
                node=node,
                by=why,
                replacement=self._replacements.of.get(pod.metadata.uid, ""),
            )
            for pod, node, why in self._departures
            if node
        ]

    def _grouped(self, pods: Sequence[Pod]) -> list[Unplaced]:
        """Group pods by controller: one explanation serves all of them."""
        groups: dict[tuple[str, bool], list[Pod]] = {}
        for pod in pods:
            owner = pod.metadata.controller()
            was_pending = self._was_pending(pod)
            key = owner.uid if owner is not None else pod.metadata.uid
            groups.setdefault((key, was_pending), []).append(pod)
        return [
            Unplaced(
                pods=sorted(key_of(pod.metadata) for pod in members),
                was_pending=was_pending,
                stop=stop_of(self._world, _as_new(members[0])),
            )
            for (_, was_pending), members in groups.items()
        ]


def _as_new(pod: Pod) -> Pod:
    """The pod without the nomination of a failed attempt."""
    if not pod.status.nominated_node_name:
        return pod
    return structs.replace(pod, status=structs.replace(pod.status, nominated_node_name=""))


def utilisation_of(world: PlannedCluster) -> Utilisation:
    """Requests and allocatable of all nodes that are not cordoned, in total and by zone."""
    table = world.assembly.table
    rows_by_zone: dict[str, list[int]] = {}
    for node in world.objects(Node):
        row = table.row_of.get(node.metadata.name)
        if row is not None and not node.spec.unschedulable:
            rows_by_zone.setdefault(zone_of(node), []).append(row)
    rows = [row for zone_rows in rows_by_zone.values() for row in zone_rows]
    return Utilisation(
        nodes=len(rows),
        resources=_sums(table, rows),
        zones={zone: _sums(table, rows_by_zone[zone]) for zone in sorted(rows_by_zone)},
    )


def _sums(table: NodeTable, rows: list[int]) -> dict[str, Amount]:
    at = np.array(rows, dtype=np.intp)
    sums = {}
    for resource, index in table.resource_index.items():
        allocatable = int(table.allocatable[index].array[at].sum())
        requested = int(table.requested[index].array[at].sum())
        if allocatable:
            sums[resource] = Amount(requested=requested, allocatable=allocatable)
    if allowed := int(table.allowed_pods.array[at].sum()):
        sums["pods"] = Amount(requested=int(table.pod_count.array[at].sum()), allocatable=allowed)
    return sums


def tightest(utilisation: Utilisation) -> str:
    """The resource with the largest requested share; empty if nothing is requested."""
    amounts = utilisation.resources.items()
    shares = {name: each.requested / each.allocatable for name, each in amounts if each.requested}
    return max(shares, key=shares.__getitem__, default="")
