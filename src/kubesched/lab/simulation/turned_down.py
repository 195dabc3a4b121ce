"""Pods that the misbehaving plugin rejected at Permit, without any event since.

The plugin would accept them by now, but no event reports that; kube-scheduler would also wait for
five minutes.
"""

from __future__ import annotations

from collections.abc import Callable

from kubesched.api.core_v1 import Pod
from kubesched.lab.simulation.cluster import SimulatedCluster
from kubesched.lab.simulation.plugins import TROUBLEMAKER, Mischief
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.storage.store import Change
from kubesched.scheduler.factory import Assembly


class TurnedDown:
    """Tracks the last event that may wake any pod."""

    def __init__(
        self, cluster: SimulatedCluster, mischief: Mischief, now: Callable[[], float]
    ) -> None:
        self._mischief = mischief
        self._now = now
        self._changed_at = 0.0
        for resource in cluster.waking:
            cluster.store.subscribe(resource, self._on_change)

    def _on_change(self, change: Change) -> None:
        if change.entry.obj["kind"] != "Pod" or _wakes_others(change):
            self._changed_at = self._now()

    def was_not_told(self, assembly: Assembly, pod: Pod) -> bool:
        """Whether the pod waits only because it was rejected, and there was no event since."""
        waiting = assembly.scheduler.queue.get_pod(pod.metadata.namespace, pod.metadata.name)
        gave_up_at = self._mischief.gave_up_at.get(pod.metadata.uid, 0.0)
        return (
            waiting is not None
            and waiting.rejector_plugins == {TROUBLEMAKER}
            and self._changed_at < gave_up_at
        )


def _wakes_others(change: Change) -> bool:
    """Whether a change may wake other pods; a status change of an unassigned pod does not."""
    pod = change.entry.obj
    if change.type == "DELETED" or pod["spec"].get("nodeName"):
        return True
    return change.old is not None and _asked(change.old.obj) != _asked(pod)


def _asked(pod: JsonObject) -> tuple[JsonObject, JsonObject | None, str | None]:
    metadata = pod["metadata"]
    return pod["spec"], metadata.get("labels"), metadata.get("deletionTimestamp")
