"""What every namespace has from its first moment: a service account called default.

Emptying a namespace that is being deleted is the namespace controller's work.
"""

from __future__ import annotations

from kubesched.embedded.registry.registry import Registry, WriteOptions
from kubesched.embedded.storage.store import Change

_MANAGER = WriteOptions(manager="kube-controller-manager")


class DefaultServiceAccounts:
    """Follows namespaces for as long as the registry lives."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        registry.store.subscribe("namespaces", self._on_namespace)

    def _on_namespace(self, change: Change) -> None:
        if change.type != "ADDED":
            return
        namespace = change.entry.obj["metadata"]["name"]
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": namespace},
        }
        self._registry.create(
            self._registry.catalog.get("serviceaccounts"), namespace, account, _MANAGER
        )
