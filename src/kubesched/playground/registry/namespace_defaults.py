"""Objects that every namespace has: the default service account, and the root certificate.

The namespace controller empties namespaces that are being deleted.
"""

from __future__ import annotations

from kubesched.base.errors import Forbidden
from kubesched.base.logs import get_logger
from kubesched.playground.apimachinery.objects import JsonObject, copy_json
from kubesched.playground.registry.rest_storage import RestStorage, WriteOptions
from kubesched.playground.registry.steps import at_once
from kubesched.playground.storage.store import Change

log = get_logger(__name__)

ROOT_CERTIFICATE = "kube-root-ca.crt"

_DESCRIPTION = "The certificate that the API server's own certificate is signed with."
_MANAGER = WriteOptions(manager="kube-controller-manager")


def default_service_account() -> JsonObject:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}


def root_certificate(certificate: str) -> JsonObject:
    annotations = {"kubernetes.io/description": _DESCRIPTION}
    metadata = {"name": ROOT_CERTIFICATE, "annotations": annotations}
    data = {"ca.crt": certificate}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


class NamespaceDefault:
    """Keeps an object in every namespace: creates it anew, and restores its data."""

    def __init__(self, registry: RestStorage, resource: str, obj: JsonObject) -> None:
        self._registry, self._resource, self._obj = registry, resource, obj
        registry.store.subscribe("namespaces", self._on_namespace)
        registry.store.subscribe(resource, self._on_object)
        for entry in list(registry.store.collection("namespaces").entries()):
            self._ensure(entry.obj["metadata"]["name"])

    def _on_namespace(self, change: Change) -> None:
        if change.type == "ADDED":
            self._ensure(change.entry.obj["metadata"]["name"])

    def _on_object(self, change: Change) -> None:
        metadata = change.entry.obj["metadata"]
        if metadata["name"] == self._obj["metadata"]["name"]:
            self._ensure(metadata["namespace"])

    def _ensure(self, namespace: str) -> None:
        registry, wanted = self._registry, self._obj
        resource = registry.catalog.get(self._resource)
        known = registry.store.get(resource.storage_key, namespace, wanted["metadata"]["name"])
        if known is not None:
            if "data" in wanted and known.obj.get("data") != wanted["data"]:
                registry.modify(resource, known, lambda obj: {**obj, "data": dict(wanted["data"])})
            return
        entry = registry.store.get("namespaces", "", namespace)
        if entry is None or entry.obj["metadata"].get("deletionTimestamp"):
            return
        try:
            at_once(registry.create(resource, namespace, copy_json(wanted), _MANAGER))
        except Forbidden as error:  # the quota is exhausted
            log.warning(
                "Default object not created", resource=resource.key, namespace=namespace, err=error
            )
