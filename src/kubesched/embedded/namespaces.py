"""The life of a namespace: what every new one gets, and how a deleted one is emptied before it goes.

    Active ──delete──> Terminating: nothing new may be created, everything inside is deleted ──empty──> gone

Pods take their time to stop and finalizers may hold objects back, so emptiness is checked again whenever something
inside has gone.
"""

from __future__ import annotations

from collections.abc import Callable

from kubesched.embedded.objects import JsonObject
from kubesched.embedded.registry import Registry, WriteOptions
from kubesched.embedded.store import Change, Collection
from kubesched.errors import Conflict, NotFound

_MANAGER = WriteOptions(manager="kube-controller-manager")


class NamespaceLifecycle:
    """Follows namespaces for as long as the registry lives."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._watching: dict[str, list[Callable[[], None]]] = {}
        registry.store.subscribe("namespaces", self._on_namespace)

    def resume(self) -> None:
        """Go on with what a previous process left unfinished."""
        for entry in list(self._registry.store.collection("namespaces").entries()):
            self._look_after(entry.obj)

    def _on_namespace(self, change: Change) -> None:
        if change.type == "DELETED":
            for unsubscribe in self._watching.pop(change.entry.obj["metadata"]["name"], []):
                unsubscribe()
        else:
            self._look_after(change.entry.obj)

    def _look_after(self, namespace: JsonObject) -> None:
        name = namespace["metadata"]["name"]
        if namespace["metadata"].get("deletionTimestamp") is None:
            self._ensure_service_account(name)
        elif name not in self._watching:
            self._watching[name] = []
            self._empty(name)
        else:
            self._finish_if_empty(name)

    def _ensure_service_account(self, namespace: str) -> None:
        if self._registry.store.get("serviceaccounts", namespace, "default") is None:
            account = {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "default", "namespace": namespace},
            }
            self._registry.create(
                self._registry.catalog.get("serviceaccounts"), namespace, account, _MANAGER
            )

    def _contents(self, namespace: str) -> list[Collection]:
        return [
            each
            for each in self._registry.store.collections()
            if namespace and namespace in each.by_namespace
        ]

    def _empty(self, namespace: str) -> None:
        for collection in self._contents(namespace):
            subscription = self._registry.store.subscribe(
                collection.resource, self._content_listener(namespace)
            )
            self._watching[namespace].append(subscription)
            resource = self._registry.catalog.get(collection.resource)
            for entry in list(collection.entries(namespace)):
                try:
                    self._registry.delete(resource, namespace, entry.obj["metadata"]["name"])
                except (NotFound, Conflict):
                    continue  # a listener of an earlier deletion was faster
        self._finish_if_empty(namespace)

    def _content_listener(self, namespace: str) -> Callable[[Change], None]:
        def on_change(change: Change) -> None:
            if (
                change.type == "DELETED"
                and change.entry.obj["metadata"].get("namespace") == namespace
            ):
                self._finish_if_empty(namespace)

        return on_change

    def _finish_if_empty(self, namespace: str) -> None:
        entry = self._registry.store.get("namespaces", "", namespace)
        if entry is None or self._contents(namespace):
            return
        metadata = entry.obj["metadata"]
        if metadata.get("deletionTimestamp") is None:
            return
        if (entry.obj.get("spec") or {}).get("finalizers"):
            finalize(self._registry, namespace)


def finalize(registry: Registry, name: str) -> None:
    """Take the server's own finalizer off; the namespace goes unless somebody else's holds it back."""
    resource = registry.catalog.get("namespaces")
    entry = registry.get(resource, "", name)
    obj = {**entry.obj, "metadata": dict(entry.obj["metadata"]), "spec": {}}
    registry.replace(resource, entry, obj)
