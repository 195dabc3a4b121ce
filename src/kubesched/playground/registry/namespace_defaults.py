"""Creates each namespace's default service account and root certificate config map.

The namespace controller empties namespaces that are being deleted.
"""

from __future__ import annotations

from kubesched.base.errors import Forbidden
from kubesched.base.logs import get_logger
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.registry.rest_storage import RestStorage, WriteOptions
from kubesched.playground.storage.store import Change

log = get_logger(__name__)

ROOT_CERTIFICATE = "kube-root-ca.crt"

_DESCRIPTION = "The certificate that the API server's own certificate is signed with."
_MANAGER = WriteOptions(manager="kube-controller-manager")


class DefaultServiceAccounts:
    """Creates every namespace's default account, and recreates it after a deletion."""

    def __init__(self, registry: RestStorage) -> None:
        self._registry = registry
        registry.store.subscribe("namespaces", self._on_namespace)
        registry.store.subscribe("serviceaccounts", self._on_service_account)

    def _on_namespace(self, change: Change) -> None:
        if change.type == "ADDED":
            self._ensure(change.entry.obj["metadata"]["name"])

    def _on_service_account(self, change: Change) -> None:
        metadata = change.entry.obj["metadata"]
        if change.type == "DELETED" and metadata["name"] == "default":
            self._ensure(metadata["namespace"])

    def _ensure(self, namespace: str) -> None:
        if self._registry.store.get("serviceaccounts", namespace, "default") is None:
            metadata = {"name": "default"}
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
            _create(self._registry, "serviceaccounts", namespace, account)


class RootCertificates:
    """Keeps the cluster's root certificate in every namespace."""

    def __init__(self, registry: RestStorage, certificate: str) -> None:
        self._registry = registry
        self._data = {"ca.crt": certificate}
        registry.store.subscribe("namespaces", self._on_namespace)
        registry.store.subscribe("configmaps", self._on_config_map)
        for entry in list(registry.store.collection("namespaces").entries()):
            self._ensure(entry.obj["metadata"]["name"])

    def _on_namespace(self, change: Change) -> None:
        if change.type == "ADDED":
            self._ensure(change.entry.obj["metadata"]["name"])

    def _on_config_map(self, change: Change) -> None:
        metadata = change.entry.obj["metadata"]
        if metadata["name"] == ROOT_CERTIFICATE:
            self._ensure(metadata["namespace"])

    def _ensure(self, namespace: str) -> None:
        known = self._registry.store.get("configmaps", namespace, ROOT_CERTIFICATE)
        if known is None:
            metadata = {
                "name": ROOT_CERTIFICATE,
                "annotations": {"kubernetes.io/description": _DESCRIPTION},
            }
            config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
            _create(
                self._registry, "configmaps", namespace, {**config_map, "data": dict(self._data)}
            )
        elif known.obj.get("data") != self._data:
            resource = self._registry.catalog.get("configmaps")
            self._registry.modify(resource, known, lambda obj: {**obj, "data": dict(self._data)})


def _create(registry: RestStorage, resource: str, namespace: str, obj: JsonObject) -> None:
    """Create an object unless its namespace is terminating or its quota is exhausted."""
    entry = registry.store.get("namespaces", "", namespace)
    if entry is None or entry.obj["metadata"].get("deletionTimestamp"):
        return
    try:
        registry.create(registry.catalog.get(resource), namespace, obj, _MANAGER)
    except Forbidden as error:
        log.warning("Default object not created", resource=resource, namespace=namespace, err=error)
