"""ResourceQuotas: rejects writes that exceed a quota and charges all others to its status.

Charging is atomic with the write, so two writes cannot both use the last of a quota. The resource
quota controller recounts after deletions and after a write that was charged but then rejected.
"""

from __future__ import annotations

from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.failures import forbidden
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.registry.rest_storage import AdmissionRequest, RestStorage
from kubesched.playground.resources.admission.quota_usage import (
    Totals,
    add,
    difference,
    matches_scopes,
    parsed,
    unspecified,
    usage_of,
)
from kubesched.playground.storage.store import Entry

RESOURCE = "resourcequotas"
_CHANGES_COUNT = frozenset({"pods", "services", "persistentvolumeclaims"})
"""Resources whose updates may increase their usage."""


def charge_quotas(request: AdmissionRequest) -> None:
    """Charge the write to all matching quotas, or reject it.

    Raises:
        Forbidden: naming the first quota that is exceeded.
    """
    registry, resource, obj, old, _, options = request
    collection = registry.store.collection(RESOURCE)
    if not resource.namespaced or not collection.count:
        return
    if resource.key == "events" or (old is not None and resource.key not in _CHANGES_COUNT):
        return
    charges: list[tuple[Entry, Totals]] = []
    usage: Totals | None = None
    for entry in list(collection.entries(obj["metadata"]["namespace"])):
        if not matches_scopes(entry.obj, resource, obj):
            continue
        if usage is None:
            usage = usage_of(resource, obj)
        wanted = usage
        if old is not None and matches_scopes(entry.obj, resource, old):
            wanted = difference(usage, usage_of(resource, old))
        used = _charged(resource, obj, entry.obj, wanted, is_new=old is None)
        if used is not None:
            charges.append((entry, used))
    if not options.dry_run:
        for entry, used in charges:
            _write_used(registry, entry, used)


def _charged(
    resource: ResourceInfo, obj: JsonObject, quota: JsonObject, wanted: Totals, *, is_new: bool
) -> Totals | None:
    """The quota's usage including the write; None if it does not limit what the write uses."""
    status = quota.get("status") or {}
    hard = parsed(status.get("hard"))
    name, quota_name = obj["metadata"].get("name", ""), quota["metadata"]["name"]
    if resource.key == "pods" and is_new:
        missing = unspecified(obj, hard)
        if missing:
            what = "; ".join(f"{key} for: {','.join(names)}" for key, names in missing.items())
            raise forbidden(resource, name, f"failed quota: {quota_name}: must specify {what}")
    delta = {key: amount for key, amount in wanted.items() if key in hard}
    if not delta:
        return None
    before = parsed(status.get("used"))
    if not set(delta) <= set(before):
        what = ",".join(sorted(delta))
        raise forbidden(
            resource, name, f"status unknown for quota: {quota_name}, resources: {what}"
        )
    after = add(before, delta)
    exceeded = sorted(key for key in delta if after[key] > hard[key])
    if exceeded:
        requested, used, limited = (
            ",".join(f"{key}={amounts[key]}" for key in exceeded)
            for amounts in (delta, before, hard)
        )
        raise forbidden(
            resource,
            name,
            f"exceeded quota: {quota_name}, requested: {requested}, used: {used}, limited:"
            f" {limited}",
        )
    return after


def _write_used(registry: RestStorage, entry: Entry, used: Totals) -> None:
    amounts = {name: str(amount) for name, amount in used.items()}
    status = {**(entry.obj.get("status") or {}), "used": amounts}
    resource = registry.catalog.get(RESOURCE)
    registry.modify(resource, entry, lambda obj: {**obj, "status": status})
