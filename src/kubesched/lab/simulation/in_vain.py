"""Useless evictions: an extender rejects the preemptor on the node that was cleared for it.

Extenders are only asked about feasible nodes. Without a preempt verb, an extender cannot announce a
rejection, so the preemptor moves on to the next node, a less important pod takes its place, and so
on, as in kube-scheduler. It ends when no victim is left, because evicted pods do not come back.
"""

from __future__ import annotations

from collections.abc import Callable

from kubesched.insight.state.virtual_loop import SENDER
from kubesched.lab.simulation.cluster import SimulatedCluster
from kubesched.lab.simulation.rules import extender_objection
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.storage.store import Change


class EvictionsInVain:
    """Count and time of the last. Only for extenders that filter but take no part in preemption."""

    def __init__(self, cluster: SimulatedCluster, now: Callable[[], float]) -> None:
        self._cluster = cluster
        self._now = now
        self.count = 0
        self.last_at = 0.0
        cluster.store.subscribe("pods", self._on_pod)

    def _on_pod(self, change: Change) -> None:
        if change.type != "MODIFIED" or change.old is None or not SENDER.get():
            return
        victim, before = change.entry.obj, change.old.obj
        is_eviction = _is_leaving(victim) and not _is_leaving(before)
        if is_eviction and any(
            self._is_turned_away(pod, victim) for pod in self._cluster.active_pods()
        ):
            self.count += 1
            self.last_at = self._now()

    def _is_turned_away(self, preemptor: JsonObject, victim: JsonObject) -> bool:
        """Whether this pod is nominated to the victim's node, where the extender will reject it."""
        name = victim["spec"].get("nodeName")
        nominated = (preemptor.get("status") or {}).get("nominatedNodeName")
        if not name or nominated != name or preemptor["spec"].get("nodeName"):
            return False
        node = self._cluster.find_node(name)
        is_above = preemptor["spec"].get("priority", 0) > victim["spec"].get("priority", 0)
        return is_above and node is not None and extender_objection(preemptor, node) is not None


def _is_leaving(pod: JsonObject) -> bool:
    return pod["metadata"].get("deletionTimestamp") is not None
