"""The patch verb: read, patch, then write as an update would, all in one step.

There is no retry loop as in a server with remote storage: nothing can come between reading and writing here.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from kubesched.embedded import scale
from kubesched.embedded.failures import conflict, stale
from kubesched.embedded.objects import JsonObject, copy_json
from kubesched.embedded.patching.json_patch import apply_json_patch
from kubesched.embedded.patching.merge_patch import apply_merge_patch
from kubesched.embedded.patching.strategic import apply_strategic_patch
from kubesched.embedded.registry import NO_OPTIONS, Registry, WriteOptions
from kubesched.embedded.resources import ResourceInfo
from kubesched.embedded.store import Entry
from kubesched.errors import BadRequest, UnsupportedMediaType

PatchKind: TypeAlias = Literal["merge", "strategic", "json"]


def patch_object(
    registry: Registry,
    resource: ResourceInfo,
    namespace: str,
    name: str,
    patch: Any,  # noqa: ANN401 (whatever the client sent)
    kind: PatchKind,
    options: WriteOptions = NO_OPTIONS,
    *,
    subresource: str = "",
) -> Entry:
    """Apply a patch to an object or one of its subresources."""
    old = registry.get(resource, namespace, name)
    if subresource == "scale":
        patched = apply_patch(resource, scale.scale_of(resource, old.obj), patch, kind)
        return scale.update(registry, resource, namespace, name, patched, options)
    patched = apply_patch(resource, old.with_managed_fields(), patch, kind)
    if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
        raise BadRequest("the patched object has no metadata")
    metadata = patched["metadata"]
    if metadata.get("name") != name or metadata.get("namespace", "") != namespace:
        raise BadRequest("the name and namespace of an object cannot be changed by a patch")
    if str(metadata.get("resourceVersion", "")) not in ("", str(old.revision)):
        raise stale(resource, name)
    if metadata.get("uid", "") not in ("", old.obj["metadata"]["uid"]):
        uid = old.obj["metadata"]["uid"]
        why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {uid}"
        raise conflict(resource, name, why)
    # The patched object shares parts with the stored one, and defaulting works in place.
    mine = (
        {**patched, "metadata": dict(metadata)} if subresource == "status" else copy_json(patched)
    )
    return registry.replace(resource, old, mine, options, subresource=subresource)


def apply_patch(resource: ResourceInfo, document: JsonObject, patch: Any, kind: PatchKind) -> Any:  # noqa: ANN401 (JSON in, JSON out)
    """The pure part: a document after a patch of the given kind."""
    if kind == "json":
        return apply_json_patch(document, patch)
    if not isinstance(patch, dict):
        raise BadRequest("error decoding patch: the patch must be an object")
    if kind == "merge":
        return apply_merge_patch(document, patch)
    if resource.custom:
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include:"
            " application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        )
    return apply_strategic_patch(resource.kind, document, patch)
