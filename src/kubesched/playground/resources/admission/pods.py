"""Admission of pods: priority, service account, tolerations, runtime class, labels, status."""

from __future__ import annotations

from kubesched.api import field_errors
from kubesched.base.errors import NotFound
from kubesched.playground.apimachinery.failures import forbidden, invalid
from kubesched.playground.apimachinery.objects import JsonObject, timestamp
from kubesched.playground.registry.binding import add_topology_labels
from kubesched.playground.registry.namespace_defaults import ROOT_CERTIFICATE
from kubesched.playground.registry.rest_storage import RestStorage
from kubesched.playground.resources.admission.limit_ranges import (
    apply_defaults as apply_limit_range_defaults,
)
from kubesched.playground.resources.admission.priority import admit_priority
from kubesched.playground.resources.admission.quota_usage import pod_affinity_terms, qos_class
from kubesched.playground.resources.admission.runtime_classes import apply_runtime_class
from kubesched.playground.resources.defaults.pod_level import default_pod_level_resources
from kubesched.playground.resources.validation.scheduling import DEFAULT_TOLERATIONS

GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"
MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_PREFIX = "kube-api-access-"
_TOKEN_SOURCE: JsonObject = {
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


def admit_pod_and_complete(registry: RestStorage, pod: JsonObject) -> None:
    """`admit_pod`, and the defaults of pod-level resources, which need all containers."""
    admit_pod(registry, pod)
    default_pod_level_resources(pod["spec"], with_limits=True)
    pod["status"]["qosClass"] = qos_class(pod["spec"])


def admit_pod(registry: RestStorage, pod: JsonObject) -> None:
    spec = pod["spec"]
    if spec.get("ephemeralContainers"):
        problem = field_errors.forbidden("spec.ephemeralContainers", "cannot be set on create")
        raise invalid(registry.catalog.get("pods"), pod["metadata"].get("name", ""), [problem])
    apply_limit_range_defaults(registry, pod)
    admit_service_account(registry, pod)
    admit_priority(registry, pod)
    _default_tolerations(spec)
    apply_runtime_class(registry, pod, spec)
    if spec.get("nodeName"):
        add_topology_labels(registry, pod["metadata"], spec["nodeName"])
    _selectors_from_own_labels(pod, spec)
    pod["status"] = initial_status(spec, timestamp(registry.clock.now()))


def admit_pod_update(registry: RestStorage, pod: JsonObject, old: JsonObject) -> None:
    """Restore default tolerations and priority omitted by an update, before validation."""
    _default_tolerations(pod["spec"])
    for field in ("priority", "preemptionPolicy"):
        if pod["spec"].get(field) is None and old["spec"].get(field) is not None:
            pod["spec"][field] = old["spec"][field]


def admit_pod_update_and_keep(registry: RestStorage, pod: JsonObject, old: JsonObject) -> None:
    """`admit_pod_update`; clients that do not know pod-level resources do not remove them."""
    admit_pod_update(registry, pod, old)
    if "resources" not in pod["spec"] and "resources" in old["spec"]:
        pod["spec"]["resources"] = old["spec"]["resources"]


def _default_tolerations(spec: JsonObject) -> None:
    """Tolerate not-ready and unreachable nodes for five minutes, unless the pod sets its own."""
    present: list[JsonObject] = spec.get("tolerations") or []
    tolerated = set()
    for toleration in present:
        if toleration.get("effect") in (None, "", "NoExecute"):
            tolerated.add(toleration.get("key") or "")
    if "" in tolerated:
        return
    missing = [
        toleration for toleration in DEFAULT_TOLERATIONS if toleration["key"] not in tolerated
    ]
    if missing:
        spec["tolerations"] = present + missing


def _selectors_from_own_labels(pod: JsonObject, spec: JsonObject) -> None:
    """Convert `matchLabelKeys` and `mismatchLabelKeys` to requirements on the pod's labels."""
    labels = pod["metadata"].get("labels") or {}
    for constraint in spec.get("topologySpreadConstraints") or ():
        _extend_selector(constraint, labels)
    for term in pod_affinity_terms(spec):
        _extend_selector(term, labels)


def _extend_selector(term: JsonObject, labels: dict[str, str]) -> None:
    selector = term.get("labelSelector")
    if selector is None:
        return
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(field) or ():
            if key in labels:
                requirement = {"key": key, "operator": operator, "values": [labels[key]]}
                selector["matchExpressions"] = [
                    *(selector.get("matchExpressions") or ()),
                    requirement,
                ]


def initial_status(spec: JsonObject, now: str) -> JsonObject:
    status: JsonObject = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": now,
                "reason": "SchedulingGated",
                "message": GATED_MESSAGE,
            }
        ]
    return status


# -- service accounts ------------------------------------------------------------------------------


def admit_service_account(registry: RestStorage, pod: JsonObject) -> None:
    """Apply the pod's service account, whose token is mounted into containers.

    As in kube-apiserver, where this is the admission plugin ServiceAccount, it can be off: an API
    without a published certificate (`control_plane.publish`) has nothing to mount.

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
        _mount_token(spec, _TOKEN_PREFIX + metadata["uid"][-5:])
    if account.get("imagePullSecrets"):
        spec.setdefault("imagePullSecrets", account["imagePullSecrets"])


def _mount_token(spec: JsonObject, name: str) -> None:
    """Mount the token where a container has nothing mounted at its path."""
    volumes: list[JsonObject] = spec.get("volumes") or []
    known = next((item["name"] for item in volumes if item["name"].startswith(_TOKEN_PREFIX)), None)
    mount = {"name": known or name, "readOnly": True, "mountPath": MOUNT_PATH}
    is_needed = False
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        mounts: list[JsonObject] = container.get("volumeMounts") or []
        if all(other.get("mountPath") != MOUNT_PATH for other in mounts):
            container["volumeMounts"] = [*mounts, mount]
            is_needed = True
    if is_needed and known is None:
        spec["volumes"] = [*volumes, {"name": name, "projected": _TOKEN_SOURCE}]
