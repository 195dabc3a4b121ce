"""Pod garbage collection: pods whose node is gone, and finished pods beyond a limit.

Runs every twenty seconds. Pods of a missing node are deleted after forty seconds, because
re-registering a node deletes and recreates it.
"""

from __future__ import annotations

from kubesched.playground.apimachinery.objects import (
    JsonObject,
    is_deleting,
    name_of,
    status_of,
)
from kubesched.playground.apimachinery.pods import FAILED, disrupted, is_finished
from kubesched.playground.client.controller import Controller, ControllerContext
from kubesched.playground.client.informers import BY_NODE, Index

SWEEP_S = 20.0
QUARANTINE_S = 40.0
SWEEP = "sweep"
FINISHED = Index(lambda pod: ("finished",) if is_finished(pod) else ())


class PodGcController(Controller[str]):
    """Deletes pods that no other controller removes."""

    name = "podgc"

    def __init__(self, context: ControllerContext, finished_limit: int = 12_500) -> None:
        super().__init__(context)
        self._finished_limit = finished_limit
        self._missing_since: dict[str, float] = {}
        self._nodes = self.watch("nodes", self._node_changed)
        self._pods = self.watch("pods", None, BY_NODE, FINISHED)
        self.queue.add_after(SWEEP, SWEEP_S)

    def sync(self, key: str) -> float | None:
        self._collect_orphans()
        self._collect_finished()
        for pod in self._pods.find(BY_NODE, ""):
            if is_deleting(pod):
                self.api.delete_object("pods", pod, grace_period_s=0)
        return SWEEP_S

    def _collect_orphans(self) -> None:
        now = self.clock.monotonic()
        missing: dict[str, float] = {}
        for node in self._pods.values(BY_NODE):
            if node and self._nodes.get(node) is None:
                since = missing[node] = self._missing_since.get(node, now)
                if now - since >= QUARANTINE_S:
                    for pod in self._pods.find(BY_NODE, node):
                        self._fail(pod)
                        self.api.delete_object("pods", pod, grace_period_s=0)
        self._missing_since = missing

    def _collect_finished(self) -> None:
        surplus = self._pods.count(FINISHED, "finished") - self._finished_limit
        if self._finished_limit <= 0 or surplus <= 0:
            return
        oldest_first = sorted(
            self._pods.find(FINISHED, "finished"),
            key=lambda pod: (pod["metadata"].get("creationTimestamp", ""), name_of(pod)),
        )
        for pod in oldest_first[:surplus]:
            self.api.delete_object("pods", pod, grace_period_s=0)

    def _fail(self, pod: JsonObject) -> None:
        """Record in the status why the pod was terminated."""
        if is_finished(pod):
            return
        why = ("DeletionByPodGC", "PodGC: node no longer exists")
        conditions = disrupted(pod, self.clock.now(), *why)
        status = {**status_of(pod), "phase": FAILED, "conditions": conditions}
        self.api.patch_object("pods", pod, {"status": status}, "status")

    def _node_changed(self, kind: str, node: JsonObject, old: JsonObject | None) -> None:
        if kind == "DELETED":
            self._missing_since.setdefault(name_of(node), self.clock.monotonic())
        elif kind == "ADDED":
            self._missing_since.pop(name_of(node), None)
