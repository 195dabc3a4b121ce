"""Node registration and heartbeats, for all nodes in one task.

Nodes are registered in order, in bursts. Their Lease renewals are spread evenly: the first renewal
is at a random time within the interval. A node created by another client is adopted: it gets a
Lease and, if it reports no health, the conditions of a healthy node.
"""

from __future__ import annotations

from kubesched.api.resources import is_extended
from kubesched.base.errors import AlreadyExists
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    annotations_of,
    condition,
    find_condition,
    is_deleting,
    micro_timestamp,
    name_of,
    spec_of,
    status_of,
    uid_of,
)
from kubesched.playground.client.controller import LEASE_NAMESPACE, Controller, ControllerContext
from kubesched.playground.kubelet.node_templates import (
    PlannedNode,
    build_node,
    plan_nodes,
    ready_conditions,
)
from kubesched.playground.kubelet.options import STOPPED, KubeletOptions

LEASES = "leases.coordination.k8s.io"
COMPONENT = "kubelet"

Key = tuple[str, str]
"""("register", number) or ("node", name)."""


class NodeKeeper(Controller[Key]):
    """Registers nodes and renews their Leases."""

    name = "kubelet-nodes"

    def __init__(self, context: ControllerContext, options: KubeletOptions) -> None:
        super().__init__(context)
        self._options = options
        self._rng = context.generator(self.name)
        self._planned = plan_nodes(options.pools, options.nodes)
        self._nodes = self.watch("nodes", self._node_changed)
        self._leases = self.watch(LEASES)
        context.heartbeats.follow(self.queue.lag_s)
        for index in range(len(self._planned)):
            self.queue.add(("register", str(index)))

    def sync(self, key: Key) -> float | None:
        kind, name = key
        if kind == "register":
            self._register(self._planned[int(name)])
            return None
        node = self._nodes.get(name)
        if node is None or is_deleting(node) or is_stopped(node):
            return None
        self._report_health(node)
        self._report_extended_resources(node)
        interval_s = self._options.heartbeat_interval_s(len(self._nodes))
        if self._renew(node, interval_s):
            # Randomize the first renewal, so that nodes do not renew at the same time.
            return self._rng.uniform(0.1, 1.0) * interval_s
        return interval_s

    def _register(self, planned: PlannedNode) -> None:
        try:
            version = self.api.release.git_version
            node = self.api.create("nodes", build_node(planned, self.clock.now(), version))
        except AlreadyExists:
            return  # restored from disk, or created by hand under this name
        self.events.normal(node, COMPONENT, "Starting", "Starting kubelet.", host=planned.name)
        message = f"Node {planned.name} status is now: NodeReady"
        self.events.normal(node, COMPONENT, "NodeReady", message, host=planned.name)

    def _report_health(self, node: JsonObject) -> None:
        """Report a live node as ready if its Ready condition is Unknown or missing."""
        ready = condition(node, "Ready")
        if ready is not None and ready.get("status") != "Unknown":
            return
        now = self.clock.now()
        known: list[JsonObject] = status_of(node).get("conditions") or []
        healthy = ready_conditions(now)
        others = [item for item in known if find_condition(healthy, item.get("type", "")) is None]
        patch = {"status": {"conditions": [*others, *healthy]}}
        self.api.patch_object("nodes", node, patch, "status")
        if ready is not None:
            message = f"Node {name_of(node)} status is now: NodeReady"
            self.events.normal(node, COMPONENT, "NodeReady", message, host=name_of(node))

    def _report_extended_resources(self, node: JsonObject) -> None:
        """Copy extended resources added to (or removed from) capacity to allocatable."""
        status = status_of(node)
        capacity, allocatable = _extended(status, "capacity"), _extended(status, "allocatable")
        added = {name: amount for name, amount in capacity.items() if name not in allocatable}
        removed = {name: None for name in allocatable if name not in capacity}
        if added or removed:
            patch = {"status": {"allocatable": {**added, **removed}}}
            self.api.patch_object("nodes", node, patch, "status")

    def _renew(self, node: JsonObject, interval_s: float) -> bool:
        """Renew the node's Lease; True if it was created."""
        name = name_of(node)
        duration = int(max(40.0, 4 * interval_s))
        spec: JsonObject = {"renewTime": micro_timestamp(self.clock.now())}
        lease = self._leases.get(f"{LEASE_NAMESPACE}/{name}")
        if lease is not None:
            if spec_of(lease).get("leaseDurationSeconds") != duration:
                spec["leaseDurationSeconds"] = duration  # the cluster grew: renewals are rarer
            self.api.update(LEASES, {**lease, "spec": {**spec_of(lease), **spec}})
            return False
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid_of(node)}
        new_lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": name,
                "namespace": LEASE_NAMESPACE,
                "ownerReferences": [owner],
            },
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": duration,
                **spec,
            },
        }
        self.api.create(LEASES, new_lease, LEASE_NAMESPACE)
        return True

    def _node_changed(self, kind: str, node: JsonObject, old: JsonObject | None) -> None:
        if kind == "DELETED":
            return
        is_news = old is None or is_stopped(old) != is_stopped(node)
        if is_news or _health(old) != _health(node) or _resources(old) != _resources(node):
            self.queue.add(("node", name_of(node)))


def is_stopped(node: JsonObject) -> bool:
    return annotations_of(node).get(STOPPED) == "true"


def _health(node: JsonObject | None) -> str:
    ready = condition(node, "Ready") if node is not None else None
    return str(ready.get("status")) if ready is not None else ""


def _resources(node: JsonObject | None) -> tuple[object, object]:
    status = status_of(node) if node is not None else {}
    return status.get("capacity"), status.get("allocatable")


def _extended(status: JsonObject, field: str) -> JsonObject:
    """Resources that the kubelet does not measure itself."""
    amounts: JsonObject = status.get(field) or {}
    return {name: amount for name, amount in amounts.items() if is_extended(name)}
