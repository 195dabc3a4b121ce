"""The namespace controller: empties a namespace that is being deleted, then removes it."""

from __future__ import annotations

from kubesched.base.errors import NotFound
from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    is_deleting,
    name_of,
    namespace_of,
)
from kubesched.playground.client.controller import Controller, ControllerContext
from kubesched.playground.client.informers import EveryResource

FINALIZER = "kubernetes"
RECHECK_S = 5.0
"""Fallback interval while content remains; every deletion in the namespace also queues it."""


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
        remaining = sum(
            self._empty(resource, key)
            for resource in self._everything.resources()
            if resource.namespaced
        )
        if remaining:
            return RECHECK_S
        self._finalize(namespace)
        return None

    def _empty(self, resource: ResourceInfo, namespace: str) -> int:
        """Delete all objects of one resource; returns how many remain."""
        for obj in self.api.list(resource, namespace)[0]:
            if not is_deleting(obj):
                self.api.delete_object(resource, obj)
        return len(self.api.list(resource, namespace)[0])

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
