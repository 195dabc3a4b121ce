"""JSON Merge Patch (RFC 7386). Pure: the result shares unchanged parts."""

from __future__ import annotations

from kubesched.playground.apimachinery.objects import Json


def apply_merge_patch(document: Json, patch: Json) -> Json:
    """Apply `patch` to `document`: null removes, objects merge, anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), value)
    return result
