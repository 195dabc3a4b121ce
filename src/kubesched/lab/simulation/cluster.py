"""The simulated cluster: embedded API server, kubelets, pod garbage collection, administrator."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from random import Random
from typing import TypeVar

import msgspec

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.kinds import kind_of
from kubesched.api.meta import Record
from kubesched.api.times import format_time
from kubesched.base.errors import NotFound
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.insight.state.virtual_loop import LoopClock, VirtualLoop
from kubesched.lab.simulation import devices, storage, workloads
from kubesched.lab.simulation.devices import SimulatedDevices
from kubesched.lab.simulation.storage import SimulatedStorage
from kubesched.lab.simulation.trace import Trace
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.client.local import LocalApi
from kubesched.playground.control_plane import build_registry
from kubesched.playground.server.api_server import ApiServer
from kubesched.playground.storage.store import Change, Store

GROUPS = "podgroups.scheduling.k8s.io"
COMPOSITES = "compositepodgroups.scheduling.k8s.io"
BUDGETS = "poddisruptionbudgets.policy"
LEASES = "leases.coordination.k8s.io"
WATCHED = ("pods", "nodes", LEASES)
R = TypeVar("R", bound=Record)
FINISHED = ("Succeeded", "Failed")


class SimulatedCluster:
    """Server, kubelets and pod garbage collection, which take virtual time and never fail."""

    def __init__(
        self,
        loop: VirtualLoop,
        random: Random,
        trace: Trace,
        extras: Sequence[str] = (),
        gates: FeatureGates = DEFAULT_GATES,
    ) -> None:
        """`extras` as in `options.EXTRAS`."""
        clock = LoopClock(loop)
        self._loop = loop
        self._random = random
        self._trace = trace
        self.store = Store()
        registry = build_registry(self.store, clock=clock, rng=random, gates=gates)
        self.api = LocalApi(registry)
        self.server = ApiServer(registry, clock=clock, rng=random)
        self._node_count = self._pod_count = self._group_count = 0
        self._template: JsonObject | None = None
        for made in workloads.priority_classes():
            self.api.create("priorityclasses.scheduling.k8s.io", made)
        self._extras = extras
        self._watched: tuple[str, ...] = WATCHED
        self.has_groups = gates.GenericWorkload
        if self.has_groups:
            self._watched += (GROUPS,)
        self.has_composites = gates.CompositePodGroup
        if self.has_composites:
            self._watched += (COMPOSITES,)
        self._has_group_claims = gates.DRAWorkloadResourceClaims and "devices" in extras
        self.storage: SimulatedStorage | None = None
        if "volumes" in extras:
            self._watched += (storage.CLAIMS, storage.VOLUMES)
            self.storage = SimulatedStorage(loop, self.store, self.api, clock, random)
        self.devices: SimulatedDevices | None = None
        if "devices" in extras:
            self._watched += (devices.CLAIMS, devices.SLICES)
            self.devices = SimulatedDevices(loop, self.store, self.api, clock, random, gates)
        if "budgets" in extras:
            self._watched += (BUDGETS,)
            for app in workloads.APPS:
                self.api.create(BUDGETS, workloads.budget(app, random.randint(0, 8)))
        self.first_backup = self.store.revision
        """The oldest revision for `restore`."""
        self.pods_may_end = True
        """Whether some pods succeed a while after their binding."""
        self._is_recount_due = False
        self._repelled: list[JsonObject] = []
        """Labels of pods that others repelled by terms that select namespaces."""
        for resource in self._watched:
            self.store.subscribe(resource, lambda change, r=resource: self._on_change(r, change))  # type: ignore[misc]  # bound per resource

    # Controllers.

    def _on_change(self, resource: str, change: Change) -> None:
        metadata = change.entry.obj["metadata"]
        spec, status = change.entry.obj.get("spec") or {}, change.entry.obj.get("status") or {}
        said = spec.get("nodeName") or spec.get("holderIdentity") or ""
        nominated = status.get("nominatedNodeName") or ""
        self._trace.add(
            "commit",
            f"{change.revision} {change.type} {resource} {metadata['name']}"
            f" {zlib.crc32(change.entry.body):08x} {said}"
            f"{' nominated ' + nominated if nominated else ''}",
        )
        if resource == "pods":
            self._on_pod(change)
            if "budgets" in self._extras:
                self._recount_soon()
        elif resource == "nodes" and change.type == "DELETED":
            self._loop.call_later(
                self._random.uniform(0.5, 5.0), self._collect_pods_of, metadata["name"]
            )

    def _on_pod(self, change: Change) -> None:
        pod, metadata = change.entry.obj, change.entry.obj["metadata"]
        if change.type == "DELETED":
            return
        if change.type == "ADDED":
            side = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
            self._repelled += (
                term["labelSelector"]["matchLabels"]
                for term in side.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
                if "namespaceSelector" in term
            )
        if metadata.get("deletionTimestamp"):
            self._loop.call_later(
                self._random.uniform(0.05, 2.0),
                self._finish_deletion,
                metadata["name"],
                metadata["uid"],
            )
        was_bound = change.old is not None and change.old.obj["spec"].get("nodeName")
        if pod["spec"].get("nodeName") and not was_bound:
            names = metadata["name"], metadata["uid"]
            self._loop.call_later(self._random.uniform(0.1, 9.0), self._start, *names)
            if self._random.random() < 0.1:
                self._loop.call_later(self._random.uniform(1.0, 30.0), self._succeed, *names)

    def _recount_soon(self) -> None:
        if not self._is_recount_due:
            self._is_recount_due = True
            self._loop.call_later(self._random.uniform(0.05, 3.0), self._recount_budgets)

    def _recount_budgets(self) -> None:
        """Act as the disruption controller; every pod with a node counts as healthy."""
        self._is_recount_due = False
        running = [
            pod["metadata"].get("labels") or {}
            for pod in self.active_pods()
            if pod["spec"].get("nodeName") and not _is_leaving(pod)
        ]
        for budget in self.api.list(BUDGETS)[0]:
            wanted = budget["spec"]["selector"]["matchLabels"].items()
            healthy = sum(wanted <= labels.items() for labels in running)
            allowed = max(0, healthy - budget["spec"]["minAvailable"])
            if (budget.get("status") or {}).get("disruptionsAllowed") != allowed:
                status = {"disruptionsAllowed": allowed, "currentHealthy": healthy}
                name = budget["metadata"]["name"]
                self.api.patch(BUDGETS, "default", name, {"status": status}, subresource="status")

    def _finish_deletion(self, name: str, uid: str) -> None:
        pod = self.find_pod(name)
        if pod is not None and pod["metadata"]["uid"] == uid:
            self.api.delete("pods", "default", name, grace_period_s=0)

    def _start(self, name: str, uid: str) -> None:
        started = format_time(round(self._loop.time()))
        self._report(name, uid, {"phase": "Running", "startTime": started})

    def _succeed(self, name: str, uid: str) -> None:
        if self.pods_may_end:
            self._report(name, uid, {"phase": "Succeeded"})

    def _report(self, name: str, uid: str, status: JsonObject) -> None:
        """Act as the kubelet of a pod that is not finished."""
        pod = self.find_pod(name)
        if pod is None or pod["metadata"]["uid"] != uid or _is_leaving(pod):
            return
        if pod["spec"].get("nodeName") and (pod.get("status") or {}).get("phase") not in FINISHED:
            self.api.patch("pods", "default", name, {"status": status}, subresource="status")

    def _collect_pods_of(self, node_name: str) -> None:
        if self.has_node(node_name):
            return
        for pod in self.pods():
            if pod["spec"].get("nodeName") == node_name:
                self.api.delete("pods", "default", pod["metadata"]["name"], grace_period_s=0)

    # Queries.

    def find_pod(self, name: str) -> JsonObject | None:
        try:
            return self.api.get("pods", "default", name)
        except NotFound:
            return None

    def find_node(self, name: str) -> JsonObject | None:
        entry = self.store.get("nodes", "", name)
        return None if entry is None else entry.obj

    def has_node(self, name: str) -> bool:
        return self.find_node(name) is not None

    def pods(self) -> list[JsonObject]:
        return self.api.list("pods")[0]

    def nodes(self) -> list[JsonObject]:
        return self.api.list("nodes")[0]

    def active_pods(self) -> list[JsonObject]:
        """Unfinished pods, which a scheduler sees."""
        return [
            pod for pod in self.pods() if (pod.get("status") or {}).get("phase") not in FINISHED
        ]

    def was_repelled(self, labels: Mapping[str, str]) -> bool:
        """Whether a pod, which may be gone, repels pods with these labels in some namespaces."""
        return any(wanted.items() <= labels.items() for wanted in self._repelled)

    def records(self) -> tuple[list[Node], list[Pod]]:
        """Nodes and active pods as the scheduler's types."""
        return (
            [msgspec.convert(node, Node) for node in self.nodes()],
            [msgspec.convert(pod, Pod) for pod in self.active_pods()],
        )

    def records_of(self, record: type[R]) -> list[R]:
        """All objects of a kind."""
        objects, _revision = self.api.list(kind_of(record).resource)
        return [msgspec.convert(obj, record) for obj in objects]

    # Users.

    def add_node(self) -> None:
        self._node_count += 1
        name = f"n{self._node_count}"
        node = self.api.create("nodes", workloads.node(name, self._random))
        if self.storage is not None:
            self.storage.equip(name)
        if self.devices is not None:
            self.devices.equip(node)

    def add_pod(self, mixes: Sequence[str], *, replicas: bool = False) -> None:
        """Create a pod; with `replicas` it is usually a copy of the previous one."""
        self._pod_count += 1
        name = f"p{self._pod_count}"
        if not replicas:
            self._create_pod(workloads.pod(name, mixes, self._random))
            return
        if self._template is None or self._random.random() < 0.3:
            self._template = workloads.pod(name, mixes, self._random)
        pod = deepcopy(self._template)
        pod["metadata"]["name"] = name
        self._create_pod(pod)

    def _create_pod(self, pod: JsonObject) -> None:
        if self.storage is not None:
            self.storage.promise_claims(pod)
        self.api.create("pods", pod)

    def add_group(self, mixes: Sequence[str], size: int, *, at_once: bool = False) -> None:
        """Create pods and their group, in any order and perhaps over some seconds."""
        random = self._random
        self._group_count += 1
        name = f"g{self._group_count}"
        template = workloads.pod(name, mixes, random)
        if random.random() < 0.5:  # groups that preempt are rare otherwise
            workloads.MIXES["priorities"](template, random)
        group = workloads.pod_group(name, template, size, random)
        if self._has_group_claims and random.random() < 0.6:
            workloads.share_claims(group, template, random)
        if self.has_composites and random.random() < 0.5:
            for parent in workloads.composites(group, template, random):
                self._loop.call_later(
                    random.choice((0.0, random.uniform(0.0, 4.0))),
                    partial(self._restore_group, COMPOSITES, parent),
                )
        steps: list[Callable[[], object]] = [
            partial(self.add_member, name, template if random.random() < 0.9 else None)
            for _ in range(size)
        ]
        if at_once or random.random() < 0.97:  # else there is no such group
            steps.insert(random.randint(0, size), partial(self.api.create, GROUPS, group))
        within_s = 0.0 if at_once or random.random() < 0.6 else random.uniform(0.0, 4.0)
        for number, step in enumerate(steps):
            self._loop.call_later(number * within_s / size, step)

    def add_member(self, group: str, template: JsonObject | None = None) -> None:
        """Create a member like this one, or like any of the group, or small."""
        self._pod_count += 1
        if template is None:
            peers = [pod for pod in self.pods() if workloads.group_name(pod) == group]
            template = peers[0] if peers else workloads.pod("", ("plain",), self._random)
        spec = {name: value for name, value in template["spec"].items() if name not in _PLACED}
        spec["schedulingGroup"] = {"podGroupName": group}
        metadata = {
            "name": f"p{self._pod_count}",
            "namespace": "default",
            "labels": template["metadata"]["labels"],
        }
        self._create_pod(deepcopy({"metadata": metadata, "spec": spec}))

    def change_something(self) -> None:
        """Make one change, as an administrator, an autoscaler or an owner would."""
        extras = self._extras
        changes: list[Callable[[], None]] = [
            *(self.add_node, self._remove_node, self._relabel_node, self._taint_node),
            *(self._cordon_node, self._delete_pod, self._delete_pod, self.ungate_one),
            *(self._recreate_pod, self._relabel_namespace, self._compact),
        ]
        if "resizing" in extras:
            changes += self._resize_node, self._resize_node
        if "resizes" in extras:
            changes += self.resize_pod, self.resize_pod, self._relabel_pod
        if "odd objects" in extras:
            changes += self._add_odd_pod, self._add_odd_node
        if "budgets" in extras:
            changes.append(self._change_budget)
        if self.has_groups:
            changes += self._delete_group, self._change_min_count, self._grow_group
        if (storage := self.storage) is not None:
            changes += storage.delete_claim, storage.refuse_node, storage.refuse_node
        if (devices := self.devices) is not None:
            changes += devices.change_slice, devices.change_slice
            changes += devices.delete_resource_claim, devices.restore_shared_claims
        change = self._random.choice(changes)
        name = change.__name__.strip("_")
        self._trace.add("change", name)
        self._trace.census.tally("cluster", name)
        change()

    def _some_node(self) -> JsonObject | None:
        nodes = self.nodes()
        return self._random.choice(nodes) if nodes else None

    def _remove_node(self) -> None:
        node = self._some_node()
        if node is not None and len(self.nodes()) > 1:
            self.api.delete("nodes", None, node["metadata"]["name"])

    def _relabel_node(self) -> None:
        node = self._some_node()
        if node is not None:
            self._patch_node(node, {"metadata": {"labels": workloads.node_labels(self._random)}})

    def _relabel_namespace(self) -> None:
        labels = {"team": self._random.choice(workloads.TEAMS)}
        self.api.patch("namespaces", None, "default", {"metadata": {"labels": labels}})

    def _taint_node(self) -> None:
        node = self._some_node()
        if node is not None:
            taints = None if node["spec"].get("taints") else [workloads.TAINT]
            self._patch_node(node, {"spec": {"taints": taints}})

    def _cordon_node(self) -> None:
        node = self._some_node()
        if node is not None:
            is_cordoned = node["spec"].get("unschedulable", False)
            self._patch_node(node, {"spec": {"unschedulable": not is_cordoned}})

    def _resize_node(self) -> None:
        """Change a node's allocatable, as after a kubelet reconfiguration."""
        node = self._some_node()
        if node is not None:
            room = workloads.node("", self._random)["status"]["allocatable"]
            patch: JsonObject = {"status": {"allocatable": room}}
            name = node["metadata"]["name"]
            self.api.patch("nodes", None, name, patch, subresource="status")

    def resize_pod(self) -> None:
        """Change a placed pod's requests, without the scheduler."""
        placed = [pod for pod in self._staying_pods() if pod["spec"].get("nodeName")]
        if placed:
            self.set_requests(self._random.choice(placed), workloads.requests(self._random))

    def set_requests(self, pod: JsonObject, requests: JsonObject) -> None:
        first, *others = pod["spec"]["containers"]
        resources = first["resources"]
        resources = {**resources, "requests": {**resources["requests"], **requests}}
        containers = [{**first, "resources": resources}, *others]
        patch: JsonObject = {"spec": {"containers": containers}}
        name = pod["metadata"]["name"]
        self.api.patch("pods", "default", name, patch, subresource="resize")

    def shrink_pod(self) -> None:
        """Reduce a placed pod's requests to the minimum."""
        placed = [pod for pod in self._staying_pods() if pod["spec"].get("nodeName")]
        if placed:
            self.set_requests(self._random.choice(placed), {"cpu": "1m", "memory": "1Mi"})

    def _relabel_pod(self) -> None:
        pods = self._staying_pods()
        if pods:
            name = self._random.choice(pods)["metadata"]["name"]
            labels = {"app": self._random.choice(workloads.APPS)}
            self.api.patch("pods", "default", name, {"metadata": {"labels": labels}})

    def _staying_pods(self) -> list[JsonObject]:
        return [pod for pod in self.active_pods() if not _is_leaving(pod)]

    def _add_odd_pod(self) -> None:
        """Create a pod with maximal fields and text in many scripts."""
        self._pod_count += 1
        made = workloads.pod(f"p{self._pod_count}", ("plain",), self._random)
        self._create_pod(workloads.oddly(made, self._random))

    def _add_odd_node(self) -> None:
        self._node_count += 1
        made = workloads.node(f"n{self._node_count}", self._random)
        self.api.create("nodes", workloads.oddly(made, self._random))

    def restore(self, to_revision: int | None = None) -> bool:
        """Restore an older revision (default: random), like a backup; False if it is compacted."""
        oldest = max(self.first_backup, *(each.compacted for each in self.store.collections()))
        if oldest >= self.store.revision or (to_revision is not None and to_revision < oldest):
            return False
        revision, newest = to_revision, self.store.revision
        if revision is None:
            reach = self._random.choice((20, 100, 1000))
            revision = self._random.randint(max(oldest, newest - reach), newest)
        self._trace.add("restore", f"from revision {self.store.revision} to {revision}")
        self.store.rewind(revision)
        for pod in self.pods():
            metadata = pod["metadata"]
            if _is_leaving(pod):
                self._loop.call_later(
                    self._random.uniform(0.05, 2.0),
                    self._finish_deletion,
                    *(metadata["name"], metadata["uid"]),
                )
            node_name = pod["spec"].get("nodeName")
            if node_name and not self.has_node(node_name):
                self._loop.call_later(
                    self._random.uniform(0.5, 5.0), self._collect_pods_of, node_name
                )
        if "budgets" in self._extras:
            self._recount_soon()
        return True

    def _change_budget(self) -> None:
        name = self._random.choice(self.api.list(BUDGETS)[0])["metadata"]["name"]
        patch: JsonObject = {"spec": {"minAvailable": self._random.randint(0, 8)}}
        self.api.patch(BUDGETS, "default", name, patch)
        self._recount_soon()

    def groups(self) -> list[JsonObject]:
        return self.api.list(GROUPS)[0] if self.has_groups else []

    def _delete_group(self) -> None:
        """Delete a group at once, whatever protects it; often it is made anew."""
        groups = [(GROUPS, group) for group in self.groups()]
        if self.has_composites:
            groups += [(COMPOSITES, group) for group in self.api.list(COMPOSITES)[0]]
        if not groups:
            return
        kind, group = self._random.choice(groups)
        metadata = group["metadata"]
        self.api.delete(kind, "default", metadata["name"])
        if kind == GROUPS:
            patch: JsonObject = {"metadata": {"finalizers": None}}
            self.api.patch(GROUPS, "default", metadata["name"], patch)
        if self._random.random() < 0.7:
            anew = {
                "metadata": {"name": metadata["name"], "namespace": "default"},
                "spec": {name: part for name, part in group["spec"].items() if name != "priority"},
            }
            self._loop.call_later(self._random.uniform(0.0, 4.0), self._restore_group, kind, anew)

    def _restore_group(self, kind: str, group: JsonObject) -> None:
        if self.store.get(kind, "default", group["metadata"]["name"]) is None:
            self.api.create(kind, group)

    def _change_min_count(self) -> None:
        gangs = [group for group in self.groups() if "gang" in group["spec"]["schedulingPolicy"]]
        if gangs:
            name = self._random.choice(gangs)["metadata"]["name"]
            gang = {"minCount": self._random.randint(1, 4)}
            patch: JsonObject = {"spec": {"schedulingPolicy": {"gang": gang}}}
            self.api.patch(GROUPS, "default", name, patch)

    def _grow_group(self) -> None:
        groups = self.groups()
        if groups:
            self.add_member(self._random.choice(groups)["metadata"]["name"])

    def touch_nodes(self) -> None:
        """Update every node, which retries pods rejected for reasons that no event reports."""
        for node in self.nodes():
            self._patch_node(node, {"metadata": {"labels": {"example.com/touched": "yes"}}})

    def _patch_node(self, node: JsonObject, patch: JsonObject) -> None:
        self.api.patch("nodes", None, node["metadata"]["name"], patch)

    def _delete_pod(self) -> None:
        pods = [pod for pod in self.pods() if not _is_leaving(pod)]
        if pods:
            self.api.delete("pods", "default", self._random.choice(pods)["metadata"]["name"])

    def _recreate_pod(self) -> None:
        """Delete a pod and re-create it at once under its name, as StatefulSets do."""
        pods = [pod for pod in self.pods() if not _is_leaving(pod)]
        if not pods:
            return
        old = self._random.choice(pods)
        name = old["metadata"]["name"]
        self.api.delete("pods", "default", name, grace_period_s=0)
        new = workloads.pod(name, self._all_mixes, self._random)
        if "schedulingGroup" in old["spec"]:
            kept = ("schedulingGroup", "priorityClassName")
            new["spec"].pop("priorityClassName", None)
            new["spec"].update({key: old["spec"][key] for key in kept if key in old["spec"]})
        self._create_pod(new)

    @property
    def _all_mixes(self) -> tuple[str, ...]:
        absent = {"volumes"} if self.storage is None else set()
        absent |= {"devices"} if self.devices is None else set()
        return tuple(mix for mix in workloads.MIXES if mix not in absent)

    def ungate_one(self) -> None:
        gated = [pod for pod in self.pods() if pod["spec"].get("schedulingGates")]
        if gated:
            name = self._random.choice(gated)["metadata"]["name"]
            self.api.patch("pods", "default", name, {"spec": {"schedulingGates": None}})

    def open_gates(self) -> None:
        """Remove the scheduling gates of all pods, one after the other."""
        self.ungate_one()
        if any(pod["spec"].get("schedulingGates") for pod in self.pods()):
            self._loop.call_later(0.3, self.open_gates)

    def _compact(self) -> None:
        """Compact the history: lagging watches and paged lists fail with 410 Gone."""
        for resource in self._watched:
            self.store.collection(resource).compact(self.store.revision)


_PLACED = ("nodeName", "priority", "preemptionPolicy")
"""Fields of a pod's spec that are set for it."""


def _is_leaving(pod: JsonObject) -> bool:
    return pod["metadata"].get("deletionTimestamp") is not None
