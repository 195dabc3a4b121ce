"""Service accounts of pods: the account must exist, and its token is mounted into containers.

As in kube-apiserver, where this is the admission plugin ServiceAccount, it can be off: an API
without a published certificate (`control_plane.publish`) has nothing to mount.
"""

from __future__ import annotations

from kubesched.base.errors import NotFound
from kubesched.playground.apimachinery.failures import forbidden
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.registry.namespace_defaults import ROOT_CERTIFICATE
from kubesched.playground.registry.rest_storage import RestStorage

MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_PREFIX = "kube-api-access-"
_SOURCE: JsonObject = {
    "defaultMode": 0o644,
    "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": ROOT_CERTIFICATE, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [
                    {
                        "path": "namespace",
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    }
                ]
            }
        },
    ],
}


def admit_service_account(registry: RestStorage, pod: JsonObject) -> None:
    """Apply the pod's service account.

    Raises:
        Forbidden: there is no such account.
    """
    spec, metadata = pod["spec"], pod["metadata"]
    if not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"] = "default"
    if not registry.admits_service_accounts:
        return
    name, namespace = spec["serviceAccountName"], metadata["namespace"]
    try:
        account = registry.get(registry.catalog.get("serviceaccounts"), namespace, name).obj
    except NotFound as error:
        why = f"error looking up service account {namespace}/{name}: {error.message}"
        raise forbidden(registry.catalog.get("pods"), metadata["name"], why) from None
    mounts = spec.get("automountServiceAccountToken")
    if mounts is None:
        mounts = account.get("automountServiceAccountToken")
    if mounts is not False:
        _mount_token(spec, _PREFIX + metadata["uid"][-5:])
    if account.get("imagePullSecrets"):
        spec.setdefault("imagePullSecrets", account["imagePullSecrets"])


def _mount_token(spec: JsonObject, name: str) -> None:
    """Mount the token where a container has nothing mounted at its path."""
    volumes: list[JsonObject] = spec.get("volumes") or []
    known = next((item["name"] for item in volumes if item["name"].startswith(_PREFIX)), None)
    mount = {"name": known or name, "readOnly": True, "mountPath": MOUNT_PATH}
    is_needed = False
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        mounts: list[JsonObject] = container.get("volumeMounts") or []
        if all(other.get("mountPath") != MOUNT_PATH for other in mounts):
            container["volumeMounts"] = [*mounts, mount]
            is_needed = True
    if is_needed and known is None:
        spec["volumes"] = [*volumes, {"name": name, "projected": _SOURCE}]
