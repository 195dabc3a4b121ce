"""Invariants, checked on every commit, at the end of every instant, and once the run is quiet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from kubesched.api.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.api.names import key_of_manifest
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.api.resource_v1 import ResourceClaim, ResourceSlice
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.insight.state.virtual_loop import OWNER, SENDER
from kubesched.lab.simulation import storage
from kubesched.lab.simulation.audit import Decisions
from kubesched.lab.simulation.census import Census
from kubesched.lab.simulation.cluster import SimulatedCluster
from kubesched.lab.simulation.device_checks import DeviceChecks
from kubesched.lab.simulation.gangs import GroupChecks
from kubesched.lab.simulation.processes import Incarnation, Processes
from kubesched.lab.simulation.trace import Complaints, Violation
from kubesched.lab.simulation.workloads import claim_names
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.storage.store import Change
from kubesched.scheduler.queue.scheduling_queue import LEFTOVER_PERIOD_S

MAX_WAIT_S = 300.0 + LEFTOVER_PERIOD_S
"""Without a helpful event, a pod is retried after this long."""
RESOURCES = ("cpu", "memory")
FULL_CHECK_EVERY = 25
"""Instants between full recounts, which cost as much as all other checks together."""


class _Seen:
    """What was last checked of one process, to avoid duplicate checks."""

    def __init__(self) -> None:
        self.pods: object = None
        self.all: object = None


class Checkers:
    """The safety checks of one run."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        processes: Processes,
        complaints: Complaints,
        census: Census,
        *,
        has_one_writer: bool,
        decisions: Decisions,
    ) -> None:
        """`decisions` is shared and grows as decisions are made."""
        self._decisions = decisions
        self._cluster = cluster
        self._processes = processes
        self._complaints, self._complain = complaints, complaints.add
        self._has_one_writer = has_one_writer
        self._census = census
        self._leader = ""
        self._instants = 0
        self.checks = 0
        self._seen: defaultdict[str, _Seen] = defaultdict(_Seen)
        self._rooms: dict[str, JsonObject] = {}
        """Each node's largest capacity so far: a scheduler does not see a reduction at once."""
        self._least: dict[str, JsonObject] = {}
        """Resized pods by UID with their smallest requests so far: schedulers see resizes late."""
        self._bound_by: dict[str, str] = {}
        """Pod UID -> the process that bound it."""
        self.are_writes_held = False
        """Whether writes may be reordered."""
        self.history_is_broken = False
        """The cluster was restored and has not settled: schedulers may know the old history."""
        cluster.store.subscribe("nodes", self._on_node)
        cluster.store.subscribe("pods", self._on_pod)
        self.groups: GroupChecks | None = None
        self.devices: DeviceChecks | None = None
        if cluster.devices is not None:
            self.devices = DeviceChecks(cluster, complaints, has_one_writer=has_one_writer)
        if cluster.storage is not None:
            cluster.store.subscribe(storage.VOLUMES, self._on_volume)

    # Every commit.

    def _on_pod(self, change: Change) -> None:
        pod = change.entry.obj
        node_name = pod["spec"].get("nodeName", "")
        before = change.old.obj["spec"].get("nodeName", "") if change.old is not None else ""
        if change.type == "DELETED" or not node_name:
            return
        self.checks += 1
        if before:
            if before != node_name:
                self._complain(
                    "no pod is bound twice", f"{key_of_manifest(pod)} from {before} to {node_name}"
                )
            self._on_placed_pod(pod, change)
            return
        self._bound_by[pod["metadata"]["uid"]] = _binder()
        self._on_binding(pod, node_name)

    def _on_placed_pod(self, pod: JsonObject, change: Change) -> None:
        assert change.old is not None, "a pod that had a node"
        if change.old.obj["spec"]["containers"] is not pod["spec"]["containers"]:
            uid = pod["metadata"]["uid"]
            before = self._least.get(uid, change.old.obj)
            self._least[uid] = less_demanding(before, pod)
        # A condition may still be in flight when a pod is bound: from another replica, delayed, or
        # for a pod of this name before a restore, because status patches carry no UID.
        may_be_late = self.are_writes_held or self.history_is_broken
        is_new = not _is_called_unschedulable(change.old.obj)
        if self._has_one_writer and not may_be_late and is_new and _is_called_unschedulable(pod):
            self._complain(
                "no bound pod is called unschedulable",
                f"{key_of_manifest(pod)} on {pod['spec']['nodeName']}",
            )

    def _on_binding(self, pod: JsonObject, node_name: str) -> None:
        uid = pod["metadata"]["uid"]
        if SENDER.get() and (SENDER.get(), uid, node_name) not in self._decisions:
            self._complain(
                "no pod is bound without a decision",
                f"{key_of_manifest(pod)} ({uid}) to {node_name}",
            )
        if self.history_is_broken:
            return
        node = self._cluster.store.get("nodes", "", node_name)
        if node is None:
            self._complain(
                "no pod is bound to a node that is gone", f"{key_of_manifest(pod)} to {node_name}"
            )
            return
        why = overcommitment(self._rooms[node_name], self._accountable(uid, node_name))
        if why is not None:
            self._complain(
                "no node is over its allocatable", f"{key_of_manifest(pod)} to {node_name}: {why}"
            )

        self._check_volumes(pod, node.obj)
        if self.devices is not None:
            self.devices.on_binding(pod, node_name)

    def _accountable(self, uid: str, node_name: str) -> list[JsonObject]:
        """The pods on a node that the sender of a binding had to count.

        With two schedulers, a binding may be in flight when the other one takes over; the API
        cannot prevent that. So each answers for its own bindings and for the pods that its watch
        had shown when it chose the node. Pods shown later, while it waits for volumes, an extender
        or the network, do not count, as in kube-scheduler. Nor does a pod that it had assumed
        there and the other one bound: its own binding is rejected, and until the watch shows the
        pod, that pod's resources count as free.
        """
        there = [
            other
            for other in self._cluster.active_pods()
            if other["spec"].get("nodeName") == node_name
        ]
        if not self._has_one_writer:
            binder = _binder()
            shown = self._decisions.get((binder, uid, node_name), frozenset())
            there = [
                other
                for other in there
                if self._bound_by.get(other["metadata"]["uid"]) == binder
                or other["metadata"]["uid"] in shown
            ]
        return [self._least.get(other["metadata"]["uid"], other) for other in there]

    def _on_node(self, change: Change) -> None:
        node = change.entry.obj
        name = node["metadata"]["name"]
        known = self._rooms.get(name)
        if change.type != "DELETED":
            self._rooms[name] = node if known is None else roomier(known, node)

    def _on_volume(self, change: Change) -> None:
        if change.old is None or change.type == "DELETED":
            return
        before = (change.old.obj["spec"].get("claimRef") or {}).get("uid")
        after = (change.entry.obj["spec"].get("claimRef") or {}).get("uid")
        if before and after and before != after:
            name = change.entry.obj["metadata"]["name"]
            self._complain("no volume is given to two claims", f"{name} from {before} to {after}")

    def _check_volumes(self, pod: JsonObject, node: JsonObject) -> None:
        """All claims are bound, and local volumes are on this node."""
        for name in claim_names(pod):
            claim = self._cluster.store.get(storage.CLAIMS, "default", name)
            if claim is None or self._is_successor(claim.obj, pod):
                continue
            volume = self._cluster.store.get(
                storage.VOLUMES, "", claim.obj["spec"].get("volumeName", "")
            )
            where = f"{key_of_manifest(pod)} to {node['metadata']['name']}"
            if volume is None or not storage.is_bound(claim.obj):
                self._complain("pods are bound after their claims", f"{where}: {name}")
            elif volume.obj["spec"]["storageClassName"] == storage.LOCAL and not storage.reaches(
                volume.obj, node
            ):
                self._complain("volumes are within reach", f"{where}: {name}")

    def _is_successor(self, claim: JsonObject, pod: JsonObject) -> bool:
        """Whether the sender of a binding tried the pod with an earlier claim of that name.

        A claim may be deleted and re-created while an extender is awaited, or between the wait for
        its volume and the binding. It is not checked again, as in kube-scheduler. With delayed
        writes, a binding may belong to any attempt.
        """
        meta = claim["metadata"]
        tried = self._processes.attempts.get((_binder(), pod["metadata"]["uid"], meta["name"]))
        if not tried:
            return False
        return (tried if self.are_writes_held else tried[-1:]) != [meta["uid"]]

    # Every instant.

    def instant_is_over(self) -> None:
        """Run the checks at the end of an instant of virtual time."""
        self._instants += 1
        self._complaints.raise_first()
        alive = self._processes.alive()
        if not self._has_one_writer:
            leaders = [incarnation.name for incarnation in alive if incarnation.process.may_write()]
            if len(leaders) > 1:
                raise Violation("no two schedulers lead at the same time", ", ".join(leaders))
            self._note_leader(leaders[0] if leaders else "")
        for incarnation in alive:
            # Watch events are queued while an extender is awaited.
            if (
                incarnation.is_working
                and not incarnation.is_holding_still
                and not self._processes.is_interrupted(incarnation)
            ):
                self._check(incarnation)
        self.checks += 1

    def _note_leader(self, leader: str) -> None:
        if leader == self._leader:
            return
        if self._leader:
            self._census.tally("processes", "lost the lead")
        if leader:
            self._census.tally("processes", "took the lead")
        self._leader = leader

    def _check(self, incarnation: Incarnation) -> None:
        position, seen = _position(incarnation), self._seen[incarnation.name]
        if seen.pods != position:
            seen.pods = position
            self._check_pods(incarnation)
        if self._instants % FULL_CHECK_EVERY == 0:
            self.check_fully(incarnation)

    def check_fully(self, incarnation: Incarnation) -> None:
        """Recount everything, unless nothing has changed since the last recount."""
        position, seen = _position(incarnation), self._seen[incarnation.name]
        if seen.all != position:
            seen.all = position
            check_own_invariants(incarnation)
            check_wake_ups(incarnation)

    def _check_pods(self, incarnation: Incarnation) -> None:
        """No pod is lost, and none waits without a wake-up."""
        scheduler = incarnation.process.assembly.scheduler
        queue, cache = scheduler.queue, scheduler.cache
        known = {pod.metadata.uid for pod in queue.pending_pods()[0]}
        known.update(queue.in_flight_uids())
        for pod in incarnation.process.informers.of(Pod).list():
            meta = pod.metadata
            if pod.spec.node_name:
                if cache.get_pod(meta.uid) is None:
                    raise Violation(
                        "every bound pod is counted", f"{incarnation.name} forgot {meta.name}"
                    )
            elif (
                meta.uid not in known
                and not cache.is_assumed(meta.uid)
                and meta.deletion_timestamp is None
                and queue.place_of(meta.namespace, meta.name) is None
            ):
                raise Violation("no pod is lost", f"{incarnation.name} lost {meta.name}")
        if cache.assumed_count:
            self._check_assumed(incarnation)

    def _check_assumed(self, incarnation: Incarnation) -> None:
        """A pod deleted during binding frees its resources once the watch shows the deletion."""
        process = incarnation.process
        there = {pod.metadata.uid for pod in process.informers.of(Pod).list()}
        cache = process.assembly.scheduler.cache
        for info in cache.pods():
            if info.uid not in there and cache.is_assumed(info.uid):
                raise Violation(
                    "no room is held for a pod that is gone",
                    f"{incarnation.name} holds {info.pod.spec.node_name} for {info.key}",
                )

    # When the run is quiet.

    def difference_from_store(self, incarnation: Incarnation) -> str | None:
        """How a process's caches differ from the API server; None if they agree."""
        process, scheduler = incarnation.process, incarnation.process.assembly.scheduler
        pods = {
            pod["metadata"]["uid"]: pod["spec"].get("nodeName", "")
            for pod in self._cluster.active_pods()
        }
        known_pods = {
            pod.metadata.uid: pod.spec.node_name for pod in process.informers.of(Pod).list()
        }
        if pods != known_pods:
            return f"pods {sorted(pods.items() ^ known_pods.items())}"
        bound = {uid: name for uid, name in pods.items() if name}
        cached = {info.uid: info.pod.spec.node_name for info in scheduler.cache.pods()}
        if bound != cached:
            return f"cached pods {sorted(bound.items() ^ cached.items())}"
        kinds: tuple[type[Any], ...] = (
            Node,
            PersistentVolume,
            PersistentVolumeClaim,
            PodDisruptionBudget,
            ResourceClaim,
            ResourceSlice,
            *((PodGroup,) if self.groups is not None else ()),
        )
        for kind in kinds:
            stored, known = (
                {obj.metadata.uid: obj.metadata.resource_version for obj in objects}
                for objects in (self._cluster.records_of(kind), process.informers.of(kind).list())
            )
            if stored != known:
                return f"{kind.__name__} {sorted(stored.items() ^ known.items())}"
        if self.groups is not None:
            states = process.assembly.frameworks["default-scheduler"].handle.groups
            assert states is not None, "a scheduler that knows groups"
            if (counted := self.groups.difference(states)) is not None:
                return counted
        if self.devices is not None and (held := self.devices.difference(incarnation)) is not None:
            return held
        rows = scheduler.cache.table.row_of.keys() ^ {
            node["metadata"]["name"] for node in self._cluster.nodes()
        }
        return f"rows {sorted(rows)}" if rows else None


def _is_called_unschedulable(pod: JsonObject) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(
        condition["type"] == "PodScheduled" and condition["status"] == "False"
        for condition in conditions
    )


def _binder() -> str:
    """The process whose binding is being committed; "" if no process sent it."""
    return SENDER.get() or OWNER.get()  # an extender binds in a task of its caller


def _position(incarnation: Incarnation) -> object:
    """Changes whenever the pods in a process's cache or queue change."""
    scheduler = incarnation.process.assembly.scheduler
    queue, cache, table = scheduler.queue, scheduler.cache, scheduler.cache.table
    return (
        incarnation.pods.version,
        *queue.sizes,
        queue.in_flight_count,
        queue.scheduling_cycle,
        queue.nominator.version,
        cache.assumed_count,
        table.pod_log.end,
        table.node_log.end,
    )


def check_own_invariants(incarnation: Incarnation) -> None:
    try:
        incarnation.process.assembly.scheduler.check_invariants()
    except AssertionError as error:
        raise Violation(
            "queue and cache do not contradict themselves", f"{incarnation.name}: {error}"
        ) from error


def check_wake_ups(incarnation: Incarnation) -> None:
    """Every pod that waits for an event also has a timer that retries it."""
    queue = incarnation.process.assembly.scheduler.queue
    due = queue.next_deadline()
    for pod in queue.unschedulable_pods():
        info = queue.get_pod(pod.metadata.namespace, pod.metadata.name)
        if info is None or info.is_gated:
            continue
        if queue.is_behind_head(pod.metadata.namespace, pod.metadata.name):
            continue  # tried after the head of its class
        since = max(info.timestamp, info.flush_timestamp or 0.0)
        if due is None or due > since + MAX_WAIT_S:
            raise Violation(
                "every unschedulable pod has a wake-up",
                f"{incarnation.name}: {pod.metadata.name} waits since {since:.3f} s, "
                f"woken at {due}",
            )


def overcommitment(node: JsonObject, pods: Iterable[JsonObject]) -> str | None:
    """The limit of the node that these pods exceed; None if they fit."""
    pods = list(pods)
    room = node["status"]["allocatable"]
    if len(pods) > int(room["pods"]):
        return f"{len(pods)} pods where {room['pods']} fit"
    for resource in RESOURCES:
        wanted, fit = sum(_amount(_request(pod, resource)) for pod in pods), _amount(room[resource])
        if wanted > fit:
            return f"{resource} requests of {wanted} where {fit} fit"
    return None


def roomier(one: JsonObject, other: JsonObject) -> JsonObject:
    """A node with the larger amount of each resource."""
    a, b = one["status"]["allocatable"], other["status"]["allocatable"]
    room = {name: max(a[name], b[name], key=_amount) for name in a}
    return {"status": {"allocatable": room}}


def less_demanding(one: JsonObject, other: JsonObject) -> JsonObject:
    """A pod with the smaller amount of each request."""
    requests = {
        name: min(_request(one, name), _request(other, name), key=_amount) for name in RESOURCES
    }
    return {"spec": {"containers": [{"resources": {"requests": requests}}]}}


def _request(pod: JsonObject, resource: str) -> str:
    requests = pod["spec"]["containers"][0].get("resources", {}).get("requests", {})
    request: str = str(requests.get(resource, "0"))
    return request


def _amount(text: str) -> int:
    """Millicores or bytes, in the notations that the workloads use."""
    for suffix, factor in (("m", 1), ("Mi", 2**20), ("Gi", 2**30)):
        if text.endswith(suffix):
            return int(text.removesuffix(suffix)) * factor
    return int(text) * 1000
