"""Writing an object's status, only when it says something new."""

from __future__ import annotations

from typing import Any

from kubesched.embedded.apimachinery.objects import JsonObject
from kubesched.embedded.client.local import LocalApi


def write_status(
    api: LocalApi, resource: str, obj: JsonObject, status: dict[str, Any]
) -> JsonObject:
    """The object with this status; written only if it differs.

    The object's resourceVersion goes along: a status computed from an old reading is refused with
    `Conflict`, and the caller's key is retried.
    """
    if (obj.get("status") or {}) == status:
        return obj
    return api.write_status(resource, obj, status)


def without_zeros(status: dict[str, Any], *keep: str) -> dict[str, Any]:
    """The status as Go would write it: empty fields left out, except those it always writes."""
    return {
        key: value
        for key, value in status.items()
        if key in keep or value not in (0, None, [], {}, "")
    }
