"""Admission of claims and slices: admin access, taint times, status of released devices."""

from __future__ import annotations

from collections.abc import Iterable

from kubesched.api import field_errors
from kubesched.playground.apimachinery.failures import invalid
from kubesched.playground.apimachinery.objects import JsonObject, timestamp
from kubesched.playground.registry.rest_storage import RestStorage
from kubesched.playground.resources.validation.resource_claims import allocated_devices, device_key

ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"
_CLAIMS = "resourceclaims.resource.k8s.io"
_TEMPLATES = "resourceclaimtemplates.resource.k8s.io"


def admit_resource_claim(registry: RestStorage, claim: JsonObject) -> None:
    claim["status"] = {}
    _check_admin_access(registry, _CLAIMS, claim, _admin_requests(claim["spec"], "spec"))


def admit_resource_claim_template(registry: RestStorage, template: JsonObject) -> None:
    # Upstream: the path is that of a claim, although the request is one level deeper.
    requests = _admin_requests(template["spec"]["spec"], "spec")
    _check_admin_access(registry, _TEMPLATES, template, requests)


def admit_claim_status(registry: RestStorage, claim: JsonObject, old: JsonObject) -> None:
    """Drop the status of released devices, and check new admin access."""
    status, before = claim.get("status") or {}, old.get("status") or {}
    allocation, allocated_before = status.get("allocation"), before.get("allocation")
    if status.get("devices"):
        released = set(allocated_devices(allocated_before)) - set(allocated_devices(allocation))
        status["devices"] = [
            entry for entry in status["devices"] if device_key(entry) not in released
        ]
        if not status["devices"]:
            del status["devices"]
    if not any(_admin_results(allocated_before)):
        _check_admin_access(registry, _CLAIMS, claim, _admin_results(allocation))


def admit_device_taint_rule(registry: RestStorage, obj: JsonObject) -> None:
    obj["status"] = {}
    _set_taint_time(registry, obj)


def _set_taint_time(registry: RestStorage, obj: JsonObject) -> None:
    taint = (obj.get("spec") or {}).get("taint") or {}
    if not taint.get("timeAdded"):
        taint["timeAdded"] = timestamp(registry.clock.now())


def admit_device_taint_rule_update(registry: RestStorage, obj: JsonObject, old: JsonObject) -> None:
    """Reset the time of a taint whose effect changed, unless the update sets it."""
    taint, before = ((each.get("spec") or {}).get("taint") or {} for each in (obj, old))
    is_new = taint.get("effect") != before.get("effect")
    if is_new and taint.get("timeAdded") == before.get("timeAdded"):
        taint.pop("timeAdded", None)
    _set_taint_time(registry, obj)


def set_taint_times(registry: RestStorage, obj: JsonObject, *_old: JsonObject) -> None:
    """Set the missing `timeAdded` of taints to the current time."""
    for device in obj["spec"].get("devices") or ():
        for taint in device.get("taints") or ():
            if not taint.get("timeAdded"):
                taint["timeAdded"] = timestamp(registry.clock.now())


def _admin_requests(spec: JsonObject, path: str) -> Iterable[str]:
    """Paths of requests with admin access."""
    for index, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        if (request.get("exactly") or {}).get("adminAccess"):
            yield f"{path}.devices.requests[{index}].adminAccess"


def _admin_results(allocation: JsonObject | None) -> Iterable[str]:
    results = ((allocation or {}).get("devices") or {}).get("results") or ()
    for index, result in enumerate(results):
        if result.get("adminAccess"):
            yield f"status.allocation.devices.results[{index}].adminAccess"


def _check_admin_access(
    registry: RestStorage, resource: str, obj: JsonObject, paths: Iterable[str]
) -> None:
    """Reject admin access outside of namespaces labelled for it."""
    for path in paths:
        metadata = obj["metadata"]
        namespace = registry.store.get("namespaces", "", metadata["namespace"])
        labels = namespace.obj["metadata"].get("labels") if namespace is not None else None
        if (labels or {}).get(ADMIN_ACCESS_LABEL) == "true":
            return
        detail = (
            f"admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the"
            " containing namespace"
        )
        problem = field_errors.forbidden(path, detail)
        raise invalid(registry.catalog.get(resource), metadata["name"], [problem])
