"""Deletion: preconditions, grace periods, finalizers, propagation.

Only pods on a node get a grace period. An object with finalizers is marked for deletion; the write
that removes its last finalizer also removes the object (see `is_ready_to_go`).
"""

from __future__ import annotations

from dataclasses import dataclass

from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.failures import kind_conflict
from kubesched.playground.apimachinery.objects import (
    FOREGROUND_FINALIZER,
    ORPHAN_FINALIZER,
    JsonObject,
    timestamp,
)
from kubesched.playground.apimachinery.pods import is_finished
from kubesched.playground.registry.strategy import Propagation
from kubesched.playground.storage.store import Entry

DEFAULT_GRACE_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """Options of a delete request."""

    grace_period_s: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    propagation: Propagation | None = None
    dry_run: bool = False


NO_DELETE_OPTIONS = DeleteOptions()


def check_preconditions(resource: ResourceInfo, old: Entry, options: DeleteOptions) -> None:
    metadata = old.obj["metadata"]
    if options.uid is not None and options.uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record"
            f" ({metadata['uid']}). The object might have been deleted and then recreated"
        )
        raise kind_conflict(resource, metadata["name"], why)
    if options.resource_version is not None and options.resource_version != str(old.revision):
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match"
            f" the ResourceVersion in record ({old.revision}). The object might have been modified"
        )
        raise kind_conflict(resource, metadata["name"], why)


def after_delete(
    resource: ResourceInfo,
    obj: JsonObject,
    options: DeleteOptions,
    default_propagation: Propagation,
    now: float,
) -> tuple[JsonObject, bool]:
    """The object after a deletion request, and whether it is removed at once."""
    metadata = obj["metadata"]
    finalizers = _finalizers(
        metadata, options.propagation or _propagation(metadata, default_propagation)
    )
    is_pending = metadata.get("deletionTimestamp") is not None
    grace = _grace_period(resource, obj, options.grace_period_s)
    if is_pending:
        grace = min(grace, metadata.get("deletionGracePeriodSeconds", 0))
    is_gone = grace == 0 and not finalizers and not _has_spec_finalizers(obj)
    if is_gone and resource.storage_key != "pods":
        return obj, True
    marked = dict(metadata)
    if finalizers:
        marked["finalizers"] = finalizers
    else:
        marked.pop("finalizers", None)
    if not is_pending or grace != metadata.get("deletionGracePeriodSeconds", 0):
        marked["deletionTimestamp"] = timestamp(now + grace)
        if resource.storage_key != "namespaces":
            marked["deletionGracePeriodSeconds"] = grace
        if marked.get("generation") and not is_pending:
            marked["generation"] += 1
    result = {**obj, "metadata": marked}
    if resource.storage_key == "namespaces":
        result["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    return result, is_gone


def is_ready_to_go(obj: JsonObject) -> bool:
    """Whether an object marked for deletion can be removed now."""
    metadata = obj["metadata"]
    return (
        metadata.get("deletionTimestamp") is not None
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and not _has_spec_finalizers(obj)
    )


def _has_spec_finalizers(obj: JsonObject) -> bool:
    return obj.get("kind") == "Namespace" and bool((obj.get("spec") or {}).get("finalizers"))


def _propagation(metadata: JsonObject, default: Propagation) -> Propagation:
    """The propagation of an earlier delete request, else the kind's default."""
    finalizers = metadata.get("finalizers") or ()
    if ORPHAN_FINALIZER in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND_FINALIZER in finalizers else default


def _finalizers(metadata: JsonObject, propagation: Propagation) -> list[str]:
    own = (ORPHAN_FINALIZER, FOREGROUND_FINALIZER)
    kept = [finalizer for finalizer in metadata.get("finalizers") or () if finalizer not in own]
    if propagation == "Orphan":
        kept.append(ORPHAN_FINALIZER)
    elif propagation == "Foreground":
        kept.append(FOREGROUND_FINALIZER)
    return kept


def _grace_period(resource: ResourceInfo, obj: JsonObject, asked_s: int | None) -> int:
    if resource.storage_key != "pods":
        return 0
    spec = obj.get("spec") or {}
    grace: int = (
        asked_s
        if asked_s is not None
        else spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
    )
    if not spec.get("nodeName") or is_finished(obj):
        return 0
    # Upstream: a negative grace period counts as one second.
    return grace if grace >= 0 else 1
