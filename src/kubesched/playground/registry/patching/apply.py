"""Server-side apply: merges a configuration into the live object and tracks field ownership.

    config + live ──merge──> merged ──prune fields its owner dropped──> new version
                      │
                      └── changes another manager's field: conflict, unless forced

An applier owns the fields of its configuration, but not defaults or fields of other writers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from kubesched.base.errors import BadRequest, Conflict, ServerError
from kubesched.playground.apimachinery.bodies import check_kind, to_stored, undeclared_fields
from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.failures import not_found, other_uid, stale
from kubesched.playground.apimachinery.managed_fields.compare import compare
from kubesched.playground.apimachinery.managed_fields.managers import (
    Manager,
    encode_fields,
    ownable,
)
from kubesched.playground.apimachinery.managed_fields.merge import merge, prefixes, prune
from kubesched.playground.apimachinery.managed_fields.paths import Layout, Path, describe, paths_of
from kubesched.playground.apimachinery.objects import Json, JsonObject, decode, encode, timestamp
from kubesched.playground.apimachinery.serialization import check_size, check_values
from kubesched.playground.registry.rest_storage import RestStorage, WriteOptions
from kubesched.playground.registry.steps import Steps
from kubesched.playground.storage.store import Entry

BEFORE_FIRST_APPLY = "before-first-apply"


def apply_object(
    registry: RestStorage,
    resource: ResourceInfo,
    namespace: str,
    name: str,
    read: Callable[[], Json],
    options: WriteOptions,
    *,
    force: bool,
    subresource: str = "",
) -> Steps[tuple[Entry, bool]]:
    """Apply the configuration that `read` returns; returns the entry and whether it was created."""
    layout = registry.layout(resource)

    def configuration() -> tuple[JsonObject, bytes]:
        config = read()
        if not isinstance(config, dict) or not config.get("kind") or not config.get("apiVersion"):
            raise BadRequest(
                "invalid object type: an applied object must state its apiVersion and kind"
            )
        checked = check_kind(config, resource)
        _reject_undeclared(resource, namespace, name, checked)
        own = _own_config(resource, namespace, name, to_stored(resource, checked), subresource)
        return own, encode_fields(ownable(paths_of(layout, own)))

    config, claimed = yield configuration
    mine = Manager(
        name=options.manager,
        operation="Apply",
        api_version=resource.api_version,
        time=timestamp(registry.clock.now()),
        subresource=subresource,
        fields=claimed,
    )
    old = registry.store.get(resource.storage_key, namespace, name)
    if old is None:
        if subresource or config["metadata"].get("uid"):
            raise not_found(resource, name)
        config["metadata"].pop("resourceVersion", None)
        entry = yield from registry.create(resource, namespace, config, options, managers=(mine,))
        return entry, True
    _check_preconditions(resource, old, config["metadata"])
    obj, managers = yield partial(_applied, layout, resource, old, config, mine, force=force)
    entry = yield from registry.replace(
        resource, old, obj, options, subresource=subresource, managers=managers
    )
    return entry, False


def _reject_undeclared(
    resource: ResourceInfo, namespace: str, name: str, config: JsonObject
) -> None:
    """Upstream: applied fields must be known, whatever the validation that is asked for."""
    problems = [
        f".{path}: field not declared in schema"
        for path in undeclared_fields(resource, config, encode(config))
    ]
    if problems:
        detail = problems[0] if len(problems) == 1 else "\n  ".join(["errors:", *problems])
        what = f"{namespace}/{name}; {resource.api_version}, Kind={resource.kind}"
        raise ServerError(f"failed to create typed patch object ({what}): {detail}", reason="")


def _applied(
    layout: Layout,
    resource: ResourceInfo,
    old: Entry,
    config: JsonObject,
    mine: Manager,
    *,
    force: bool,
) -> tuple[JsonObject, tuple[Manager, ...]]:
    """The live object with the configuration applied, and its managers afterwards."""
    managers = old.managers or (_before_first_apply(resource, layout, old),)
    merged = merge(layout, old.obj, config)
    claimed = set(mine.paths())
    others = [manager for manager in managers if manager.identity != mine.identity]
    others = _settle_conflicts(layout, old.obj, merged, claimed, others, force=force)
    last = next((manager for manager in managers if manager.identity == mine.identity), None)
    present = [*others, mine]
    if last is not None:
        removed = prefixes(last.paths()) - prefixes(claimed)
        kept = prefixes(path for other in others for path in other.paths())
        merged = prune(layout, merged, removed, kept)
        if last.fields == mine.fields:
            present = _in_place(managers, others, last)
    # The merged object shares parts with the stored one, and defaulting works in place.
    body = encode(merged)
    check_size(body)
    check_values(body, merged)
    return decode(body), tuple(present)


def _check_preconditions(resource: ResourceInfo, old: Entry, metadata: JsonObject) -> None:
    """Check the resourceVersion and uid of a configuration, if it states them."""
    known = old.obj["metadata"]
    if metadata.get("resourceVersion", "") not in ("", str(old.revision)):
        raise stale(resource, known["name"])
    if metadata.get("uid", "") not in ("", known["uid"]):
        raise other_uid(resource, known["name"], metadata["uid"], known["uid"])


def _in_place(managers: tuple[Manager, ...], others: list[Manager], mine: Manager) -> list[Manager]:
    """Keep the order of managers, so that reapplying a configuration changes nothing."""
    surviving = {item.identity: item for item in (*others, mine)}
    return [surviving[manager.identity] for manager in managers if manager.identity in surviving]


def _own_config(
    resource: ResourceInfo, namespace: str, name: str, config: JsonObject, subresource: str
) -> JsonObject:
    """The part of the configuration that this request may write, with the name in the path."""
    result = {**config, "metadata": dict(config.get("metadata") or {})}
    if result["metadata"].get("managedFields"):
        raise BadRequest("metadata.managedFields must be nil")
    RestStorage.own_metadata(resource, namespace, result, name)
    if subresource == "status":
        return {
            key: value
            for key, value in result.items()
            if key in ("apiVersion", "kind", "metadata", "status")
        }
    if "status" in resource.subresources:
        result.pop("status", None)
    return result


def _before_first_apply(resource: ResourceInfo, layout: Layout, old: Entry) -> Manager:
    """The manager of all fields of an object that has no managers yet."""
    return Manager(
        name=BEFORE_FIRST_APPLY,
        operation="Update",
        api_version=resource.api_version,
        time=old.obj["metadata"]["creationTimestamp"],
        fields=encode_fields(ownable(paths_of(layout, old.obj))),
    )


def _settle_conflicts(
    layout: Layout,
    live: JsonObject,
    merged: JsonObject,
    claimed: set[Path],
    others: list[Manager],
    *,
    force: bool,
) -> list[Manager]:
    """The other managers after this apply; `Conflict` if it changes their fields without force."""
    contested = compare(layout, live, merged).changed & claimed
    if not contested:
        return others
    conflicts = [(other, lost) for other in others if (lost := other.paths() & contested)]
    if conflicts and not force:
        raise _conflict(conflicts)
    result = []
    for other in others:
        paths = other.paths()
        left = paths - contested
        if left == paths:
            result.append(other)
        elif left:
            result.append(replace(other, fields=encode_fields(left)))
    return result


def _conflict(conflicts: list[tuple[Manager, frozenset[Path]]]) -> Conflict:
    causes = []
    texts = []
    for manager, paths in conflicts:
        who = f'"{manager.name}"'
        if manager.subresource:
            who += f' with subresource "{manager.subresource}"'
        if manager.operation == "Update":
            who += f" using {manager.api_version}"
        fields = sorted(describe(path) for path in paths)
        causes += [
            {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": field}
            for field in fields
        ]
        if len(fields) == 1:
            texts.append(f"conflict with {who}: {fields[0]}")
        else:
            texts.append(f"conflicts with {who}:\n" + "\n".join(f"- {field}" for field in fields))
    count = f"{len(causes)} conflict" + ("s" if len(causes) > 1 else "")
    message = f"Apply failed with {count}: " + "\n".join(texts)
    return Conflict(message, details={"causes": causes})
