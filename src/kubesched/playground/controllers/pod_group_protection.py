"""Removes the protection finalizer of deleted pod groups that no unfinished pod names."""

from __future__ import annotations

from kubesched.playground.apimachinery.objects import (
    POD_GROUP_FINALIZER,
    JsonObject,
    is_deleting,
    namespace_of,
    spec_of,
)
from kubesched.playground.apimachinery.pods import is_finished
from kubesched.playground.client.controller import Controller, ControllerContext
from kubesched.playground.client.informers import Index

POD_GROUPS = "podgroups.scheduling.k8s.io"


def group_of(pod: JsonObject) -> tuple[str, ...]:
    """Key of the group that a pod names."""
    group = spec_of(pod).get("schedulingGroup")
    return (f"{namespace_of(pod)}/{group.get('podGroupName', '')}",) if group else ()


BY_GROUP = Index(group_of, "spec")


class PodGroupProtection(Controller[str]):
    """Lets groups go when their pods are gone; admission has set the finalizer."""

    name = "podgroup-protection"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._groups = self.watch(POD_GROUPS, self.add_key)
        self._pods = self.watch("pods", self._pod_changed, BY_GROUP)

    def sync(self, key: str) -> float | None:
        group = self._groups.get(key)
        if group is None or not is_deleting(group):
            return None
        is_used = any(not is_finished(pod) for pod in self._pods.find(BY_GROUP, key))
        if POD_GROUP_FINALIZER in (group["metadata"].get("finalizers") or ()) and not is_used:
            self.api.remove_finalizer(POD_GROUPS, group, POD_GROUP_FINALIZER)
        return None

    def _pod_changed(self, kind: str, pod: JsonObject, old: JsonObject | None) -> None:
        if kind == "DELETED" or is_finished(pod):
            for key in group_of(pod):
                self.queue.add(key)
