"""Node health: detects silent kubelets and derives taints from node conditions.

    conditions, cordon ──► NoSchedule taints            (any node)
    Lease not renewed  ──► Ready becomes Unknown ──► NoExecute taint, pods not ready

Only nodes with a Lease are monitored: a node created by hand for a test keeps its conditions. The
`HeartbeatClock` measures silence, so that a slow host does not make nodes look silent.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubesched.api.tolerations import NO_EXECUTE, NO_SCHEDULE
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    condition,
    find_condition,
    name_of,
    namespace_of,
    spec_of,
    status_of,
    timestamp,
    with_condition,
)
from kubesched.playground.apimachinery.pods import is_finished, is_ready
from kubesched.playground.client.controller import LEASE_NAMESPACE, Controller, ControllerContext
from kubesched.playground.client.informers import BY_NODE

MONITOR_S = 5.0
GRACE_S = 50.0
SWEEP = ""

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"

_TAINT_BY_CONDITION = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}
_NO_SCHEDULE_TAINTS = frozenset({*_TAINT_BY_CONDITION.values(), UNSCHEDULABLE})
_NO_EXECUTE_TAINTS = frozenset({NOT_READY, UNREACHABLE})
_REPORTED_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


class NodeLifecycleController(Controller[str]):
    """Marks silent nodes and keeps taints in line with conditions."""

    name = "nodelifecycle"
    component = "node-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._heard_at: dict[str, float] = {}
        self._lease_s: dict[str, float] = {}
        self._swept_at = self.clock.monotonic()
        self._nodes = self.watch("nodes", self._node_changed)
        self.watch("leases.coordination.k8s.io", self._lease_changed)
        self._pods = self.watch("pods", None, BY_NODE)
        self.queue.add_after(SWEEP, MONITOR_S)

    def sync(self, key: str) -> float | None:
        if key == SWEEP:
            self._sweep()
            return MONITOR_S
        node = self._nodes.get(key)
        if node is None:
            return None
        node = self._mark_silent(node)
        self._keep_taints(node)
        if not _is_node_ready(node):
            self._mark_pods_not_ready(name_of(node))
        return None

    def _sweep(self) -> None:
        """Queue silent nodes."""
        swept_at, self._swept_at = self._swept_at, self.clock.monotonic()
        late_s = self._swept_at - swept_at - MONITOR_S
        if late_s > MONITOR_S:
            # The process was suspended, other programs' heartbeats are queued: ignore that time.
            self._heard_at = {name: at + late_s for name, at in self._heard_at.items()}
        now = self.context.heartbeats.monotonic()
        for name, heard_at in self._heard_at.items():
            if now - heard_at > self._patience_s(name):
                self.queue.add(name)

    def _patience_s(self, name: str) -> float:
        """Grace period of a node; longer for kubelets with longer leases."""
        return max(GRACE_S, self._lease_s.get(name, 0.0) + MONITOR_S)

    def _is_silent(self, name: str, heard_at: float) -> bool:
        patience_s = self._patience_s(name)
        # The heartbeat clock is never ahead and costs more to read.
        return (
            self.clock.monotonic() - heard_at > patience_s
            and self.context.heartbeats.monotonic() - heard_at > patience_s
        )

    def _mark_silent(self, node: JsonObject) -> JsonObject:
        name = name_of(node)
        heard_at = self._heard_at.get(name)
        if heard_at is None or not self._is_silent(name, heard_at):
            return node
        conditions: list[JsonObject] = status_of(node).get("conditions") or []
        now = self.clock.now()
        updated = conditions
        for condition_type in _REPORTED_CONDITIONS:
            known = find_condition(conditions, condition_type)
            if known is not None and known.get("status") == "Unknown":
                continue
            heartbeat = (known or {}).get("lastHeartbeatTime") or timestamp(now)
            updated = with_condition(
                updated,
                condition_type,
                "Unknown",
                now,
                reason="NodeStatusUnknown" if known else "NodeStatusNeverUpdated",
                message=(
                    "Kubelet stopped posting node status."
                    if known
                    else "Kubelet never posted node status."
                ),
                extra={"lastHeartbeatTime": heartbeat},
            )
        if updated == conditions:
            return node
        self.normal(node, "NodeNotReady", f"Node {name} status is now: NodeNotReady")
        patch = {"status": {"conditions": updated}}
        return self.api.patch_object("nodes", node, patch, "status")

    def _keep_taints(self, node: JsonObject) -> None:
        taints: list[JsonObject] = spec_of(node).get("taints") or []
        wanted = list(_wanted_taints(node))
        kept = [taint for taint in taints if not _is_ours(taint) or _identity(taint) in wanted]
        known = {_identity(other) for other in kept}
        added = [
            {"key": key, "effect": effect, "timeAdded": timestamp(self.clock.now())}
            for key, effect in wanted
            if (key, effect) not in known
        ]
        if added or len(kept) != len(taints):
            patch = {"spec": {"taints": [*kept, *added] or None}}
            self.api.patch_object("nodes", node, patch)

    def _mark_pods_not_ready(self, node_name: str) -> None:
        """Mark the pods of a silent node not ready, so that services stop routing to them."""
        for pod in self._pods.find(BY_NODE, node_name):
            if is_finished(pod) or not is_ready(pod):
                continue
            conditions = with_condition(
                status_of(pod).get("conditions"), "Ready", "False", self.clock.now()
            )
            self.api.patch_object("pods", pod, {"status": {"conditions": conditions}}, "status")
            self.warning(pod, "NodeNotReady", "Node is not ready")

    def _node_changed(self, kind: str, node: JsonObject, old: JsonObject | None) -> None:
        name = name_of(node)
        if kind == "DELETED":
            self._heard_at.pop(name, None)
            self._lease_s.pop(name, None)
            return
        if old is None or spec_of(old) != spec_of(node) or _statuses(old) != _statuses(node):
            self.queue.add(name)

    def _lease_changed(self, kind: str, lease: JsonObject, old: JsonObject | None) -> None:
        if namespace_of(lease) != LEASE_NAMESPACE:
            return
        name = name_of(lease)
        if kind == "DELETED":
            return
        self._lease_s[name] = float(spec_of(lease).get("leaseDurationSeconds") or 0)
        was_silent = name in self._heard_at and self.clock.monotonic() - self._heard_at[
            name
        ] > self._patience_s(name)
        self._heard_at[name] = self.clock.monotonic()
        if was_silent:
            self.queue.add(name)


def _wanted_taints(node: JsonObject) -> Iterable[tuple[str, str]]:
    for (condition_type, status), key in _TAINT_BY_CONDITION.items():
        entry = condition(node, condition_type)
        if entry is not None and entry.get("status") == status:
            yield key, NO_SCHEDULE
            if key in _NO_EXECUTE_TAINTS:
                yield key, NO_EXECUTE
    if spec_of(node).get("unschedulable"):
        yield UNSCHEDULABLE, NO_SCHEDULE


def _is_ours(taint: JsonObject) -> bool:
    key, effect = _identity(taint)
    return (effect == NO_SCHEDULE and key in _NO_SCHEDULE_TAINTS) or (
        effect == NO_EXECUTE and key in _NO_EXECUTE_TAINTS
    )


def _identity(taint: JsonObject) -> tuple[str, str]:
    return taint.get("key", ""), taint.get("effect", "")


def _statuses(node: JsonObject) -> dict[str, str]:
    conditions = status_of(node).get("conditions") or ()
    return {entry.get("type", ""): entry.get("status", "") for entry in conditions}


def _is_node_ready(node: JsonObject) -> bool:
    # Ignore nodes that never reported, and their pods.
    return _statuses(node).get("Ready", "True") == "True"
