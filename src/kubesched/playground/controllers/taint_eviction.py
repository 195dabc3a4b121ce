"""Taint-based eviction: deletes pods from nodes whose NoExecute taints they do not tolerate.

A toleration with `tolerationSeconds` delays the eviction, counted from when the taint was first
seen for the pod; the shortest applicable delay wins.
"""

from __future__ import annotations

from kubesched.api.core_v1 import Taint, Toleration
from kubesched.api.tolerations import NO_EXECUTE, tolerates
from kubesched.base.errors import NotFound
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    is_deleting,
    key_of,
    name_of,
    spec_of,
    uid_of,
)
from kubesched.playground.apimachinery.pods import (
    disrupted,
    is_finished,
    node_name_of,
    taints_of,
    tolerations_of,
)
from kubesched.playground.client.controller import Controller, ControllerContext
from kubesched.playground.client.informers import BY_NODE


class TaintEvictionController(Controller[str]):
    """Deletes pods that do not tolerate their node's taints."""

    name = "tainteviction"
    component = "taint-eviction-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._tainted_since: dict[str, float] = {}  # pod uid: when its delay started
        self._nodes = self.watch("nodes", self._node_changed)
        self._pods = self.watch("pods", self._pod_changed, BY_NODE)

    def sync(self, key: str) -> float | None:
        pod = self._pods.get(key)
        if pod is None or is_deleting(pod) or is_finished(pod):
            return None
        node = self._nodes.get(node_name_of(pod))
        taints = [taint for taint in taints_of(node) if taint.effect == NO_EXECUTE] if node else []
        stay_s = may_stay_s(taints, tolerations_of(spec_of(pod)))
        if stay_s is None:
            self._cancel(pod)
            return None
        since = self._tainted_since.setdefault(uid_of(pod), self.clock.monotonic())
        left_s = since + stay_s - self.clock.monotonic()
        if left_s > 0:
            return left_s
        self._evict(pod)
        return None

    def _cancel(self, pod: JsonObject) -> None:
        if self._tainted_since.pop(uid_of(pod), None) is not None:
            self.normal(pod, "TaintManagerEviction", f"Cancelling deletion of Pod {key_of(pod)}")

    def _evict(self, pod: JsonObject) -> None:
        self.normal(pod, "TaintManagerEviction", f"Marking for deletion Pod {key_of(pod)}")
        why = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
        conditions = disrupted(pod, self.clock.now(), *why)
        try:
            self.api.patch_object("pods", pod, {"status": {"conditions": conditions}}, "status")
        except NotFound:
            return
        self.api.delete_object("pods", pod)

    def _pod_changed(self, kind: str, pod: JsonObject, old: JsonObject | None) -> None:
        if kind == "DELETED":
            self._tainted_since.pop(uid_of(pod), None)
            return
        is_news = (
            old is None
            or node_name_of(old) != node_name_of(pod)
            or spec_of(old).get("tolerations") != spec_of(pod).get("tolerations")
        )
        if is_news and node_name_of(pod):
            node = self._nodes.get(node_name_of(pod))
            if node is not None and _has_no_execute(node):
                self.queue.add(key_of(pod))

    def _node_changed(self, kind: str, node: JsonObject, old: JsonObject | None) -> None:
        if kind == "DELETED" or (old is not None and spec_of(old) == spec_of(node)):
            return
        if _has_no_execute(node) or (old is not None and _has_no_execute(old)):
            for pod in self._pods.find(BY_NODE, name_of(node)):
                self.queue.add(key_of(pod))


def may_stay_s(taints: list[Taint], tolerations: list[Toleration]) -> float | None:
    """Seconds a pod may stay despite these taints; None for unlimited."""
    shortest: float | None = None
    for taint in taints:
        covering = [candidate for candidate in tolerations if tolerates(candidate, taint)]
        if not covering:
            return 0.0
        for toleration in covering:
            if toleration.toleration_seconds is not None:
                allowed = max(0.0, float(toleration.toleration_seconds))
                shortest = allowed if shortest is None else min(shortest, allowed)
    return shortest


def _has_no_execute(node: JsonObject) -> bool:
    return any(taint.get("effect") == NO_EXECUTE for taint in spec_of(node).get("taints") or ())
