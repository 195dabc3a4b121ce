"""The namespace controller: empties a namespace that is being deleted, then removes it."""

from __future__ import annotations

from collections import Counter

from kubesched.base.errors import NotFound
from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    is_deleting,
    name_of,
    namespace_of,
    status_of,
    with_condition,
)
from kubesched.playground.client.controller import Controller, ControllerContext
from kubesched.playground.client.informers import EveryResource

FINALIZER = "kubernetes"
RECHECK_S = 5.0
"""Fallback interval while content remains; every deletion in the namespace also queues it."""

_FINE = {
    "NamespaceDeletionDiscoveryFailure": (
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": (
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
}
"""Conditions of a namespace that is being deleted, with reason and message if they are false."""


class NamespaceController(Controller[str]):
    """Empties namespaces that are being deleted."""

    name = "namespace"

    def __init__(self, context: ControllerContext, everything: EveryResource) -> None:
        super().__init__(context)
        self._everything = everything
        self._terminating: set[str] = set()
        everything.follow(self._changed)

    def sync(self, key: str) -> float | None:
        try:
            namespace = self.api.get("namespaces", None, key)
        except NotFound:
            return None
        if not is_deleting(namespace):
            return None
        # Upstream: pods go first, so that they do not lose what they use while they end.
        remaining: dict[str, list[JsonObject]] = {}
        for is_pods in (True, False):
            for resource in self._everything.resources():
                if resource.namespaced and (resource.key == "pods") is is_pods:
                    left = self._empty(resource, key)
                    if left:
                        remaining[f"{resource.plural}.{resource.group}"] = left
            if remaining:
                break
        if remaining:
            self._tell(namespace, remaining)
            return RECHECK_S
        self._finalize(namespace)
        return None

    def _empty(self, resource: ResourceInfo, namespace: str) -> list[JsonObject]:
        """Delete all objects of one resource; returns those that remain."""
        for obj in self.api.list(resource, namespace)[0]:
            if not is_deleting(obj):
                self.api.delete_object(resource, obj)
        return self.api.list(resource, namespace)[0]

    def _tell(self, namespace: JsonObject, remaining: dict[str, list[JsonObject]]) -> None:
        """Write what the namespace waits for into its conditions."""
        counts = sorted(
            f"{key} has {len(left)} resource instances" for key, left in remaining.items()
        )
        finalizers = Counter(
            finalizer
            for left in remaining.values()
            for obj in left
            for finalizer in obj["metadata"].get("finalizers") or ()
        )
        problems = {
            "NamespaceContentRemaining": (
                "SomeResourcesRemain",
                f"Some resources are remaining: {', '.join(counts)}",
            )
        }
        if finalizers:
            texts = sorted(
                f"{name} in {count} resource instances" for name, count in finalizers.items()
            )
            problems["NamespaceFinalizersRemaining"] = (
                "SomeFinalizersRemain",
                f"Some content in the namespace has finalizers remaining: {', '.join(texts)}",
            )
        status = dict(status_of(namespace))
        for condition, fine in _FINE.items():
            reason, message = problems.get(condition, fine)
            status["conditions"] = with_condition(
                status.get("conditions") or [],
                condition,
                "True" if condition in problems else "False",
                self.clock.now(),
                reason=reason,
                message=message,
            )
        self.api.write_status("namespaces", namespace, status)

    def _finalize(self, namespace: JsonObject) -> None:
        finalizers = (namespace.get("spec") or {}).get("finalizers") or []
        kept = [finalizer for finalizer in finalizers if finalizer != FINALIZER]
        if kept != finalizers:
            spec = {**(namespace.get("spec") or {}), "finalizers": kept}
            self.api.finalize({**namespace, "spec": spec})

    def _changed(
        self, resource: ResourceInfo, kind: str, obj: JsonObject, old: JsonObject | None
    ) -> None:
        if resource.key == "namespaces":
            if kind == "DELETED":
                self._terminating.discard(name_of(obj))
            elif is_deleting(obj):
                self._terminating.add(name_of(obj))
                self.queue.add(name_of(obj))
        elif kind == "DELETED" and namespace_of(obj) in self._terminating:
            self.queue.add(namespace_of(obj))
